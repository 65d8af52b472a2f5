"""Enlargement of features and costs, which is computed by products of matrices where it is learned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (upsample, plainly, (2, 3, 7, 12)),
        (partial(upsample, factor=4), partial(plainly, factor=4), (2, 3, 1, 5)),
        (upsample_cost, cost_plainly, (2, 5, 8, 8)),
        (upsample_cost, cost_plainly, (2, 4, 1, 1)),
    ],
)
def test_learned_maps_are_enlarged_as_others_are(
    ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, requires_grad=True)
    wanted = value_and_gradient(theirs(x), x)
    for found, expected in zip(value_and_gradient(ours(x), x), wanted, strict=True):
        assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(ours(x.detach()), wanted[0], atol=1e-6)


def test_disparities_stay_exact_where_the_rest_is_rounded() -> None:
    disparity = torch.full((1, 1, 4, 6), 200.6, requires_grad=True)  # bf16 knows 200 and 201
    with torch.autocast("cpu", torch.bfloat16):
        assert (upsample(disparity) - 200.6).abs().max() < 1e-4
