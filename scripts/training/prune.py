"""Reduce the channels inside of PASMnet 2's blocks to those of `INNER`, by least squares.

    python scripts/training/prune.py WIDE.safetensors PAIRS NARROW.safetensors

WIDE has the variant inner=wide. PAIRS has folders `left` and `right`; 30 of the pairs show how the channels
depend on each other. From each block, the channel is removed that the others replace best, until as many are
left as in the narrow variant. The second convolution of the block is then fitted to its former result.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.data.open import open_data, parse_data
from pamcli.networks.blocks import ParallaxAttentionBlock, ResidualBlock
from pamcli.registry.architectures import ARCHITECTURES
from pamcli.registry.catalog import ModelSpec
from pamcli.registry.load import build_network, load_network, save_network
from pamcli.training.trainer import normalise

PAIRS = 30
LARGEST = 512, 1024  # rows and columns of a pair to use
POSITIONS = 6000  # positions of each pair to use
PLACES = 9  # of a 3x3 convolution
RIDGE = 1e-6  # added to the diagonal of products, relative to its mean


def main() -> None:
    """Prune and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("wide", "pairs", "narrow"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    wide, _ = load_network(given.wide)
    spec = ModelSpec("pasmnet2", training=f"pruned from {given.wide.name}")
    narrow = build_network(spec)
    narrow.load_state_dict(prune(wide, narrow, given.pairs), assign=True)
    save_network(narrow.state_dict(), spec, given.narrow)


def prune(wide: nn.Module, narrow: nn.Module, pairs: Path) -> dict[str, Tensor]:
    """Return the tensors of `wide` with the shapes of `narrow`."""
    blocks = find_blocks(wide)
    products = sum_products(wide, {name: layers[3] for name, layers in blocks.items()}, pairs)
    for name, fitting in find_blocks(narrow).items():
        first, norm, _, second, last, *_ = blocks[name]
        scale = last.weight.double() / (last.running_var.double() + last.eps).sqrt()
        weight = second.weight.double().flatten(1).T * scale  # (channels * PLACES, outputs)
        kept, fitted = choose_channels(products[name], weight, len(fitting[0].weight))
        print(f"{name}: {len(first.weight)} channels to {len(kept)}", flush=True)
        for tensor in (first.weight, first.bias, norm.weight, norm.bias, norm.running_mean, norm.running_var):
            if tensor is not None:
                tensor.data = tensor[kept]
        shape = -1, len(kept), *second.kernel_size
        second.weight.data = (fitted[:-1] / scale).T.reshape(shape).float().contiguous()
        last.bias.data = (last.bias + fitted[-1]).float()
    return wide.state_dict()


def find_blocks(network: nn.Module) -> dict[str, list[Any]]:
    """Return the layers of each block by name: convolution, norm, rectifier, convolution, norm, ..."""
    found = {}
    for name, module in network.named_modules():
        if isinstance(module, ResidualBlock):
            found[name] = [*module.body]
        elif isinstance(module, ParallaxAttentionBlock):
            found[name] = [*module.head]
    return found


def sum_products(network: nn.Module, layers: dict[str, nn.Module], pairs: Path) -> dict[str, Tensor]:
    """Return the sum of x x^T per layer, where x are the inputs of a 3x3 convolution at a position, and 1."""
    sums: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(0)

    def add(name: str, x: Tensor) -> None:
        x = F.unfold(x, 3, padding=1).transpose(1, 2).flatten(0, 1)
        x = F.pad(x[torch.randint(len(x), (POSITIONS,), generator=generator)].double(), (0, 1), value=1.0)
        sums[name] = x.T @ x + sums.get(name, 0)

    for name, layer in layers.items():
        layer.register_forward_hook(lambda _, inputs, __, name=name: add(name, inputs[0]))
    source = open_data(parse_data(f"pairs:{pairs}"))
    multiple = ARCHITECTURES["pasmnet2"].multiple
    for index in range(0, len(source), max(1, len(source) // PAIRS)):
        sample = source.load(index)
        rows, columns = (
            min(side // multiple * multiple, most)
            for side, most in zip(sample.left.shape[:2], LARGEST, strict=True)
        )
        images = [torch.from_numpy(view[:rows, :columns]) for view in (sample.left, sample.right)]
        network(*(normalise(image.permute(2, 0, 1)[None] / 255) for image in images))
    return sums


def choose_channels(products: Tensor, weight: Tensor, count: int) -> tuple[list[int], Tensor]:
    """Return the channels to keep, and the weights (channels * PLACES + 1, outputs) with the best fit."""
    kept = list(range(len(products) // PLACES))
    wanted = products[:, :-1] @ weight  # (channels * PLACES + 1, outputs)
    while True:
        rows = [PLACES * channel + place for channel in kept for place in range(PLACES)] + [len(products) - 1]
        near = products[rows][:, rows]
        inverse = torch.linalg.inv(near + RIDGE * near.diagonal().mean() * torch.eye(len(rows)).double())
        fitted = inverse @ wanted[rows]
        if len(kept) == count:
            return kept, fitted
        # Without the inputs i, the squared error of the best fit rises by w_i^T (inverse_ii)^-1 w_i.
        parts = fitted[:-1].view(len(kept), PLACES, -1)
        blocks = inverse[:-1, :-1].reshape(len(kept), PLACES, len(kept), PLACES).diagonal(dim1=0, dim2=2)
        losses = (torch.linalg.solve(blocks.permute(2, 0, 1), parts) * parts).sum((1, 2))
        kept.pop(int(losses.argmin()))


if __name__ == "__main__":
    main()
