"""Train PASSRnet 2 for minutes with all images in the memory of a GPU, which also makes the crops.

    python scripts/training/train_superres_on_gpu.py WEIGHTS IMAGES... --minutes M -o RESULT.safetensors

IMAGES are FOLDER=SHARE or FOLDER=SHARE:FACTORS. FOLDER has pairs in `left` and `right`, or photographs,
which are paired with themselves, shifted. SHARE is the share of the crops that come from it. FACTORS are
those by which the images are reduced, for example 1,0.8,0.6: lossy images at their own size teach blur.
Errors count relative to the mean error of their image, as in the mean PSNR of whole images. The word `stored`
instead of FACTORS is for pairs of `label_superres.py`, whose errors count as in `distil_superres.py`.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from pamcli.inference.upscaler import FLIPS
from pamcli.networks.bicubic import upscale_bicubic
from pamcli.networks.passrnet2 import PASSRnet2
from pamcli.registry.load import load_network, save_network
from pamcli.training.initialisation import compile_blocks
from pamcli.training.muon import Muon

BORDER = 4  # outermost px of a crop that have no loss, low-resolution px
FARTHEST = 64  # largest shift of a photograph, px
PERMUTED = 0.25  # share of the crops with permuted colours
BETAS = 0.9, 0.99
WARM_UP = 50  # steps
LEAST_ERROR = 1e-5  # added to mean squared errors, for images without texture
SLOWEST = 0.05  # least weight of a crop's error in the mean error of its image
EVERY = 20  # steps per printed line
SUFFIXES = {".webp", ".png", ".jpg", ".ppm"}


class Views(NamedTuple):
    """A pair, or a photograph."""

    views: Tensor  # (2, 3, H, W) or (1, 3, H, W), uint8
    number: int


def main() -> None:
    """Load, train, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("images", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=5, help="from the start to the last step")
    parser.add_argument("--steps", type=int, help="instead of the end by --minutes")
    parser.add_argument("--batch", type=int, default=64, help="pairs per step, a multiple of 4")
    parser.add_argument("--crop", default="96x40", help="WIDTHxHEIGHT, low-resolution px")
    parser.add_argument("--learning-rate", type=float, default=6e-4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begun = time.monotonic()

    def progress(step: int) -> float:
        done = step / given.steps if given.steps else (time.monotonic() - begun) / (60 * given.minutes)
        return float(done)

    torch.backends.cudnn.allow_tf32 = False
    device = torch.device(given.device)
    network, spec = load_network(given.weights)
    assert isinstance(network, PASSRnet2)
    network.to(device).requires_grad_()
    columns, rows = map(int, given.crop.split("x"))
    crops = Crops(network, (rows, columns), given.images, random.Random(given.seed), device)
    if device.type == "cuda":
        compile_blocks(network, device)
    steps = train(network, crops, given.batch, given.learning_rate, progress)
    save_network(network.state_dict(), spec, given.output)
    print(f"{steps} steps, {steps * given.batch} pairs", flush=True)


def train(network: PASSRnet2, crops: Crops, batch: int, rate: float, progress: Callable[[int], float]) -> int:
    """Train all weights until the progress, a function of the steps, is 1; return the number of steps."""
    device, border = crops.errors.device, BORDER * network.scale
    optimiser = Muon(network.parameters(), lr=rate, betas=BETAS, weight_decay=0)
    psnr, step, start = torch.zeros((), device=device), 0, time.monotonic()
    while (done := progress(step)) < 1:
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * done)) / 2
        low, high, images = crops.draw(batch)
        optimiser.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            made = network(low[0], low[1], both=True)
        difference = torch.stack((made.left, made.right)) - high
        errors = difference[..., border:-border, border:-border].square().mean((2, 3, 4)) + LEAST_ERROR
        crops.update_errors(images, errors.detach().mean(0))
        torch.autograd.backward((errors / crops.errors[images]).mean())
        optimiser.step()
        psnr -= 10 * errors.detach().log10().mean() / EVERY
        step += 1
        if step % EVERY == 0:
            speed = batch * EVERY / (time.monotonic() - start)
            print(f"{step}: {float(psnr):.3f} dB, {speed:.0f} pairs/s, {done:.3f}", flush=True)
            psnr, start = torch.zeros((), device=device), time.monotonic()
    return step


class Crops:
    """Random crops of all images, and the mean squared error of each image."""

    def __init__(
        self,
        network: PASSRnet2,
        crop: tuple[int, int],
        folders: list[str],
        chance: random.Random,
        device: torch.device,
    ) -> None:
        """Load the images of FOLDER=SHARE:FACTORS words; `crop`: rows and columns, low-resolution px."""
        assert network.consistency is not None
        self.scale, self.crop, self.chance = network.scale, crop, chance
        self.down = network.consistency.down
        self.reach = (self.down.shape[-1] - self.scale) // 2  # px around a crop that its reduction needs
        self.size = [self.scale * side + 2 * self.reach for side in crop]
        self.groups: list[list[Views]] = []
        self.shares: list[float] = []
        stored: list[int] = []  # numbers of the targets of other networks
        errors: list[float] = []
        for folder in folders:
            path, _, how = folder.rpartition("=")
            share, _, factors = how.partition(":")
            group, is_stored = [], factors == "stored"
            for views in load_views(Path(path), device):
                for factor in [float(each) for each in ("1" if is_stored else factors or "1").split(",")]:
                    reduced = reduce(views, factor)
                    room = [side - least for side, least in zip(reduced.shape[2:], self.size, strict=True)]
                    if min(room) >= 0 and (len(views) == 2 or room[1] >= FARTHEST // 4):
                        group.append(Views(reduced, len(errors)))
                        stored += [len(errors)] * is_stored
                        errors.append(self.measure_bicubic(reduced) if is_stored else 0.0)
            print(f"{path}: {len(group)} images of all sizes", flush=True)
            self.groups.append(group)
            self.shares.append(float(share))
        self.errors = torch.tensor(errors, device=device)
        self.seen = torch.zeros(len(errors), device=device)
        self.slowest = torch.full_like(self.errors, SLOWEST)
        self.seen[stored], self.slowest[stored] = math.inf, 0  # their errors stay

    def draw(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw low- and high-resolution crops (2, B, 3, H, W), and the numbers of their images."""
        images = [
            self.chance.choice(group) for group in self.chance.choices(self.groups, self.shares, k=count)
        ]
        sides = zip(*(self.cut(image.views) for image in images), strict=True)
        crops = torch.stack([torch.stack(side) for side in sides]).float() / 255
        parts = []
        for part, (across, down) in zip(crops.chunk(len(FLIPS), 1), FLIPS, strict=True):
            flipped = part.flip(0, 4) if across else part
            flipped = flipped.flip(3) if down else flipped
            if self.chance.random() < PERMUTED:
                flipped = flipped[:, :, self.chance.sample(range(3), 3)]
            parts.append(flipped)
        crops = torch.cat(parts, 1)
        low = F.conv2d(crops.flatten(0, 2)[:, None], self.down, stride=self.scale)
        low = ((255 * low).round() / 255).clamp(0, 1).view(2, count, 3, *self.crop)
        inside = slice(self.reach, -self.reach)
        numbers = torch.tensor([each.number for each in images])
        return low, crops[..., inside, inside], numbers.to(self.errors.device)

    def cut(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """Cut a crop out of both views at random; of a photograph, with a shift."""
        room = [side - least for side, least in zip(views.shape[2:], self.size, strict=True)]
        shift = 0 if len(views) == 2 else self.chance.randint(0, min(FARTHEST, room[1]))
        top, left = self.chance.randint(0, room[0]), self.chance.randint(0, room[1] - shift)
        rows = slice(top, top + self.size[0])
        return (
            views[0, :, rows, left : left + self.size[1]],
            views[-1, :, rows, left + shift : left + shift + self.size[1]],
        )

    def measure_bicubic(self, views: Tensor) -> float:
        """Compute the mean squared error of bicubic upscaling."""
        planes = views.flatten(0, 1)[:, None].float() / 255
        low = F.conv2d(planes, self.down, stride=self.scale)
        made = upscale_bicubic(low.view(len(views), 3, *low.shape[2:]), self.scale)
        high = views[..., self.reach :, self.reach :][..., : made.shape[2], : made.shape[3]].float() / 255
        return float((made - high).square().mean()) + LEAST_ERROR

    def update_errors(self, images: Tensor, errors: Tensor) -> None:
        """Let mean errors follow those of the crops of some images."""
        self.seen[images] += 1
        weight = (1 / self.seen[images]).maximum(self.slowest[images])
        self.errors[images] = self.errors[images].lerp(errors, weight)


def load_views(folder: Path, device: torch.device) -> Iterator[Tensor]:
    """Yield pairs (2, 3, H, W), or photographs (1, 3, H, W), wider than high, as uint8."""
    is_pairs = (folder / "left").is_dir()
    paths = sorted(
        path for path in (folder / "left" if is_pairs else folder).rglob("*") if path.suffix in SUFFIXES
    )
    names = [[path, folder / "right" / path.name] if is_pairs else [path] for path in paths]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for images in pool.map(
            lambda each: [np.asarray(Image.open(path).convert("RGB")) for path in each], names
        ):
            views = torch.from_numpy(np.stack(images)).to(device).permute(0, 3, 1, 2)
            turned = not is_pairs and views.shape[2] > views.shape[3]
            yield (views.transpose(2, 3) if turned else views).contiguous()


def reduce(views: Tensor, factor: float) -> Tensor:
    """Reduce images by bicubic interpolation."""
    if factor == 1:
        return views
    size = [round(factor * side) for side in views.shape[2:]]
    reduced = F.interpolate(views.float(), size, mode="bicubic", antialias=True)
    return reduced.round().clamp(0, 255).byte()


if __name__ == "__main__":
    main()
