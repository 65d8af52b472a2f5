"""Train PASSRnet 2 to give the mean of the results for the four flips of a pair, which has smaller errors.

    python scripts/training/distil_superres.py WEIGHTS PAIRS=SHARE... -o RESULT.safetensors

PAIRS are folders with `left` and `right`; SHARE is the share of the crops that come from one. The target is
nine tenths the mean (as with `--ensemble`) and one tenth the image itself. The finest detail of an image is
unpredictable, so it is mostly noise for the training. Errors count relative to those of the mean.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pamcli.data.open import open_data, parse_data
from pamcli.data.source import Sample, Source
from pamcli.imaging.resize import imresize, imresize_to
from pamcli.inference.images import Pixels, to_network
from pamcli.inference.upscaler import FLIPS
from pamcli.registry.load import load_network, save_network
from pamcli.training.muon import Muon

CROP = 64, 128  # rows and columns, low-resolution px
BORDER = 4  # outermost px of a crop that have no loss, low-resolution px
SMALLEST = 0.5  # lower limit of the random factor that images are reduced by
WHOLE = 0.1  # share of the images that keep their size
IMAGE_SHARE = 0.1  # of the image in the target
BATCH = 2  # crops per step
POOL, USES = 32, 3  # latest crops, from which each step draws; how often each is drawn on average
BETAS = 0.9, 0.99
WARM_UP = 20  # steps
LEAST_ERROR = 1e-5  # added to mean squared errors, for images without texture
EVERY = 20  # steps per printed line


class Crop(NamedTuple):
    """A pair of images; left and right are joined in the first axis."""

    low: Tensor  # (2, 3, H, W), input
    target: Tensor  # (2, 3, scale H, scale W)
    mean: Tensor  # (2, 3, scale H, scale W), of the flips
    error: Tensor  # (2,), mean squared error of `mean`


def main() -> None:
    """Distil and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    network, spec = load_network(given.weights)
    assert spec.scale is not None
    shares = parse_shares(given.pairs)
    crops = Crops(network, spec.scale, shares, random.Random(given.seed))
    distil(network, crops.draw_from_pool(), given.steps, given.learning_rate)
    save_network(network.state_dict(), spec, given.output)


def parse_shares(pairs: list[str]) -> dict[str, float]:
    """Parse FOLDER=SHARE words."""
    return {folder: float(share) for folder, _, share in (each.rpartition("=") for each in pairs)}


def distil(network: nn.Module, crops: Iterator[Crop], steps: int, rate: float) -> None:
    """Train all weights."""
    network.requires_grad_(requires_grad=True)
    optimiser = Muon(network.parameters(), lr=rate, betas=BETAS, weight_decay=0)
    distance = 0.0
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * step / steps)) / 2
        optimiser.zero_grad()
        for _ in range(BATCH):
            crop = next(crops)
            made = upscale(network, crop.low)
            torch.autograd.backward((mean_square(made - crop.target) / crop.error).mean() / BATCH)
            distance += float((mean_square(made.detach() - crop.mean) / crop.error).mean()) / BATCH / EVERY
        optimiser.step()
        if (step + 1) % EVERY == 0:
            print(f"{step + 1}: squared distance from the mean of the flips {distance:.4f}", flush=True)
            distance = 0.0


def upscale(network: nn.Module, low: Tensor) -> Tensor:
    """Upscale both images of a pair (2, 3, H, W)."""
    made = network(low[:1], low[1:], both=True)
    return torch.cat((made.left, made.right))


def mean_square(difference: Tensor) -> Tensor:
    """Compute the mean square of each image of a pair, without the border."""
    border = BORDER * difference.shape[-1] // CROP[1]
    return difference[..., border:-border, border:-border].square().mean((1, 2, 3))


def flip(views: Tensor, across: bool, down: bool) -> Tensor:
    """Flip a pair (2, ...); mirroring exchanges the images."""
    if across:
        views = views.flip(0, 3) if views.ndim == 4 else views.flip(0)
    return views.flip(2) if down and views.ndim == 4 else views


class Crops:
    """Random crops of pairs, with the results of a network as it is now."""

    def __init__(
        self,
        network: nn.Module,
        scale: int,
        shares: dict[str, float],
        chance: random.Random,
        whole: float = WHOLE,
    ) -> None:
        """`shares` of the crops by folder of pairs; `whole`: share of the images that keep their size."""
        self.teacher, self.scale, self.chance = network.prepare(torch.float32), scale, chance  # type: ignore[operator]
        self.whole = whole
        self.sources: list[Source] = [open_data(parse_data(f"pairs:{folder}")) for folder in shares]
        self.shares = [*shares.values()]
        self.load = cache(lambda source, index: self.sources[source].load(index))

    def draw_from_pool(self) -> Iterator[Crop]:
        """Yield crops, each several times with other flips, without end."""
        pool: list[Crop] = []
        while True:
            if len(pool) < POOL or self.chance.random() < 1 / USES:
                pool.append(self.make(*self.draw()))
                del pool[:-POOL]
            across, down = self.chance.choice(FLIPS)
            yield Crop(*(flip(each, across, down) for each in self.chance.choice(pool)))

    def draw(self) -> tuple[Tensor, Tensor]:
        """Draw a low-resolution crop and the images that it shows, from one that is large enough."""
        (source,) = self.chance.choices(range(len(self.sources)), self.shares)
        sample: Sample = self.load(source, self.chance.randrange(len(self.sources[source])))
        views = [sample.left, sample.right]
        is_reduced = self.chance.random() >= self.whole
        factor = self.chance.uniform(SMALLEST, 1) if is_reduced else 1.0
        rows, columns = (round(factor * side) // self.scale for side in sample.left.shape[:2])
        if rows < CROP[0] or columns < CROP[1]:
            return self.draw()
        width, height = self.scale * columns, self.scale * rows
        if factor < 1:
            views = [imresize_to(view, width, height) for view in views]
        top, left = self.chance.randrange(rows - CROP[0] + 1), self.chance.randrange(columns - CROP[1] + 1)
        low_at, high_at = (
            tuple(
                slice(times * first, times * (first + side))
                for first, side in zip((top, left), CROP, strict=True)
            )
            for times in (1, self.scale)
        )
        low = [imresize(view[:height, :width], 1 / self.scale)[low_at] for view in views]
        high = [view[high_at] for view in views]
        return join_views(low), join_views(high)

    def make(self, low: Tensor, high: Tensor) -> Crop:
        """Compute the target of a crop."""
        with torch.inference_mode():
            flips = [
                flip(upscale(self.teacher, flip(low, across, down)), across, down) for across, down in FLIPS
            ]
        mean = torch.stack(flips).mean(0)
        return Crop(low, mean.lerp(high, IMAGE_SHARE), mean, mean_square(mean - high) + LEAST_ERROR)


def join_views(views: list[Pixels]) -> Tensor:
    """Convert two images (H, W, 3) to (2, 3, H, W) in [0, 1]."""
    return torch.cat([to_network(torch.from_numpy(view.copy())) for view in views])


if __name__ == "__main__":
    main()
