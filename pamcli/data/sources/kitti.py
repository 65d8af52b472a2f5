"""KITTI 2012 and 2015 stereo (readme.txt of the two development kits).

16-bit PNG truth, 256 levels a pixel, 0 = unknown. "occ" holds every pixel that was measured, "noc" those
whose match lies inside the other picture. Benchmarks are computed on frame 10 of each sequence.
"""

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


def _opened(year: int, root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    old = year == 2012
    archive, of = "data_stereo_flow" if old else "data_scene_flow", "/{}_10.png"
    folder = root_of(root, archive, f"Kitti{year}", f"KITTI{year}", holds=_SPLITS) / split
    grey = old and not any((folder / f"colored_{view}").is_dir() for view in (0, 1))
    views = [f"image_{view}" for view in ((0, 1) if grey else (2, 3))]
    if old and not grey:
        views = ["colored_0", "colored_1"]
    occ, noc, calibration = (
        ("disp_occ", "disp_noc", "calib") if old else ("disp_occ_0", "disp_noc_0", "calib_cam_to_cam")
    )
    read = partial(read_rectified_calibration, cameras=(0, 1) if grey else (2, 3))
    parts = [Part("calibration", f"calibration ({calibration})", read, calibration + "/{}.txt")]
    if split == "training":
        parts = [
            Part("occ", f"truth of all pixels ({occ})", None, occ + of),
            Part("noc", f"truth of visible pixels ({noc})", None, noc + of),
            *([] if old else [Part("foreground", "object maps (obj_map)", read_mask, "obj_map" + of)]),
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
    colourless = grey and (folder / "image_0").is_dir()
    return tree.listed(["no colour pictures (colored_0, colored_1)"] if colourless else [])


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
    partial(_opened, 2012),
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
    partial(_opened, 2015),
    (_TRUTH,),
    unverified="the names of object maps and of the calibration",
)
