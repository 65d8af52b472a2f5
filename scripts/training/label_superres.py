"""Upscale crops by teacher networks and store them as pairs, for `distil_superres.py --stored`.

    python scripts/training/label_superres.py TEACHER.pt... --images FOLDER=SHARE:SHARPNESS... -o TARGETS

A teacher of `trace_teacher.py` upscales images (1, 6, 96, 320), left and right view in RGB. FOLDER has pairs
in `left` and `right`, or photographs, which are paired with themselves, warped by smooth disparities. SHARE
is the share of the crops that come from it. Images reduced by the factor SHARPNESS are sharp, without traces
of compression. Crops of images that are reduced by less than 4 have no ground truth; to that of others,
targets are mixed by a tenth. Each crop has a random teacher and a random flip: many crops teach more than
exact ones. A further call with another --first adds crops. The targets, reduced by 4, are the inputs.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from distil_superres import IMAGE_SHARE, flip, join_views
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from train_superres_on_gpu import SUFFIXES

from pamcli.imaging.resize import imresize, imresize_to
from pamcli.inference.images import Pixels
from pamcli.inference.upscaler import FLIPS
from pamcli.networks.bicubic import Consistency

SCALE = 4
SIZE = 96, 320  # rows and columns that the teachers upscale
SIZES = 0.7, 1.6  # of the inputs, relative to the sharp image reduced by the scale
SMALLEST = 66, 180  # rows and columns of an input
FARTHEST = 56  # largest mean disparity of a photograph, px
UNEVENNESS = 12  # largest deviation from it, px


def main() -> None:
    """Draw, upscale, and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("teachers", nargs="+", type=Path)
    parser.add_argument("--images", nargs="+", required=True, metavar="FOLDER=SHARE:SHARPNESS")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--first", type=int, default=0, help="number of the first crop, and random seed")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    teachers = [
        torch.jit.load(path, given.device)  # type: ignore[no-untyped-call]
        for path in given.teachers
    ]
    groups = [parse_group(word) for word in given.images]
    for side in ("left", "right"):
        (given.output / side).mkdir(parents=True, exist_ok=True)
    for number in range(given.first, given.first + given.count):
        chance = random.Random(number)
        name, views, sharpness = draw(groups, chance)
        with torch.inference_mode():
            target = label(chance.choice(teachers), views, sharpness, chance, torch.device(given.device))
        pixels = (255 * target).round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous().numpy()
        files = [given.output / side / f"{number:05}-{name}.webp" for side in ("left", "right")]
        for file, view in zip(files, pixels, strict=True):
            Image.fromarray(view).save(file.with_suffix(".part"), "WEBP", lossless=True, method=0)
        for file in files:  # at once, so that a training may list them at any time
            file.with_suffix(".part").replace(file)
        print(number, name, flush=True)


def parse_group(word: str) -> tuple[list[Path], float, float]:
    """Return paths of photographs or left images, share and sharpness of FOLDER=SHARE:SHARPNESS."""
    folder, _, how = word.rpartition("=")
    share, _, sharpness = how.partition(":")
    left = Path(folder) / "left"
    paths = sorted((left if left.is_dir() else Path(folder)).rglob("*"))
    return [path for path in paths if path.suffix in SUFFIXES], float(share), float(sharpness or 1)


def draw(
    groups: list[tuple[list[Path], float, float]], chance: random.Random
) -> tuple[str, list[Pixels], float]:
    """Draw a pair of images; return its name and sharpness, too."""
    ((paths, _, sharpness),) = chance.choices(groups, [share for _, share, _ in groups])
    path = chance.choice(paths)
    left = np.asarray(Image.open(path).convert("RGB"))
    if path.parent.name == "left":
        right = np.asarray(Image.open(path.parents[1] / "right" / path.name).convert("RGB"))
    else:
        left = left if left.shape[0] < left.shape[1] else left.transpose(1, 0, 2)
        right = warp(left, chance)
    return path.stem, [left, right], sharpness


def warp(left: Pixels, chance: random.Random) -> Pixels:
    """Make the right image of a photograph by a smooth disparity."""
    height, width = left.shape[:2]
    noise = np.array([[chance.uniform(-1, 1) for _ in range(5)] for _ in range(3)], np.float32)
    smooth = chance.uniform(0, UNEVENNESS) * cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    disparity = chance.uniform(UNEVENNESS, FARTHEST) + smooth
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    made: NDArray[Any] = cv2.remap(
        np.ascontiguousarray(left), columns + disparity, rows, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT
    )
    return made


def label(
    teacher: nn.Module, views: list[Pixels], sharpness: float, chance: random.Random, device: torch.device
) -> Tensor:
    """Upscale a random crop, as large as the teacher takes it: (2, 3, H, W) in [0, 1]."""
    sides = views[0].shape[:2]
    least = max(small / side for small, side in zip(SMALLEST, sides, strict=True))
    factor = min(1, max(least, chance.uniform(*SIZES) * sharpness / SCALE))
    height, width = (round(factor * side) for side in sides)
    high = None
    if SCALE * factor <= sharpness:
        high = [imresize_to(view, SCALE * width, SCALE * height) for view in views]
    low = [
        imresize_to(view, width, height) if high is None else imresize(high[side], 1 / SCALE)
        for side, view in enumerate(views)
    ]
    starts = [
        chance.randint(0, max(0, side - limit)) for side, limit in zip((height, width), SIZE, strict=True)
    ]
    across, down = chance.choice(FLIPS)

    def cut(images: list[Pixels], times: int) -> Tensor:
        rows, columns = (
            slice(times * start, times * (start + limit)) for start, limit in zip(starts, SIZE, strict=True)
        )
        return flip(join_views([image[rows, columns] for image in images]), across, down)

    crop = cut(low, 1)
    rows, columns = crop.shape[2:]
    padded = F.pad(crop, (0, SIZE[1] - columns, 0, SIZE[0] - rows), mode="replicate").view(1, 6, *SIZE)
    upscaled = teacher(padded.to(device)).view(2, 3, SCALE * SIZE[0], SCALE * SIZE[1]).cpu()
    target: Tensor = Consistency(SCALE)(upscaled[..., : SCALE * rows, : SCALE * columns].clone(), crop)
    return target if high is None else target.lerp(cut(high, SCALE), IMAGE_SHARE)


if __name__ == "__main__":
    main()
