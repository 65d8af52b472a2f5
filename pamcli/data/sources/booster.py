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
from pamcli.data.listing import Listed, Part, Tree, by_stem, folders, root_of, truths
from pamcli.data.source import SourceInfo
from pamcli.imaging.disparity_files import read_disparity


def _disparity(path: Path) -> NDArray[np.float32]:
    disparity: NDArray[np.float32] = read_disparity(path)
    return np.where(disparity == 0, np.float32(np.nan), disparity)


_PARTS = (
    *truths(_disparity, "disp_00.npy", "disp_02.npy"),
    Part("visible", "visible pixels (mask_00.png)", read_mask, "mask_00.png"),
)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "booster_gt", "Booster", "booster", holds=[split]) / split / "balanced"
    tree = Tree(_PARTS if split == "train" else ())
    for scene, folder in folders(home).items():
        lefts, rights = (by_stem(folder / camera, (".png",)) for camera in ("camera_00", "camera_02"))
        tree.add_all(lefts, rights, folder, scene)
    return tree.listed()


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
