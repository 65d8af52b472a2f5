"""KITTI 2012 and 2015 stereo (readme.txt of the two development kits).

16-bit PNG truth, 256 levels a pixel, 0 = unknown. "occ" holds every pixel that was measured, "noc" those
whose match lies inside the other picture. Benchmarks are computed on frame 10 of each sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.decoding import read_mask, read_rectified_calibration
from pamcli.data.listing import Listed, Part, Tree, by_stem, root_of
from pamcli.data.source import Key, SourceInfo
from pamcli.imaging.disparity_files import read_disparity

_SPLITS = ("training", "testing")


def _known(path: Path) -> NDArray[np.bool_]:
    # Says nothing where "occ" knows nothing either: there it is False, and no truth is compared.
    known: NDArray[np.bool_] = np.isfinite(read_disparity(path))
    return known


def open_2012(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    folder = root_of(root, "data_stereo_flow", "Kitti2012", "KITTI2012", holds=_SPLITS) / split
    color = (folder / "colored_0").is_dir() or (folder / "colored_1").is_dir()
    views = ("colored_0", "colored_1") if color else ("image_0", "image_1")
    cameras = (2, 3) if color else (0, 1)
    grey = [] if color or not (folder / "image_0").is_dir() else ["no colour pictures (colored_0, colored_1)"]
    return _opened(folder, views, ("disp_occ", "disp_noc", "", "calib"), cameras, keys, grey)


def open_2015(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    folder = root_of(root, "data_scene_flow", "Kitti2015", "KITTI2015", holds=_SPLITS) / split
    truths = ("disp_occ_0", "disp_noc_0", "obj_map", "calib_cam_to_cam")
    return _opened(folder, ("image_2", "image_3"), truths, (2, 3), keys, [])


def _opened(
    folder: Path,
    views: tuple[str, str],
    beside: tuple[str, str, str, str],
    cameras: tuple[int, int],
    keys: Mapping[str, str],
    absent: list[str],
) -> Listed:
    """beside: the folders of occ, noc, object maps ("" = there are none), and calibration."""
    occ, noc, foreground, calibration = beside
    of, read = "/{}_10.png", partial(read_rectified_calibration, cameras=cameras)
    parts = [Part("calibration", f"calibration ({calibration})", read, calibration + "/{}.txt")]
    if folder.name == "training":
        objects = Part("foreground", f"object maps ({foreground})", read_mask, foreground + of)
        parts = [
            Part("occ", f"truth of all pixels ({occ})", None, occ + of),
            Part("noc", f"truth of visible pixels ({noc})", None, noc + of),
            *([objects] if foreground else []),
            Part("disparity", read=read_disparity),
            Part("visible", "", _known, noc + of),
            *parts,
        ]
    tree = Tree(parts)
    lefts, rights = (by_stem(folder / view, (".png",), "_10") for view in views)
    tree.add_all(lefts, rights, folder, ending="_10")
    for files in tree.files:
        # Where only one of the two maps is there, it is the truth; `missing` names those pairs.
        order = ("occ", "noc") if keys.get("truth", "occ") == "occ" else ("noc", "occ")
        if truth := [files.parts[name] for name in order if name in files.parts]:
            files.parts["disparity"] = truth[0]
    return tree.listed(absent)


_TRUTH = Key("truth", "all measured pixels or the visible ones", ("occ", "noc"), "occ")

INFO_2012 = SourceInfo(
    "kitti2012",
    "KITTI 2012 stereo",
    _SPLITS,
    (
        "training/colored_0/000000_10.png  (or the grey image_0, image_1)",
        "training/colored_1/000000_10.png",
        "training/disp_occ/000000_10.png",
        "training/disp_noc/000000_10.png",
        "training/calib/000000.txt",
    ),
    open_2012,
    (_TRUTH,),
    unverified="the names of colour pictures and of the calibration",
)

INFO_2015 = SourceInfo(
    "kitti2015",
    "KITTI 2015 stereo",
    _SPLITS,
    (
        "training/image_2/000000_10.png",
        "training/image_3/000000_10.png",
        "training/disp_occ_0/000000_10.png",
        "training/disp_noc_0/000000_10.png",
        "training/obj_map/000000_10.png",
        "training/calib_cam_to_cam/000000.txt",
    ),
    open_2015,
    (_TRUTH,),
    unverified="the names of object maps and of the calibration",
)
