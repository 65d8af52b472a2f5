"""ETH3D low-resolution two-view: grey pairs, PFM truth (+inf unknown), mask0nocc.png as in Middlebury."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pamcli.data.decoding import read_mask, read_positive_disparity, read_rectified_calibration
from pamcli.data.listing import Listed, Part, Tree, folders, root_of
from pamcli.data.source import SourceInfo

_TRUTH = (
    Part("disparity", "truth (two_view_training_gt)", read_positive_disparity, "disp0GT.pfm"),
    Part("visible", "visible pixels (mask0nocc.png)", partial(read_mask, white=255), "mask0nocc.png"),
)
_CALIBRATION = Part("calibration", "calibration (calib.txt)", read_rectified_calibration)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    pictures = "two_view_training" if split == "training" else "two_view_test"
    home = root_of(root, "ETH3D", "eth3d", holds=[pictures])
    tree = Tree((*(_TRUTH if split == "training" else ()), _CALIBRATION))
    for name, folder in folders(home / pictures).items():
        # Either archive may have been unpacked on top of the other one.
        apart = not (folder / "disp0GT.pfm").is_file()
        truth = home / "two_view_training_gt" / name if apart else folder
        views = folder / "im0.png", folder / "im1.png"
        tree.add(name, *views, truth, parts={"calibration": folder / "calib.txt"})
    return tree.listed()


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
