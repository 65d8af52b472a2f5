"""The real networks with made-up weights, peaked attention and batch norm that does something."""

from __future__ import annotations

from functools import cache

import torch
from formulas import formula_images, formula_state, golden
from torch import Tensor

from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet import PASSRnet
from pamcli.networks.passrnet2 import PASSRnet2
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD


@cache
def pasmnet() -> PASMnet:
    g = golden("pasmnet")
    network = PASMnet()
    network.load_state_dict(formula_state("pasmnet", int(g["seed"]), float(g["query_gain"])))
    return network.eval().requires_grad_(False)


@cache
def pasmnet2() -> PASMnet2:
    g = golden("pasmnet2")
    torch.manual_seed(0)
    network = PASMnet2("wide")
    state = formula_state("pasmnet2", int(g["seed"]), float(g["query_gain"]))
    # The prototype did not say how far off it may be.
    fresh = {f"error_scale.{key}": value for key, value in network.error_scale.state_dict().items()}
    network.load_state_dict(state | fresh)
    return network.eval().requires_grad_(False)


@cache
def passrnet(scale: int) -> PASSRnet:
    name = f"passrnet_x{scale}"
    g = golden(name)
    network = PASSRnet(scale)
    network.load_state_dict(formula_state(name, int(g["seed"]), float(g["query_gain"])))
    return network.eval().requires_grad_(False)


@cache
def passrnet2(scale: int, blocks: int = 16) -> PASSRnet2:
    """A fresh one, disturbed: nothing of it is zero."""
    torch.manual_seed(scale)
    network = PASSRnet2(scale, blocks)
    for parameter in network.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return network.eval().requires_grad_(False)


def picture_pair(height: int, width: int, shift: int = 8, seed: int = 3) -> Tensor:
    """Both views in [0, 1], joined in the batch: (2, 3, H, W)."""
    return torch.cat(formula_images(seed, 1, height, width, shift))


def normalised(views: Tensor) -> Tensor:
    """Normalise views as PASMnet takes them."""
    mean, std = torch.tensor(IMAGE_MEAN).view(3, 1, 1), torch.tensor(IMAGE_STD).view(3, 1, 1)
    return (views - mean) / std
