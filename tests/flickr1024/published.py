"""Small pairs in the layout of Flickr1024, and a plain transcription of how its authors cut patches."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pamcli.flickr1024.rectify_stereogram import RectifiedPair, StereogramError
from pamcli.imaging.resize import imresize

LARGE = (285, 123)  # width, height: six patches at x2
SMALL = (241, 101)  # two patches at x2


def views(size: tuple[int, int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Left and right, (H, W, 3) uint8: coarse noise and fine noise, the right one shifted by 6 px."""
    width, height = size
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (8, 16, 3), np.uint8)).resize((width + 6, height))
    fine = random.integers(-20, 21, (height, width + 6, 3))
    scene = np.clip(np.asarray(coarse) + fine, 0, 255).astype(np.uint8)
    return scene[:, :-6].copy(), scene[:, 6:].copy()


def png(picture: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "png")
    return out.getvalue()


def split_stereogram(picture: np.ndarray, layout: str, infinity: str) -> RectifiedPair:
    """Stand in for `rectify_stereogram`: cut images in two, cross-eyed ones unless parallel."""
    if not picture.any():
        raise StereogramError("it is black")
    right, left = np.hsplit(picture, 2)
    if layout == "parallel":
        left, right = right, left
    values: dict[str, Any] = dict.fromkeys(RectifiedPair.__dataclass_fields__, 0)
    values |= {"left": left, "right": right, "layout": "cross", "infinity": infinity}
    values |= {"certainty": np.float32(0.75), "vertical_offset": 1.25, "shift": np.int64(7)}
    return RectifiedPair(**values)


def tree(root: Path, sizes: Mapping[str, tuple[int, int]]) -> Path:
    """NAME_L.png and NAME_R.png below a folder, NAME with folders in it perhaps; each another image."""
    for name, data in files(sizes).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def files(sizes: Mapping[str, tuple[int, int]]) -> dict[str, bytes]:
    """The files of `tree` by their names."""
    found = {}
    for name, size in sizes.items():
        for side, view in zip("LR", views(size, seed_of(name)), strict=True):
            found[f"{name}_{side}.png"] = png(view)
    return found


def seed_of(name: str) -> int:
    return int.from_bytes(name.rpartition("/")[2].encode()[:6], "big")


def archive(path: Path, contents: Mapping[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in contents.items():
            packed.writestr(name, data)
    return path


def authors_patches(
    left: np.ndarray, right: np.ndarray, scale: int, halved: bool = False
) -> list[tuple[np.ndarray, ...]]:
    """hr0, hr1, lr0, lr1 of each patch, in order; loops and bounds count from 1 as the script's."""
    if halved:
        left, right = imresize(left, 1 / 2), imresize(right, 1 / 2)
    high = [view[: len(view) // scale * scale, : view.shape[1] // scale * scale] for view in (left, right)]
    low = [imresize(view, 1 / scale) for view in high]
    patches = []
    x = 3
    while x <= low[0].shape[0] - 33:
        y = 3
        while y <= low[0].shape[1] - 93:
            first_row, first_column = (x - 1) * scale + 1, (y - 1) * scale + 1
            high_patch = [
                view[first_row - 1 : (x + 29) * scale, first_column - 1 : (y + 89) * scale] for view in high
            ]
            low_patch = [view[x - 1 : x + 29, y - 1 : y + 89] for view in low]
            patches.append((*high_patch, *low_patch))
            y += 20
        x += 20
    return patches
