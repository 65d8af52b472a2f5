"""ETH3D low-resolution two-view: grey pairs, PFM truth (+inf unknown), mask0nocc.png as in Middlebury."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pamcli.data.decoding import read_mask, read_middlebury_calibration, read_positive_disparity
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
    pictures = "two_view_training" if split == "training" else "two_view_test"
    home = root_of(root, "ETH3D", "eth3d", holds=[pictures])
    truths = home / "two_view_training_gt"
    found, unpaired = [], []
    for name, folder in folders(home / pictures).items():
        left, right = folder / "im0.png", folder / "im1.png"
        if left.is_file() and right.is_file():
            parts = {"calibration": folder / "calib.txt"}
            if split == "training":
                # Either archive may have been unpacked on top of the other one.
                beside = folder if (folder / "disp0GT.pfm").is_file() else truths / name
                parts |= {"disparity": beside / "disp0GT.pfm", "visible": beside / "mask0nocc.png"}
            found.append(Files(name, left, right, existing(parts)))
        elif left.is_file() or right.is_file():
            there, other = (left, "right") if left.is_file() else (right, "left")
            unpaired.append(f"{shown(there)} has no {other} picture")
    absent = []
    if split == "training":
        absent += absent_line("truth (two_view_training_gt)", found, lambda f: "disparity" in f.parts)
        absent += absent_line("visible pixels (mask0nocc.png)", found, lambda f: "visible" in f.parts)
    absent += absent_line("calibration (calib.txt)", found, lambda files: "calibration" in files.parts)
    return Listed(found, _truth, absent=absent, unpaired=unpaired)


def _truth(files: Files) -> Truth:
    mask, calibration = files.parts.get("visible"), files.parts.get("calibration")
    return replace(
        truth_of_both_views(files, read_positive_disparity),
        visible=read_mask(mask, 255) if mask else None,
        calibration=read_middlebury_calibration(calibration) if calibration else None,
    )
