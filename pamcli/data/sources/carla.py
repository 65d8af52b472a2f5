"""CARLA high-resolution virtual stereo (HR-VS, from the authors of HSMNet): named like Middlebury's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pamcli.data.decoding import read_positive_disparity
from pamcli.data.listing import (
    Files,
    Listed,
    Truth,
    absent_line,
    existing,
    folders,
    root_of,
    truth_of_both_views,
)
from pamcli.files.finding import shown


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "carla-highres", holds=["trainingF"]) / "trainingF"
    found, unpaired = [], []
    for name, folder in folders(home).items():
        left, right = folder / "im0.png", folder / "im1.png"
        if left.is_file() and right.is_file():
            parts = {"disparity": folder / "disp0GT.pfm", "right_disparity": folder / "disp1GT.pfm"}
            found.append(Files(name, left, right, existing(parts)))
        elif left.is_file() or right.is_file():
            there, other = (left, "right") if left.is_file() else (right, "left")
            unpaired.append(f"{shown(there)} has no {other} picture")
    absent = absent_line("truth (disp0GT.pfm)", found, lambda files: "disparity" in files.parts)
    absent += absent_line("right truth (disp1GT.pfm)", found, lambda f: "right_disparity" in f.parts)
    return Listed(found, _truth, absent=absent, unpaired=unpaired)


def _truth(files: Files) -> Truth:
    return truth_of_both_views(files, read_positive_disparity)  # the sign differs between the views
