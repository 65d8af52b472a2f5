"""Prepare super-resolution pairs on a GPU machine, decoded once: with labels, mirrored, photographs.

    python scripts/training/make_superres_pairs.py PACKED TEXTURES FOLDER

PACKED and TEXTURES may be - to skip them. PACKED has `left` and `right`, optionally with labels of the left
images in `disparity` and of the mirrored pairs in `disparity_mirrored` (16-bit PNG of the same size). FOLDER
gets `real` (all pairs), `labelled` (pairs with labels, also mirrored) and `moved` (photographs of TEXTURES
paired with themselves, shifted by whole pixels, so that both images are equally sharp).
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDES = ("left", "right", "disparity")
LEAST, MOST = 3, 0.12  # smallest shift, px, and largest, as a share of the width
SMALLEST = 256  # px, longer side of a photograph that is used


def main() -> None:
    """Write all pairs, on all cores."""
    packed, textures, folder = map(Path, sys.argv[1:4])
    photos = sorted(path for path in textures.rglob("*") if path.suffix.lower() in {".webp", ".jpg", ".png"})
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        tasks = [
            pool.submit(write_pair, packed, folder, path.stem) for path in sorted((packed / "left").glob("*"))
        ]
        tasks += [
            pool.submit(shift_photograph, path, folder, f"{number:04d}") for number, path in enumerate(photos)
        ]
        for task in tasks:
            task.result()
    for kind in sorted(folder.glob("*")):
        print(f"{kind}: {len(list((kind / 'left').iterdir()))} pairs")


def write_pair(packed: Path, folder: Path, name: str) -> None:
    """Write one pair, and its labelled version."""
    left, right = (read_rgb(next((packed / side).glob(f"{name}.*"))) for side in SIDES[:2])
    write(folder / "real", name, left, right)
    write_labelled(packed / f"disparity/{name}.png", folder, left, right)
    turn = Image.Transpose.FLIP_LEFT_RIGHT
    label = packed / f"disparity_mirrored/{name}.png"
    write_labelled(label, folder, right.transpose(turn), left.transpose(turn), "-mirrored")


def write_labelled(
    label: Path, folder: Path, left: Image.Image, right: Image.Image, ending: str = ""
) -> None:
    """Write a pair with its labels, if it has any."""
    if label.exists():
        with Image.open(label) as opened:
            levels = np.asarray(opened, np.float32)
        disparity = np.where(levels > 0, levels / 256, np.inf)
        write(folder / "labelled", label.stem + ending, left, right, disparity)


def shift_photograph(path: Path, folder: Path, name: str) -> None:
    """Write a pair of a photograph and its shifted copy."""
    with Image.open(path) as opened:
        if opened.has_transparency_data or max(opened.size) < SMALLEST:
            return
    photo = read_rgb(path)
    width, height = photo.size
    by = int(np.random.default_rng(int(name)).integers(LEAST, int(MOST * width)))
    left, right = photo.crop((0, 0, width - by, height)), photo.crop((by, 0, width, height))
    write(folder / "moved", name, left, right, np.full((height, width - by), by))


def write(
    folder: Path, name: str, left: Image.Image, right: Image.Image, disparity: NDArray[Any] | None = None
) -> None:
    """Write a pair in the formats that are read fastest."""
    for side, view in zip(SIDES, (left, right), strict=False):
        (folder / side).mkdir(parents=True, exist_ok=True)
        view.save(folder / side / f"{name}.ppm")
    if disparity is not None:
        (folder / SIDES[2]).mkdir(exist_ok=True)
        np.save(folder / SIDES[2] / f"{name}.npy", disparity.astype(np.float32))


def read_rgb(path: Path) -> Image.Image:
    """Return an 8-bit RGB image."""
    with Image.open(path) as opened:
        return opened.convert("RGB")


if __name__ == "__main__":
    main()
