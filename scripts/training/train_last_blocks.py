"""Train the last blocks of PASSRnet 2 on stored features: a pass takes a sixth of the time of all blocks.

    python scripts/training/train_last_blocks.py WEIGHTS PAIRS=SHARE... -o RESULT.safetensors

PAIRS are folders with `left` and `right`; SHARE is the share of the crops that come from one. The features
before the last blocks are computed once per crop. The loss is the mean PSNR of the results, which the last
step has made consistent with the input. `--blocks 0` trains the output layer alone.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from distil_superres import LEAST_ERROR, WARM_UP, Crops, flip, mean_square, parse_shares
from torch import Tensor

from pamcli.inference.upscaler import FLIPS
from pamcli.networks.bicubic import upscale_bicubic
from pamcli.networks.passrnet2 import PASSRnet2
from pamcli.registry.load import load_network, save_network

BATCH, AT_ONCE = 12, 2  # crops per step; crops per pass through the network
BETAS = 0.9, 0.99


class Example(NamedTuple):
    """A crop with the features that its images have before the last blocks; left and right are joined."""

    features: Tensor  # (2, C, H, W), float16
    low: Tensor  # (2, 3, H, W), uint8
    high: Tensor  # (2, 3, scale H, scale W), uint8


def main() -> None:
    """Compute features, train, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--blocks", type=int, default=4, help="trained blocks, counted from the end")
    parser.add_argument("--crops", type=int, default=600)
    parser.add_argument("--whole", type=float, default=0.6, help="share of the images that keep their size")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=5e-5, help="of the blocks")
    parser.add_argument("--output-rate", type=float, default=3e-4, help="of the output layer")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    network, spec = load_network(given.weights)
    assert isinstance(network, PASSRnet2)
    network.requires_grad_(requires_grad=False)
    chance = random.Random(given.seed)
    crops = Crops(network, network.scale, parse_shares(given.pairs), chance, given.whole)
    start = len(network.blocks) - given.blocks
    assert start > network.detail_behind, "the subpixel detail must lie before the trained blocks"
    examples = [compute_example(network, start, crops, chance) for _ in range(given.crops)]
    rates = given.learning_rate, given.output_rate
    train(network, start, examples, given.epochs, rates, chance)
    save_network(network.state_dict(), spec, given.output)


@torch.inference_mode()
def compute_example(network: PASSRnet2, start: int, crops: Crops, chance: random.Random) -> Example:
    """Draw a crop, flip it at random, and compute its features before block `start`."""
    low, high = crops.draw()
    across, down = chance.choice(FLIPS)
    low, high = (flip(each, across, down) for each in (low, high))
    layer = network.last if start == len(network.blocks) else network.blocks[start]
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].half()))
    network(low[:1], low[1:])
    hook.remove()
    return Example(seen[0], *((255 * each).round().byte() for each in (low, high)))


def train(
    network: PASSRnet2,
    start: int,
    examples: list[Example],
    epochs: int,
    rates: tuple[float, float],
    chance: random.Random,
) -> None:
    """Train the blocks from `start` on, their exchanges, and the output layer."""
    exchanges = [network.exchanges[str(depth)] for depth in network.exchange_behind if depth >= start]
    groups = [[*network.blocks[start:].parameters()], [*network.last.parameters()]]
    groups[0] += [weight for each in exchanges for weight in each.parameters()]
    for weight in groups[0] + groups[1]:
        weight.requires_grad_()
    chosen = [{"params": group, "lr": rate} for group, rate in zip(groups, rates, strict=True) if group]
    optimiser = torch.optim.Adam(chosen, betas=BETAS)
    steps = epochs * (len(examples) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    psnr = 0.0
    for step in range(steps):
        if step % (steps // epochs) == 0:
            chance.shuffle(examples)
        first = step % (steps // epochs) * BATCH
        optimiser.zero_grad()
        for at in range(first, first + BATCH, AT_ONCE):
            loss = compute_log_error(network, start, examples[at : at + AT_ONCE]) * AT_ONCE / BATCH
            torch.autograd.backward(loss)
            psnr -= 10 / math.log(10) * float(loss.detach()) / 10
        optimiser.step()
        schedule.step()
        if step % 10 == 9:
            print(f"{step + 1} of {steps}: {psnr:.3f} dB", flush=True)
            psnr = 0.0


def compute_log_error(network: PASSRnet2, start: int, examples: list[Example]) -> Tensor:
    """Compute the mean logarithm of the mean squared errors of the images of some crops."""
    features, low, high = (
        torch.stack(parts).float().transpose(0, 1).flatten(0, 1) for parts in zip(*examples, strict=True)
    )  # (2B, ...), left images first
    low, high, views = low / 255, high / 255, features
    for depth in range(start, len(network.blocks)):
        views = network.blocks[depth](views)
        if depth in network.exchange_behind:
            views, _, _ = network.exchanges[str(depth)](views)
    upscaled = upscale_bicubic(low, network.scale) + F.pixel_shuffle(network.last(views), network.scale)
    if network.consistency is not None:
        upscaled = network.consistency(upscaled, low)
    return (mean_square(upscaled - high) + LEAST_ERROR).log().mean()


if __name__ == "__main__":
    main()
