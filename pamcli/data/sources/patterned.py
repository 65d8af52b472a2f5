"""Declare photographed data sets whose files match path patterns (see also `rendered`)."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data import decoding
from pamcli.data.decoding import read_levels, read_mask, read_rectified_calibration
from pamcli.data.listing import Part, Patterns, truths
from pamcli.data.source import Key
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity

_PICTURE = f"(?:{'|'.join(IMAGE_SUFFIXES)})"


def _zero_unknown(path: Path) -> NDArray[np.float32]:
    disparity = read_disparity(path)
    return np.where(disparity == 0, np.float32(np.nan), disparity)


def _materials(path: Path) -> dict[str, Any]:
    levels = read_levels(path)
    return {"masks": {f"class-{number}": levels == number for number in range(4)}}


# Ground truth has the full size, 4112x3008; mask_cat.png: material classes 0 (easy) to 3 (hard).
BOOSTER = Patterns(
    "{split}/balanced/*/camera_00/*.png",
    "{split}/balanced/*/camera_02/*.png",
    (
        *truths(_zero_unknown, "{split}/balanced/{0}/disp_00.npy", "{split}/balanced/{0}/disp_02.npy"),
        Part("visible", "visible pixels (mask_00.png)", read_mask, "{split}/balanced/{0}/mask_00.png"),
        Part("masks", "materials (mask_cat.png)", _materials, "{split}/balanced/{0}/mask_cat.png"),
    ),
    tops=("booster_gt", "Booster", "booster"),
    labelled="train",
    sizes={"F": 1, "H": 2, "Q": 4},
).row(
    "booster",
    "Booster, balanced stereo: transparent and mirroring things",
    ("train", "test"),
    (
        "train/balanced/Bathroom/camera_00/im0.png",
        "train/balanced/Bathroom/camera_02/im0.png",
        "train/balanced/Bathroom/disp_00.npy, disp_02.npy, mask_00.png, mask_cat.png",
    ),
    (Key("size", "pictures of the full size, or made half or a quarter as large", ("F", "H", "Q"), "F"),),
    unverified="the classes of materials",
    scene="(.+)/[^/]+",
)

# Grey pairs, PFM ground truth (+inf unknown), mask0nocc.png as in Middlebury. Both archives may be unpacked
# into the same folder.
ETH3D = Patterns(
    "two_view_{split}/*/im0.png",
    "two_view_{split}/*/im1.png",
    (
        Part(
            "disparity",
            "truth (two_view_training_gt)",
            decoding.read_positive_disparity,
            "two_view_training/{0}/disp0GT.pfm|two_view_training_gt/{0}/disp0GT.pfm",
        ),
        Part(
            "visible",
            "visible pixels (mask0nocc.png)",
            partial(read_mask, white=255),
            "two_view_training/{0}/mask0nocc.png|two_view_training_gt/{0}/mask0nocc.png",
        ),
        Part(
            "calibration",
            "calibration (calib.txt)",
            read_rectified_calibration,
            "two_view_{split}/{0}/calib.txt",
        ),
    ),
    tops=("ETH3D", "eth3d"),
    labelled="training",
).row(
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
    unverified="the names of folders and files",
    scene=r"(.+)_\d+[ls]",
)

HOLOPIX50K = Patterns(
    f"{{split}}/left/(.+?)(?:_left)?{_PICTURE}",
    f"{{split}}/right/(.+?)(?:_right)?{_PICTURE}",
    tops=("Holopix50k",),
).row(
    "holopix50k",
    "Holopix50k, pictures of phones with two cameras; no truth",
    ("train", "val", "test"),
    ("train/left/NAME_left.jpg", "train/right/NAME_right.jpg"),
    unverified="the names of the pictures",
)

# The publisher's README states 100 levels per px, 0 = unknown; other code divides by 1024 or 256. train is
# split into part1, part2 ...
INSTEREO2K = Patterns(
    "{split}/**/left.png",
    "{split}/**/right.png",
    truths(
        partial(decoding.read_scaled_disparity, levels_per_pixel=100),
        "{split}/{0}/left_disp.png",
        "{split}/{0}/right_disp.png",
    ),
    tops=("InStereo2k", "InStereo2K"),
).row(
    "instereo2k",
    "InStereo2K, indoor scenes",
    ("train", "test"),
    (
        "train/part1/000000/left.png",
        "train/part1/000000/right.png",
        "train/part1/000000/left_disp.png, right_disp.png",
    ),
    unverified="the names of folders and files",
    scene="(.+)",
)
