"""Booster (Bologna), balanced stereo: a folder a scene, several exposures of one geometry, truth in NumPy.

<split>/balanced/<scene>/camera_00 and camera_02 hold the left and right pictures, paired by name; disp_00.npy
and disp_02.npy the truths, 0 = unknown; mask_00.png is not 0 where both cameras see a pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.decoding import read_mask
from pamcli.data.listing import Listed, Part, by_stem, existing, folders, paired, root_of, truths
from pamcli.data.source import Files, SourceInfo
from pamcli.imaging.disparity_files import read_disparity


def _disparity(path: Path) -> NDArray[np.float32]:
    disparity: NDArray[np.float32] = read_disparity(path)
    return np.where(disparity == 0, np.float32(np.nan), disparity)


_PARTS = (
    *truths(_disparity, "disp_00.npy", "disp_02.npy"),
    Part("visible", "visible pixels (mask_00.png)", read_mask),
)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "booster_gt", "Booster", "booster", holds=[split]) / split / "balanced"
    found: list[Files] = []
    unpaired: list[str] = []
    for scene, folder in folders(home).items():
        lefts, rights = (by_stem(folder / camera, (".png",)) for camera in ("camera_00", "camera_02"))
        parts = existing(
            disparity=folder / "disp_00.npy",
            right_disparity=folder / "disp_02.npy",
            visible=folder / "mask_00.png",
        )
        found += [
            Files(f"{scene}/{stem}", left, right, parts)
            for stem, left, right in paired(lefts, rights, unpaired)
        ]
    return Listed(found, _PARTS if split == "train" else (), unpaired=unpaired)


INFO = SourceInfo(
    "booster",
    "Booster, balanced stereo: transparent and mirroring things",
    ("train", "test"),
    (
        "train/balanced/Bathroom/camera_00/im0.png",
        "train/balanced/Bathroom/camera_02/im0.png",
        "train/balanced/Bathroom/disp_00.npy, disp_02.npy, mask_00.png",
    ),
    open_source,
    unverified="all of it",
)
