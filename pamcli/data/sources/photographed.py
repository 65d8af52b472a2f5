"""Declare photographed data sets whose files match path patterns (see also `rendered`).

KITTI (readme.txt of both development kits): ground truth is 16-bit PNG, 256 levels per px, 0 = unknown. "occ"
contains all measured pixels, "noc" those whose match lies inside the right image. Benchmarks use frame 10 of
each sequence.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.listing import (
    Listed,
    Part,
    Patterns,
    make_truth_parts,
    read_known_pixels,
    read_levels,
    read_mask,
    read_positive_disparity,
    read_rectified_calibration,
    read_scaled_disparity,
)
from pamcli.data.source import Key, SourceInfo
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity

_IMAGE = f"(?:{'|'.join(IMAGE_SUFFIXES)})"


def _read_booster(path: Path) -> NDArray[np.float32]:
    disparity = read_disparity(path)
    return np.where(disparity == 0, np.float32(np.nan), disparity)


def _read_materials(path: Path) -> dict[str, Any]:
    levels = read_levels(path)
    return {"masks": {f"class-{number}": levels == number for number in range(4)}}


# Ground truth has the full size, 4112x3008; mask_cat.png: material classes 0 (easy) to 3 (hard).
BOOSTER = Patterns(
    "{split}/balanced/*/camera_00/*.png",
    "{split}/balanced/*/camera_02/*.png",
    (
        *make_truth_parts(
            _read_booster, "{split}/balanced/{0}/disp_00.npy", "{split}/balanced/{0}/disp_02.npy"
        ),
        Part("visible", "visible pixels (mask_00.png)", read_mask, "{split}/balanced/{0}/mask_00.png"),
        Part("masks", "materials (mask_cat.png)", _read_materials, "{split}/balanced/{0}/mask_cat.png"),
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
    (Key("size", "images of full, half or quarter size", ("F", "H", "Q"), "F"),),
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
            "ground truth (two_view_training_gt)",
            read_positive_disparity,
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
    f"{{split}}/left/(.+?)(?:_left)?{_IMAGE}",
    f"{{split}}/right/(.+?)(?:_right)?{_IMAGE}",
    tops=("Holopix50k",),
).row(
    "holopix50k",
    "Holopix50k, images of phones with two cameras; no ground truth",
    ("train", "val", "test"),
    ("train/left/NAME_left.jpg", "train/right/NAME_right.jpg"),
    unverified="the names of the images",
)

# The publisher's README states 100 levels per px, 0 = unknown; other code divides by 1024 or 256. train is
# split into part1, part2 ...
INSTEREO2K = Patterns(
    "{split}/**/left.png",
    "{split}/**/right.png",
    make_truth_parts(
        partial(read_scaled_disparity, levels_per_pixel=100),
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

_KITTI_KEYS = (Key("truth", "all measured pixels or the visible ones", ("occ", "noc"), "occ"),)


def _kitti_patterns(
    views: tuple[str, str], calibration: str, cameras: tuple[int, int], tops: tuple[str, ...], *others: Part
) -> Patterns:
    """Return the patterns for folders of images and calibrations, and parts of this set alone."""
    of = "_0" if "cam" in calibration else ""
    occ, noc = (f"training/disp_{truth}{of}/{{0}}_10.png" for truth in ("occ", "noc"))
    parts = (
        Part("occ", f"ground truth of all pixels (disp_occ{of})", None, occ),
        Part("noc", f"ground truth of visible pixels (disp_noc{of})", None, noc),
        *others,
        # If only one of the maps exists, it is the ground truth; `missing` lists those pairs.
        Part("disparity", "", read_disparity, f"training/disp_{{truth}}{of}/{{0}}_10.png|{occ}|{noc}"),
        Part("visible", "", read_known_pixels, noc),
        Part(
            "calibration",
            f"calibration ({calibration})",
            partial(read_rectified_calibration, cameras=cameras),
            f"{{split}}/{calibration}/{{0}}.txt",
        ),
    )
    left, right = (f"{{split}}/{view}/*_10.png" for view in views)
    return Patterns(left, right, parts, tops, "training", name="{}_10")


_TOPS_2012 = ("data_stereo_flow", "Kitti2012", "KITTI2012")
_COLOUR_2012 = _kitti_patterns(("colored_0", "colored_1"), "calib", (2, 3), _TOPS_2012)
_NO_COLOUR = Part("colour", "colour images (colored_0, colored_1)")
_GREY_2012 = _kitti_patterns(("image_0", "image_1"), "calib", (0, 1), _TOPS_2012, _NO_COLOUR)


def _open_2012(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    colour = _COLOUR_2012.open(_KITTI_KEYS, root, split, keys)
    return colour if len(colour) or colour.unpaired else _GREY_2012.open(_KITTI_KEYS, root, split, keys)


KITTI2012 = SourceInfo(
    "kitti2012",
    "KITTI 2012 stereo",
    ("training", "testing"),
    (
        "training/colored_0/000000_10.png  (or the grey image_0, image_1)",
        "training/colored_1/000000_10.png",
        "training/disp_occ/000000_10.png",
        "training/disp_noc/000000_10.png",
        "training/calib/000000.txt",
    ),
    _open_2012,
    _KITTI_KEYS,
    unverified="the names of colour images and of the calibration",
)

KITTI2015 = _kitti_patterns(
    ("image_2", "image_3"),
    "calib_cam_to_cam",
    (2, 3),
    ("data_scene_flow", "Kitti2015", "KITTI2015"),
    Part("foreground", "object maps (obj_map)", read_mask, "training/obj_map/{0}_10.png"),
).row(
    "kitti2015",
    "KITTI 2015 stereo",
    ("training", "testing"),
    (
        "training/image_2/000000_10.png",
        "training/image_3/000000_10.png",
        "training/disp_occ_0/000000_10.png",
        "training/disp_noc_0/000000_10.png",
        "training/obj_map/000000_10.png",
        "training/calib_cam_to_cam/000000.txt",
    ),
    _KITTI_KEYS,
    unverified="the names of object maps and of the calibration",
)
