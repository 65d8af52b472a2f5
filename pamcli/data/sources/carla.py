"""CARLA high-resolution virtual stereo (HR-VS, from the authors of HSMNet): named like Middlebury's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pamcli.data.decoding import read_positive_disparity
from pamcli.data.listing import Listed, both_there, existing, folders, root_of, truths
from pamcli.data.source import Files, SourceInfo

_PARTS = truths(read_positive_disparity, "disp0GT.pfm", "disp1GT.pfm")  # the sign differs between the views


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "carla-highres", holds=["trainingF"]) / "trainingF"
    found: list[Files] = []
    unpaired: list[str] = []
    for name, folder in folders(home).items():
        left, right = folder / "im0.png", folder / "im1.png"
        if both_there(left, right, unpaired):
            parts = existing(disparity=folder / "disp0GT.pfm", right_disparity=folder / "disp1GT.pfm")
            found.append(Files(name, left, right, parts))
    return Listed(found, _PARTS, unpaired=unpaired)


INFO = SourceInfo(
    "carla",
    "CARLA high-resolution virtual stereo (HR-VS)",
    ("train",),
    (
        "carla-highres/trainingF/SCENE/im0.png",
        "carla-highres/trainingF/SCENE/im1.png",
        "carla-highres/trainingF/SCENE/disp0GT.pfm, disp1GT.pfm",
    ),
    open_source,
    unverified="the top folders",
)
