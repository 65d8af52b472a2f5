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
from pamcli.data.listing import Listed, Part, by_stem, existing, folders, paired, root_of, truths
from pamcli.data.source import Files, Key, SourceInfo
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
    *truths(_disparity, "disparities"),
    Part("occlusions", "occluded pixels (occlusions)"),
    Part("outofframe", "pixels out of frame (outofframe)"),
    Part("visible", read=_visible),
)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "Sintel", "MPI-Sintel-stereo-training", holds=["training"]) / "training"
    render = keys.get("pass", "final")
    found: list[Files] = []
    unpaired: list[str] = []
    left_scenes, right_scenes = folders(home / f"{render}_left"), folders(home / f"{render}_right")
    for scene in left_scenes.keys() | right_scenes.keys():
        lefts, rights = (by_stem(home / f"{render}_{side}" / scene, (".png",)) for side in ("left", "right"))
        for frame, left, right in paired(lefts, rights, unpaired):
            kinds = {"disparity": "disparities", "occlusions": "occlusions", "outofframe": "outofframe"}
            parts = existing(**{part: home / kind / scene / f"{frame}.png" for part, kind in kinds.items()})
            if "occlusions" in parts and "outofframe" in parts:
                parts["visible"] = parts["occlusions"]
            found.append(Files(f"{scene}/{frame}", left, right, parts))
    return Listed(found, _PARTS, unpaired=unpaired)


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
