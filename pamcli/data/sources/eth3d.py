"""ETH3D low-resolution two-view: grey pairs, PFM truth (+inf unknown), mask0nocc.png as in Middlebury."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pamcli.data.decoding import read_mask, read_positive_disparity, read_rectified_calibration
from pamcli.data.listing import Listed, Part, both_there, existing, folders, root_of, truths
from pamcli.data.source import Files, SourceInfo

_TRUTH = (
    *truths(read_positive_disparity, "two_view_training_gt"),
    Part("visible", "visible pixels (mask0nocc.png)", partial(read_mask, white=255)),
)
_CALIBRATION = Part("calibration", "calibration (calib.txt)", read_rectified_calibration)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    pictures = "two_view_training" if split == "training" else "two_view_test"
    home = root_of(root, "ETH3D", "eth3d", holds=[pictures])
    found: list[Files] = []
    unpaired: list[str] = []
    for name, folder in folders(home / pictures).items():
        left, right = folder / "im0.png", folder / "im1.png"
        if both_there(left, right, unpaired):
            # Either archive may have been unpacked on top of the other one.
            apart = not (folder / "disp0GT.pfm").is_file()
            truth = home / "two_view_training_gt" / name if apart else folder
            parts = existing(
                calibration=folder / "calib.txt",
                disparity=truth / "disp0GT.pfm",
                visible=truth / "mask0nocc.png",
            )
            found.append(Files(name, left, right, parts))
    parts_read = (*(_TRUTH if split == "training" else ()), _CALIBRATION)
    return Listed(found, parts_read, unpaired=unpaired)


INFO = SourceInfo(
    "eth3d",
    "ETH3D low-resolution two-view",
    ("training", "test"),
    (
        "two_view_training/delivery_area_1l/im0.png",
        "two_view_training/delivery_area_1l/im1.png",
        "two_view_training/delivery_area_1l/calib.txt",
        "two_view_training_gt/delivery_area_1l/disp0GT.pfm, mask0nocc.png",
        "two_view_test/lakeside_1l/im0.png, im1.png",
    ),
    open_source,
    unverified="the names of folders and files",
)
