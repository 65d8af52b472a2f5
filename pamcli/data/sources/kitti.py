"""KITTI 2012 and 2015 stereo (readme.txt of the two development kits).

16-bit PNG truth, 256 levels a pixel, 0 = unknown. "occ" holds every pixel that was measured, "noc" those
whose match lies inside the other picture. Benchmarks are computed on frame 10 of each sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from pamcli.data.decoding import read_kitti_calibration, read_mask
from pamcli.data.listing import Files, Listed, Truth, absent_line, by_stem, existing, root_of, unpaired_lines
from pamcli.imaging.disparity_files import read_disparity

_SPLITS = ("training", "testing")


def open_2012(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    folder = root_of(root, "data_stereo_flow", "Kitti2012", "KITTI2012", holds=_SPLITS) / split
    color = (folder / "colored_0").is_dir() or (folder / "colored_1").is_dir()
    views = ("colored_0", "colored_1") if color else ("image_0", "image_1")
    cameras = ("P2", "P3") if color else ("P0", "P1")
    grey = [] if color or not (folder / "image_0").is_dir() else ["colour pictures (colored_0, colored_1)"]
    return _opened(folder, views, "disp_occ", "disp_noc", None, "calib", cameras, keys, grey)


def open_2015(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    folder = root_of(root, "data_scene_flow", "Kitti2015", "KITTI2015", holds=_SPLITS) / split
    views, cameras = ("image_2", "image_3"), ("P_rect_02", "P_rect_03")
    return _opened(
        folder, views, "disp_occ_0", "disp_noc_0", "obj_map", "calib_cam_to_cam", cameras, keys, []
    )


def _opened(
    folder: Path,
    views: tuple[str, str],
    occ: str,
    noc: str,
    foreground: str | None,
    calibration: str,
    cameras: tuple[str, str],
    keys: Mapping[str, str],
    lacking: list[str],
) -> Listed:
    lefts, rights = (by_stem(folder / view, (".png",), "_10") for view in views)
    found = []
    for number in lefts.keys() & rights.keys():
        parts = {
            "occ": folder / occ / f"{number}_10.png",
            "noc": folder / noc / f"{number}_10.png",
            "calibration": folder / calibration / f"{number}.txt",
        }
        if foreground:
            parts["foreground"] = folder / foreground / f"{number}_10.png"
        found.append(Files(f"{number}_10", lefts[number], rights[number], existing(parts)))
    absent = [f"no {part}" for part in lacking]
    if folder.name == "training":
        absent += absent_line(f"truth of all pixels ({occ})", found, lambda files: "occ" in files.parts)
        absent += absent_line(f"truth of visible pixels ({noc})", found, lambda files: "noc" in files.parts)
        if foreground:
            absent += absent_line(f"object maps ({foreground})", found, lambda f: "foreground" in f.parts)
    absent += absent_line(f"calibration ({calibration})", found, lambda files: "calibration" in files.parts)
    truth = partial(_truth, which=keys.get("truth", "occ"), cameras=cameras)
    return Listed(found, truth, absent=absent, unpaired=unpaired_lines(lefts, rights))


def _truth(files: Files, which: str, cameras: tuple[str, str]) -> Truth:
    # Where only one of the two maps is there, it is the truth; `missing` names those pairs.
    parts = files.parts
    order = ("occ", "noc") if which == "occ" else ("noc", "occ")
    chosen = next((name for name in order if name in parts), None)
    disparity = read_disparity(parts[chosen]) if chosen else None
    # Says nothing where "occ" knows nothing either: there it is False, and no truth is compared.
    visible = np.isfinite(read_disparity(parts["noc"])) if "noc" in parts else None
    calibration = parts.get("calibration")
    return Truth(
        disparity=disparity,
        visible=visible,
        foreground=read_mask(parts["foreground"]) if "foreground" in parts else None,
        calibration=read_kitti_calibration(calibration, *cameras) if calibration else None,
    )
