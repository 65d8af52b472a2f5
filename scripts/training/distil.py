"""Train the blocks of a pruned PASMnet 2 to give the features of the wide one, without ground truth.

    python scripts/training/distil.py WIDE.safetensors PRUNED.safetensors PAIRS... -o RESULT.safetensors

PRUNED is a result of prune.py. Each of PAIRS has folders `left` and `right`. Images are matched at the usual
resolution. The loss is the squared error of each part's features, relative to their variance.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from prune import find_blocks
from torch import Tensor, nn

from pamcli.data.open import open_data, parse_data
from pamcli.data.source import Source
from pamcli.inference.device import cpu_has_bf16
from pamcli.inference.images import resize_image, to_network, to_plain
from pamcli.registry.architectures import ARCHITECTURES
from pamcli.registry.load import load_network, save_network
from pamcli.registry.resolution import choose_matching_size
from pamcli.training.trainer import normalise

PARTS = "E1", "E2", "E3", "E4", "D0", "D1", "D2", "st1", "st2", "st3"
CROP = 320, 960  # rows and columns
COST_WEIGHT = 2  # of the errors of features whose products are the matching cost
WARM_UP = 50  # steps
BETAS = 0.9, 0.98
LARGEST_GRADIENT = 1.0
EVERY = 50  # steps per printed line


def main() -> None:
    """Distil and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("wide", type=Path)
    parser.add_argument("pruned", type=Path)
    parser.add_argument("pairs", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--learning-rate", type=float, default=6e-4)
    given = parser.parse_args()
    wide, _ = load_network(given.wide)
    pruned, spec = load_network(given.pruned)
    sources = [open_data(parse_data(f"pairs:{folder}")) for folder in given.pairs]
    distil(wide, pruned, crops(sources), given.steps, given.learning_rate)
    save_network(pruned.state_dict(), spec, given.output)


def distil(
    wide: nn.Module, pruned: nn.Module, pairs: Iterator[tuple[Tensor, Tensor]], steps: int, rate: float
) -> None:
    """Train the layers inside of the blocks of `pruned`; norms keep their statistics."""
    trained = []
    for network in (wide, pruned):
        network.eval().requires_grad_(requires_grad=False)
    for first, norm, _, second, last, *_ in find_blocks(pruned).values():
        for layer in (first, norm, second, last):
            trained += [parameter.requires_grad_() for parameter in layer.parameters()]
    optimiser = torch.optim.AdamW(trained, lr=rate, betas=BETAS, weight_decay=0)
    target, found = watch(wide), watch(pruned)
    sums: dict[str, float] = {}
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * step / steps)) / 2
        views = next(pairs)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cpu_has_bf16()):
            for network in (wide, pruned):
                compute_parts(network, views)
        errors = {
            name: ((value - target[name]) ** 2).mean() / target[name].var() for name, value in found.items()
        }
        optimiser.zero_grad()
        weighted = [error * (COST_WEIGHT if " " in name else 1) for name, error in errors.items()]
        torch.autograd.backward(torch.stack(weighted).sum())
        torch.nn.utils.clip_grad_norm_(trained, LARGEST_GRADIENT)
        optimiser.step()
        for name, error in errors.items():
            sums[name] = sums.get(name, 0) + float(error) / EVERY
        if (step + 1) % EVERY == 0:
            print(
                f"{step + 1}:", ", ".join(f"{name} {error:.4f}" for name, error in sums.items()), flush=True
            )
            sums.clear()


def watch(network: nn.Module) -> dict[str, Tensor]:
    """Return a dictionary that holds the latest features of each part, in float32."""
    features: dict[str, Tensor] = {}

    def keep(name: str, output: Tensor | tuple[Tensor, tuple[Tensor, Tensor]]) -> None:
        if isinstance(output, Tensor):
            features[name] = output.float()
        else:  # a stage: views, and left and right features of the cost
            features[name] = output[0].float()
            features[f"{name} left"], features[f"{name} right"] = (side.float() for side in output[1])
        if name == PARTS[-1]:
            raise StopIteration  # the rest of the network is not trained

    for name in PARTS:
        network.get_submodule(name).register_forward_hook(lambda _, __, output, name=name: keep(name, output))
    return features


def compute_parts(network: nn.Module, views: tuple[Tensor, Tensor]) -> None:
    """Compute the features of each part, until a hook of `watch` stops the network."""
    try:
        network(*views)
    except StopIteration:
        return


def crops(sources: list[Source]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield normalised crops (1, 3, rows, columns) of the pairs in random order, without end."""
    multiple = ARCHITECTURES["pasmnet2"].multiple
    generator = torch.Generator().manual_seed(0)

    def draw(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    pairs = [(source, index) for source in sources for index in range(len(source))]
    while True:
        for place in torch.randperm(len(pairs), generator=generator).tolist():
            source, index = pairs[place]
            sample = source.load(index)
            height, width = choose_matching_size("auto", *sample.left.shape[:2])
            factor = draw(0.6, 1.1) if draw(0, 1) < 1 / 3 else 1
            size = max(round(factor * height), multiple), max(round(factor * width), multiple)
            rows, columns = (
                min(side // multiple * multiple, most) for side, most in zip(size, CROP, strict=True)
            )
            top, left = int(draw(0, size[0] - rows + 1)), int(draw(0, size[1] - columns + 1))
            gamma, gain = draw(0.8, 1.25), draw(0.8, 1.1)
            views = []
            for view in (sample.left, sample.right):
                image = to_network(torch.from_numpy(to_plain(resize_image(view, *size))))
                image = image[..., top : top + rows, left : left + columns]
                views.append(normalise((image**gamma * gain).clamp(0, 1)))
            yield views[0], views[1]


if __name__ == "__main__":
    main()
