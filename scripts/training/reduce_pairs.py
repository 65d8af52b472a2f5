"""Prepare pairs for `pam train superres`: reduce images, and pair photographs with themselves, shifted.

    python scripts/training/reduce_pairs.py IMAGES FACTOR -o PAIRS

IMAGES has pairs in `left` and `right`, or photographs. Reduction removes traces of compression, which would
teach blur. A photograph becomes a pair whose disparity is a random number of whole pixels.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from train_superres_on_gpu import FARTHEST, load_views, reduce


def main() -> None:
    """Read, reduce, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("factor", type=float, help="for example 0.6; 1 keeps the size")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--smallest", default="400x140", help="omit smaller pairs, WIDTHxHEIGHT, px")
    given = parser.parse_args()
    width, height = map(int, given.smallest.split("x"))
    chance, written = random.Random(0), 0
    for name in ("left", "right"):
        (given.output / name).mkdir(parents=True)
    for views in load_views(given.images, torch.device("cpu")):
        left, right = make_pair(reduce(views, given.factor), chance)
        if left.shape[2] >= width and left.shape[1] >= height:
            for name, view in (("left", left), ("right", right)):
                pixels = view.permute(1, 2, 0).contiguous().numpy()
                Image.fromarray(pixels).save(given.output / name / f"{written:04}.png")
            written += 1
    print(f"{given.output}: {written} pairs")


def make_pair(views: Tensor, chance: random.Random) -> tuple[Tensor, Tensor]:
    """Return left and right image (3, H, W) of a pair (2, 3, H, W) or a photograph (1, 3, H, W)."""
    if len(views) == 2:
        return views[0], views[1]
    shift = chance.randint(1, FARTHEST)
    return views[0, :, :, shift:], views[0, :, :, :-shift]


if __name__ == "__main__":
    main()
