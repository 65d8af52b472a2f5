"""Convolutions of a network in training on a processor: those of torch, forwards and backwards."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from pamcli import convolutions
from pamcli.convolutions import available, make_faster, weight_gradient
from pamcli.networks.pasmnet2 import PASMnet2


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small maps, too, are computed as large ones are."""
    monkeypatch.setattr(convolutions, "SMALLEST", 0)


compiled = pytest.mark.skipif(not available(), reason="winograd.c is not compiled: there is no C compiler")


def gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """What is made of x, and the gradients of a weighted sum of it: of x, then of the parameters."""
    x = x.detach().requires_grad_()
    layer.zero_grad()
    made = layer(x)
    (made * torch.linspace(-1, 1, made.numel(), dtype=made.dtype).view(made.shape)).sum().backward()
    found = [x.grad, *(parameter.grad for parameter in layer.parameters())]
    assert all(gradient is not None for gradient in found)
    return [made.detach(), *(gradient for gradient in found if gradient is not None)]


@compiled
@pytest.mark.parametrize(
    ("inputs", "outputs", "height", "width", "dilation", "bias"),
    [(64, 64, 16, 24, 1, True), (32, 37, 17, 33, 2, False), (24, 64, 4, 5, 1, True)],
)
def test_results_and_gradients_are_those_of_torch(
    inputs: int, outputs: int, height: int, width: int, dilation: int, bias: bool
) -> None:
    torch.manual_seed(0)
    theirs = nn.Conv2d(inputs, outputs, 3, padding=dilation, dilation=dilation, bias=bias)
    ours = copy.deepcopy(theirs)
    make_faster(ours)
    x = torch.randn(3, inputs, height, width)
    expected = gradients(theirs.double(), x.double())
    for found, wanted in zip(gradients(ours, x), expected, strict=True):
        assert (found - wanted).abs().max() <= 1e-4 * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("bias", [True, False])
def test_a_1x1_convolution_in_bf16_is_that_of_torch(bias: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.Conv2d(24, 40, 1, bias=bias)
    ours = copy.deepcopy(theirs)
    make_faster(ours)
    x = torch.randn(3, 24, 9, 14)
    with torch.autocast("cpu", torch.bfloat16):
        computed = gradients(ours, x)
        assert computed[0].dtype == torch.bfloat16
    for found, wanted in zip(computed, gradients(theirs.double(), x.double()), strict=True):
        assert (found - wanted).abs().max() <= 2**-6 * max(1.0, float(wanted.abs().max()))


@compiled
@pytest.mark.parametrize("threads", [1, 3])
def test_weight_gradients_are_right_for_any_number_of_threads(threads: int) -> None:
    torch.manual_seed(0)
    x, gradient = (torch.randn(2, 32, 50, 70).to(memory_format=torch.channels_last) for _ in range(2))
    wanted = torch.nn.grad.conv2d_weight(x.double(), (32, 32, 3, 3), gradient.double(), padding=1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = weight_gradient(x, gradient)
    finally:
        torch.set_num_threads(before)
    assert (found - wanted).abs().max() < 1e-4 * float(wanted.abs().max())


def test_weights_get_gradients_if_the_input_needs_none() -> None:
    torch.manual_seed(0)
    theirs = nn.Conv2d(32, 32, 3, padding=1)
    ours = copy.deepcopy(theirs)
    make_faster(ours)
    for layer in (theirs, ours):
        layer.bias.requires_grad_(False)  # type: ignore[union-attr]
        layer(torch.ones(1, 32, 12, 12)).sum().backward()
    assert ours.bias.grad is None
    assert torch.allclose(ours.weight.grad, theirs.weight.grad, rtol=1e-4)


def test_keys_stay_and_16_bits_are_left_to_torch() -> None:
    network = PASMnet2()
    keys = list(network.state_dict())
    make_faster(network)
    assert list(network.state_dict()) == keys
    torch.manual_seed(0)
    theirs = nn.Conv2d(32, 32, 3, padding=1)
    ours = copy.deepcopy(theirs)
    make_faster(ours)
    x = torch.randn(1, 32, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours(x), theirs(x))


@compiled
def test_small_maps_are_torch_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    theirs = nn.Conv2d(32, 32, 3, padding=1)
    ours = copy.deepcopy(theirs)
    make_faster(ours)
    monkeypatch.setattr(convolutions, "SMALLEST", 2 * 20 * 20)
    small, large = torch.randn(2, 32, 20, 19), torch.randn(2, 32, 20, 20)
    assert torch.equal(ours(small), theirs(small))
    assert not torch.equal(ours(large), theirs(large))
    assert torch.allclose(ours(large), theirs(large), atol=1e-4)
