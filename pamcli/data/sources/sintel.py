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
from pamcli.data.listing import (
    Files,
    Listed,
    Truth,
    absent_line,
    by_stem,
    existing,
    folders,
    root_of,
    unpaired_lines,
)
from pamcli.errors import InputError
from pamcli.files.finding import shown
from pamcli.imaging.images import read_picture


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "Sintel", "MPI-Sintel-stereo-training", holds=["training"]) / "training"
    render = keys.get("pass", "final")
    found: list[Files] = []
    unpaired: list[str] = []
    left_scenes, right_scenes = folders(home / f"{render}_left"), folders(home / f"{render}_right")
    for scene in left_scenes.keys() | right_scenes.keys():
        lefts, rights = (by_stem(home / f"{render}_{side}" / scene, (".png",)) for side in ("left", "right"))
        unpaired += unpaired_lines(lefts, rights)
        for frame in lefts.keys() & rights.keys():
            parts = {
                "disparity": home / "disparities" / scene / f"{frame}.png",
                "occlusions": home / "occlusions" / scene / f"{frame}.png",
                "outofframe": home / "outofframe" / scene / f"{frame}.png",
            }
            found.append(Files(f"{scene}/{frame}", lefts[frame], rights[frame], existing(parts)))
    absent = absent_line("truth (disparities)", found, lambda files: "disparity" in files.parts)
    absent += absent_line("occluded pixels (occlusions)", found, lambda files: "occlusions" in files.parts)
    absent += absent_line("pixels out of frame (outofframe)", found, lambda f: "outofframe" in f.parts)
    return Listed(found, _truth, absent=absent, unpaired=unpaired)


def _truth(files: Files) -> Truth:
    parts = files.parts
    visible = None
    if "occlusions" in parts and "outofframe" in parts:
        visible = ~(read_mask(parts["occlusions"]) | read_mask(parts["outofframe"]))
    return Truth(_disparity(parts["disparity"]) if "disparity" in parts else None, visible=visible)


def _disparity(path: Path) -> NDArray[np.float32]:
    pixels = read_picture(path).pixels
    if pixels.dtype != np.uint8:
        raise InputError(f"{shown(path)} is no disparity of Sintel: it has 16 bits a channel, not 8")
    return pixels.astype(np.float32) @ np.array([4, 1 / 64, 1 / 16384], np.float32)
