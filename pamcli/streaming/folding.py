"""Batch norm folded into the convolution before it: the same function of trained weights, with less work."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def folded(network: Network) -> Network:
    """A copy for inference in which every batch norm that follows a convolution has become part of it.

    The copy must not be trained: its running statistics are gone. Its leaky rectifiers work in place.
    """
    network = copy.deepcopy(network).eval().requires_grad_(False)
    for module in network.modules():
        if isinstance(module, nn.LeakyReLU):
            module.inplace = True
        if not isinstance(module, nn.Sequential):
            continue
        for place in range(len(module) - 1):
            conv, norm = module[place], module[place + 1]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                module[place] = _joined(conv, norm)
                module[place + 1] = nn.Identity()
    return network


def _joined(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    bias = (
        -norm.running_mean.double() if conv.bias is None else conv.bias.double() - norm.running_mean.double()
    )
    joined = copy.deepcopy(conv)
    joined.weight = nn.Parameter(
        (conv.weight.double() * scale[:, None, None, None]).to(conv.weight.dtype), False
    )
    joined.bias = nn.Parameter((bias * scale + norm.bias.double()).to(conv.weight.dtype), False)
    return joined
