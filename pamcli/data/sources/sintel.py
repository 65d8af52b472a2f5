"""MPI Sintel stereo (the README of its training archive).

Disparity is spread over the channels of an 8-bit PNG: 4 R + G / 64 + B / 16384 pixels. Two masks, not 0
where the right view does not see a pixel: `occlusions` (hidden) and `outofframe` (beyond its border).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.decoding import read_mask
from pamcli.data.listing import Listed, Part, Tree, by_stem, folders, root_of
from pamcli.data.source import Key, SourceInfo
from pamcli.errors import InputError
from pamcli.files.finding import shown
from pamcli.imaging.images import read_picture


def _disparity(path: Path) -> NDArray[np.float32]:
    pixels = read_picture(path).pixels
    if pixels.dtype != np.uint8:
        raise InputError(f"{shown(path)} is no disparity of Sintel: it has 16 bits a channel, not 8")
    return pixels.astype(np.float32) @ np.array([4, 1 / 64, 1 / 16384], np.float32)


def _visible(occlusions: Path) -> NDArray[np.bool_]:
    out_of_frame = occlusions.parents[2] / "outofframe" / occlusions.parent.name / occlusions.name
    return ~(read_mask(occlusions) | read_mask(out_of_frame))


_PARTS = (
    Part("disparity", "truth (disparities)", _disparity, "disparities/{}.png"),
    Part("occlusions", "occluded pixels (occlusions)", None, "occlusions/{}.png"),
    Part("outofframe", "pixels out of frame (outofframe)", None, "outofframe/{}.png"),
    Part("visible", "", _visible, "occlusions/{}.png"),
)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "Sintel", "MPI-Sintel-stereo-training", holds=["training"]) / "training"
    lefts, rights = (
        {
            f"{scene}/{frame}": path
            for scene, folder in folders(home / f"{keys.get('pass', 'final')}_{side}").items()
            for frame, path in by_stem(folder, (".png",)).items()
        }
        for side in ("left", "right")
    )
    tree = Tree(_PARTS)
    tree.add_all(lefts, rights, home)
    for files in tree.files:
        if "outofframe" not in files.parts:
            files.parts.pop("visible", None)
    return tree.listed()


INFO = SourceInfo(
    "sintel",
    "MPI Sintel stereo",
    ("training",),
    (
        "training/final_left/alley_1/frame_0001.png",
        "training/final_right/alley_1/frame_0001.png",
        "training/disparities/alley_1/frame_0001.png",
        "training/occlusions/alley_1/frame_0001.png",
        "training/outofframe/alley_1/frame_0001.png",
    ),
    open_source,
    (Key("pass", "rendered without or with blur and haze", ("clean", "final"), "final"),),
)
