"""Booster (Bologna), balanced stereo: a folder a scene, several exposures of one geometry, truth in NumPy.

<split>/balanced/<scene>/camera_00 and camera_02 hold the left and right pictures, paired by name; disp_00.npy
and disp_02.npy the truths, 0 = unknown; mask_00.png is not 0 where both cameras see a pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.decoding import read_mask
from pamcli.data.listing import (
    Files,
    Listed,
    Truth,
    absent_line,
    by_stem,
    existing,
    folders,
    root_of,
    truth_of_both_views,
    unpaired_lines,
)
from pamcli.imaging.disparity_files import read_disparity


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "booster_gt", "Booster", "booster", holds=[split]) / split / "balanced"
    found: list[Files] = []
    unpaired: list[str] = []
    for scene, folder in folders(home).items():
        lefts, rights = (by_stem(folder / camera, (".png",)) for camera in ("camera_00", "camera_02"))
        unpaired += unpaired_lines(lefts, rights)
        parts = existing(
            {
                "disparity": folder / "disp_00.npy",
                "right_disparity": folder / "disp_02.npy",
                "visible": folder / "mask_00.png",
            }
        )
        found += [
            Files(f"{scene}/{stem}", lefts[stem], rights[stem], parts)
            for stem in lefts.keys() & rights.keys()
        ]
    absent = []
    if split == "train":
        absent += absent_line("truth (disp_00.npy)", found, lambda files: "disparity" in files.parts)
        absent += absent_line("right truth (disp_02.npy)", found, lambda f: "right_disparity" in f.parts)
        absent += absent_line("visible pixels (mask_00.png)", found, lambda f: "visible" in f.parts)
    return Listed(found, _truth, absent=absent, unpaired=unpaired)


def _truth(files: Files) -> Truth:
    mask = files.parts.get("visible")
    return replace(truth_of_both_views(files, _disparity), visible=read_mask(mask) if mask else None)


def _disparity(path: Path) -> NDArray[np.float32]:
    disparity: NDArray[np.float32] = read_disparity(path)
    return np.where(disparity == 0, np.float32(np.nan), disparity)
