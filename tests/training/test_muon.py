"""Muon: which weights it moves, how far, and that a run goes on with it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from pamcli.training.muon import MOMENTUM, OF_ADAMW, Muon, orthogonalize

RATE, BETAS = 1e-3, (0.9, 0.99)


def layers() -> nn.Sequential:
    """An image's convolution, a depthwise one, and one between many channels."""
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 64, 1))


def muon(network: nn.Module, decay: float = 0.0) -> Muon:
    return Muon(network.parameters(), RATE, betas=BETAS, weight_decay=decay)


def learn(network: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    """A step by gradients that depend on the weights alone."""
    x = torch.linspace(-1, 1, 3 * 6 * 7).view(1, 3, 6, 7)
    (network(x) - 1).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("shape", [(64, 128), (128, 64), (16, 16), (48, 576)])
def test_singular_values_become_about_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape) * torch.logspace(0, -1, shape[1])
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ orthogonalize(matrix) @ right.T
    assert (inner - inner.diag().diag()).abs().max() < 1e-3
    assert inner.diag().max() < 1.3
    assert inner.diag().min() > 0.6


def test_matrices_move_by_muon_and_other_weights_by_adamw() -> None:
    network = layers()
    other = copy.deepcopy(network)
    learn(network, muon(network))
    learn(other, torch.optim.AdamW(other.parameters(), RATE, betas=BETAS, weight_decay=0))
    for key, weights in network.named_parameters():
        if key != "2.weight":
            torch.testing.assert_close(weights, other.get_parameter(key))
    before = layers()[2].weight
    gradient = network[2].weight.grad
    assert isinstance(gradient, torch.Tensor)
    mean = gradient * (1 - MOMENTUM)
    change = orthogonalize((gradient + MOMENTUM * (mean - gradient)).flatten(1)).view_as(gradient)
    torch.testing.assert_close(network[2].weight, before - RATE * OF_ADAMW * 64**0.5 * change)


def test_weights_decay_as_they_do_by_adamw() -> None:
    one, other = layers(), layers()
    learn(one, muon(one))
    learn(other, muon(other, decay=0.1))
    start = layers()[2].weight
    torch.testing.assert_close(other[2].weight, one[2].weight - RATE * 0.1 * start)
