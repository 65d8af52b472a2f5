"""Train PASSRnet 2 to give the mean of the results for the four flips of a pair, which has smaller errors.

    python scripts/training/distil_superres.py WEIGHTS PAIRS=SHARE... -o RESULT.safetensors
    python scripts/training/distil_superres.py WEIGHTS TARGETS=SHARE... --stored --minutes M -o RESULT

PAIRS are folders with `left` and `right`; SHARE is the share of the crops that come from one. The target is
nine tenths the mean (as with `--ensemble`) and one tenth the image itself. The finest detail of an image is
unpredictable, so it is mostly noise for the training. Errors count relative to those of the mean.

With --stored, the images are themselves the targets: results of other networks, from `label_superres.py`.
Their errors are unknown, so those of the student count relative to the difference to bicubic upscaling.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator
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
from pamcli.networks.bicubic import upscale_bicubic
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
HELD_OUT = 8  # crops of held-out targets


class Crop(NamedTuple):
    """A pair of images; left and right are joined in the first axis."""

    low: Tensor  # (2, 3, H, W), input
    target: Tensor  # (2, 3, scale H, scale W)
    mean: Tensor  # (2, 3, scale H, scale W), of the flips, or the stored target
    error: Tensor  # (2,), mean squared error that errors are relative to


def main() -> None:
    """Distil and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--minutes", type=float, help="instead of the end by --steps")
    parser.add_argument("--stored", action="store_true", help="the images are targets")
    parser.add_argument("--held-out", type=Path, help="with --stored: targets to print the distance to")
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    network, spec = load_network(given.weights)
    assert spec.scale is not None
    shares = parse_shares(given.pairs)
    crops = Crops(network, spec.scale, shares, random.Random(given.seed), is_stored=given.stored)
    held_out: list[Crop] = []
    if given.held_out:
        others = Crops(network, spec.scale, {str(given.held_out): 1}, random.Random(0), is_stored=True)
        held_out = [others.make(*others.draw()) for _ in range(HELD_OUT)]
    begun = time.monotonic()

    def progress(step: int) -> float:
        done = (time.monotonic() - begun) / (60 * given.minutes) if given.minutes else step / given.steps
        return float(done)

    def report(line: str) -> None:
        save_network(network.state_dict(), spec, given.output)
        with torch.inference_mode():
            distances = [measure_distance(upscale(network, crop.low), crop) for crop in held_out]
        if distances:
            line += f"; from held-out targets {sum(distances) / len(distances):.4f}"
        print(line, flush=True)

    report("0: start")
    distil(network, crops.draw_from_pool(), progress, given.learning_rate, report)


def parse_shares(pairs: list[str]) -> dict[str, float]:
    """Parse FOLDER=SHARE words."""
    return {folder: float(share) for folder, _, share in (each.rpartition("=") for each in pairs)}


def distil(
    network: nn.Module,
    crops: Iterator[Crop],
    progress: Callable[[int], float],
    rate: float,
    report: Callable[[str], None],
) -> None:
    """Train all weights until the progress, a function of the steps, is 1."""
    network.requires_grad_(requires_grad=True)
    optimiser = Muon(network.parameters(), lr=rate, betas=BETAS, weight_decay=0)
    distance, step = 0.0, 0
    while (done := progress(step)) < 1:
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * done)) / 2
        optimiser.zero_grad()
        for _ in range(BATCH):
            crop = next(crops)
            made = upscale(network, crop.low)
            torch.autograd.backward((mean_square(made - crop.target) / crop.error).mean() / BATCH)
            distance += measure_distance(made.detach(), crop) / BATCH / EVERY
        optimiser.step()
        step += 1
        if step % EVERY == 0:
            report(f"{step}, {done:.2f}: squared distance from the teacher {distance:.4f}")
            distance = 0.0
    report(f"{step}: end")


def upscale(network: nn.Module, low: Tensor) -> Tensor:
    """Upscale both images of a pair (2, 3, H, W)."""
    low = low.contiguous(memory_format=torch.channels_last)  # saves a quarter of the time
    made = network(low[:1], low[1:], both=True)
    return torch.cat((made.left, made.right))


def mean_square(difference: Tensor) -> Tensor:
    """Compute the mean square of each image of a pair, without the border."""
    border = BORDER * difference.shape[-1] // CROP[1]
    return difference[..., border:-border, border:-border].square().mean((1, 2, 3))


def measure_distance(made: Tensor, crop: Crop) -> float:
    """Compute the relative squared distance from the mean or the stored target."""
    return float((mean_square(made - crop.mean) / crop.error).mean())


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
        *,
        is_stored: bool = False,
    ) -> None:
        """`shares` of the crops by folder of pairs; `whole`: share of the images that keep their size."""
        self.is_stored = is_stored
        self.teacher, self.scale, self.chance = network.prepare(torch.float32), scale, chance  # type: ignore[operator]
        self.whole = 1 if is_stored else whole
        self.folders, self.shares = [*shares], [*shares.values()]
        self.open()

    def open(self) -> None:
        """List the pairs."""
        self.sources: list[Source] = [open_data(parse_data(f"pairs:{folder}")) for folder in self.folders]
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
        if self.is_stored:
            self.open()  # further targets may have been stored
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
        if self.is_stored:
            return Crop(low, high, high, mean_square(upscale_bicubic(low, self.scale) - high) + LEAST_ERROR)
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
