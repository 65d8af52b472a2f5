"""Enlargement of features and costs, which is computed by products of matrices where it is learned."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pamcli.networks.blocks import upsample, upsample_cost


def plainly(x: Tensor, factor: int = 2) -> Tensor:
    return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)


def cost_plainly(cost: Tensor) -> Tensor:
    return F.interpolate(cost[:, None], scale_factor=2, mode="trilinear", align_corners=False)[:, 0]


def value_and_gradient(made: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.linspace(-1, 1, made.numel(), dtype=made.dtype).view(made.shape)
    return made.detach(), torch.autograd.grad((made * weights).sum(), x)[0]


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("size", [(7, 12), (1, 5), (6, 1)])
def test_learned_features_are_enlarged_as_others_are(size: tuple[int, int], factor: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size, requires_grad=True)
    wanted = value_and_gradient(plainly(x, factor), x)
    for found, expected in zip(value_and_gradient(upsample(x, factor), x), wanted, strict=True):
        assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(upsample(x.detach(), factor), wanted[0], atol=1e-6)


@pytest.mark.parametrize("size", [(5, 8, 8), (1, 3, 6), (4, 1, 1)])
def test_learned_costs_are_enlarged_as_others_are(size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    cost = torch.randn(2, *size, requires_grad=True)
    wanted = value_and_gradient(cost_plainly(cost), cost)
    for found, expected in zip(value_and_gradient(upsample_cost(cost), cost), wanted, strict=True):
        assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(upsample_cost(cost.detach()), wanted[0], atol=1e-6)


@pytest.mark.parametrize("enlarge", [upsample, upsample_cost])
def test_what_is_rounded_stays_as_near(enlarge: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 12, requires_grad=True)
    made = enlarge(x.bfloat16())
    assert (made - enlarge(x)).detach().abs().max() < 2**-6 * x.detach().abs().max()


def test_disparities_stay_exact_where_the_rest_is_rounded() -> None:
    disparity = torch.full((1, 1, 4, 6), 200.6, requires_grad=True)  # bf16 knows 200 and 201
    with torch.autocast("cpu", torch.bfloat16):
        assert (upsample(disparity) - 200.6).abs().max() < 1e-4
