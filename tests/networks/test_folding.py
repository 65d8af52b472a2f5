"""Batch norm folded into convolutions computes the same."""

from __future__ import annotations

import torch
from random_networks import normalised, pasmnet, picture_pair
from torch import nn

from pamcli.networks.blocks import fold_batch_norms as folded


def test_a_folded_network_gives_the_same_disparity() -> None:
    views = normalised(picture_pair(64, 96))
    with torch.inference_mode():
        plain = pasmnet()(views[:1], views[1:]).disparity
        found = folded(pasmnet())(views[:1], views[1:]).disparity
    assert (found - plain).abs().max() < 1e-3
    assert not torch.equal(found, plain)


def test_no_batch_norm_is_left() -> None:
    assert any(isinstance(module, nn.BatchNorm2d) for module in pasmnet().modules())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded(pasmnet()).modules())


def test_a_convolution_with_and_without_bias() -> None:
    torch.manual_seed(0)
    for bias in (False, True):
        norm = nn.BatchNorm2d(4)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        norm.running_mean.normal_()  # type: ignore[union-attr]
        norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
        layers = nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), norm, nn.LeakyReLU(0.1)).eval()
        x = torch.randn(2, 3, 8, 8)
        assert torch.allclose(folded(layers)(x), layers(x), atol=1e-5)


def test_the_network_that_was_given_stays_as_it_is() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(0.1)).train()
    copy = folded(network)
    assert isinstance(network[1], nn.BatchNorm2d)
    assert not network[2].inplace
    assert network.training
    assert not copy.training
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not any(parameter.requires_grad for parameter in copy.parameters())
    assert copy[0].weight.data_ptr() != network[0].weight.data_ptr()
