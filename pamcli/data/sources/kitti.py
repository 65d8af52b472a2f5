"""Read KITTI 2012 and 2015 stereo (readme.txt of the two development kits).

Ground truth is 16-bit PNG, 256 levels per px, 0 = unknown. "occ" holds all measured pixels, "noc" those
whose match lies inside the right image. Benchmarks are computed on frame 10 of each sequence.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.decoding import read_mask, read_rectified_calibration
from pamcli.data.listing import Listed, Part, Patterns
from pamcli.data.source import Key, SourceInfo
from pamcli.imaging.disparity_files import read_disparity

_KEYS = (Key("truth", "all measured pixels or the visible ones", ("occ", "noc"), "occ"),)


def _known(path: Path) -> NDArray[np.bool_]:
    # Pixels unknown in "occ" are False too, but have no ground truth to compare.
    return np.asarray(np.isfinite(read_disparity(path)))


def _patterns(
    views: tuple[str, str], calibration: str, cameras: tuple[int, int], tops: tuple[str, ...], *others: Part
) -> Patterns:
    """Return the patterns for folders of images and calibrations, and parts of this set alone."""
    of = "_0" if "cam" in calibration else ""
    occ, noc = (f"training/disp_{truth}{of}/{{0}}_10.png" for truth in ("occ", "noc"))
    parts = (
        Part("occ", f"truth of all pixels (disp_occ{of})", None, occ),
        Part("noc", f"truth of visible pixels (disp_noc{of})", None, noc),
        *others,
        # If only one of the maps exists, it is the ground truth; `missing` lists those pairs.
        Part("disparity", "", read_disparity, f"training/disp_{{truth}}{of}/{{0}}_10.png|{occ}|{noc}"),
        Part("visible", "", _known, noc),
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
_COLOUR_2012 = _patterns(("colored_0", "colored_1"), "calib", (2, 3), _TOPS_2012)
_NO_COLOUR = Part("colour", "colour pictures (colored_0, colored_1)")
_GREY_2012 = _patterns(("image_0", "image_1"), "calib", (0, 1), _TOPS_2012, _NO_COLOUR)


def _open_2012(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    colour = _COLOUR_2012.open(_KEYS, root, split, keys)
    return colour if len(colour) or colour.unpaired else _GREY_2012.open(_KEYS, root, split, keys)


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
    _KEYS,
    unverified="the names of colour pictures and of the calibration",
)

KITTI2015 = _patterns(
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
    _KEYS,
    unverified="the names of object maps and of the calibration",
)
