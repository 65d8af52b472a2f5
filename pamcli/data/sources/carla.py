"""CARLA high-resolution virtual stereo (HR-VS, from the authors of HSMNet): named like Middlebury's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pamcli.data.decoding import read_positive_disparity
from pamcli.data.listing import Listed, Tree, folders, root_of, truths
from pamcli.data.source import SourceInfo

_PARTS = truths(read_positive_disparity, "disp0GT.pfm", "disp1GT.pfm")  # the sign differs between the views


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "carla-highres", holds=["trainingF"]) / "trainingF"
    tree = Tree(_PARTS)
    for name, folder in folders(home).items():
        tree.add(name, folder / "im0.png", folder / "im1.png", folder)
    return tree.listed()


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
