"""Confidence on attention made by hand, and against the loops that it stands for."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pamcli.networks.parallax import NEAR
from pamcli.streaming.attention import Block
from pamcli.streaming.pasmnet import Cycle

WIDTH = 12
"""Columns of the maps: a quarter of the pictures'."""


def confidence(disparity: Tensor, there: Tensor, back: Tensor, pieces: int = 1) -> Tensor:
    """Confidence of a disparity (R, W) in its own pixels; both maps (R, W, W) are handed over in pieces."""
    rows = len(disparity)
    cycle = Cycle(disparity, first_row=7)
    size = -(-WIDTH // pieces)
    for use, attention in ((cycle.to_right, there), (cycle.and_back, back)):
        for row in range(0, rows, 2):
            for first in range(0, WIDTH, size):
                last = min(first + size, WIDTH)
                used = attention[row : row + 2, first:last].any(1).any(0).nonzero()
                block = Block(first, last, int(used.min()), int(used.max()) + 1)
                lines = 7 + row, 7 + min(row + 2, rows)
                use(lines, block, attention[row : row + 2, first:last, block.low : block.high])
    return cycle.confidence()


def pointing(offset: int) -> Tensor:
    """A map (1, W, W) whose row j attends to column j + offset alone, or to the nearest that exists."""
    columns = (torch.arange(WIDTH) + offset).clamp(0, WIDTH - 1)
    return torch.eye(WIDTH)[columns][None]


def constant(disparity: float) -> Tensor:
    """A disparity (1, W), given in pixels of the picture."""
    return torch.full((1, WIDTH), disparity / 4)


def test_sure_maps_that_agree_with_the_disparity_give_one() -> None:
    for shift in (0, 1, 3):
        found = confidence(constant(4 * shift), pointing(-shift), pointing(shift))
        assert found.shape == (1, WIDTH)
        assert torch.all(found[..., shift:] == 1)


def test_a_match_outside_the_right_view_gives_nothing() -> None:
    found = confidence(constant(4 * 5), pointing(-5), pointing(5))
    assert torch.all(found[..., : 5 - math.ceil(NEAR)] == 0)


def test_maps_that_contradict_the_disparity_give_nothing() -> None:
    sure = pointing(-3), pointing(3)
    assert torch.all(confidence(constant(4 * (3 + 2)), *sure)[..., 5:] == 0)
    assert torch.all(confidence(constant(4 * (3 - 2)), *sure)[..., 5:] == 0)
    # Up to the window it is the refinement's own business.
    assert torch.all(confidence(constant(4 * 3 + 4 * NEAR), *sure)[..., 5:] == 1)


def test_maps_that_contradict_each_other_give_nothing() -> None:
    found = confidence(constant(4 * 3), pointing(-3), pointing(3 + 2))
    assert torch.all(found[..., 3 : WIDTH - 2] == 0)


def test_attention_that_is_spread_out_gives_little() -> None:
    uniform = torch.full((1, WIDTH, WIDTH), 1 / WIDTH)
    found = confidence(constant(4 * 3), uniform, uniform)
    assert torch.allclose(found[..., 4:-1], torch.tensor((3 / WIDTH) ** 2))
    half = 0.5 * pointing(-3) + 0.5 * pointing(-7)
    found = confidence(constant(4 * 3), half, pointing(3))
    assert torch.allclose(found[..., 7:], torch.tensor(0.5))


@pytest.mark.parametrize("pieces", [1, 2, 5, 12])
def test_confidence_equals_its_loops_on_random_attention(pieces: int) -> None:
    random = torch.Generator().manual_seed(1)
    there, back = (torch.randn(5, WIDTH, WIDTH, generator=random).mul(3).softmax(-1) for _ in range(2))
    disparity = torch.rand(5, WIDTH, generator=random) * 15 - 1.5
    found = confidence(disparity, there, back, pieces)
    assert found.shape == (5, WIDTH)
    assert found.min() >= 0
    assert found.max() <= 1
    assert found.max() > 0.1
    for i in range(5):
        for j in range(WIDTH):
            target = j - float(disparity[i, j])
            total = 0.0
            for k in range(WIDTH):
                if abs(k - target) <= NEAR:
                    home = sum(float(back[i, k, n]) for n in range(WIDTH) if abs(n - j) <= NEAR)
                    total += float(there[i, j, k]) * home
            assert abs(float(found[i, j]) - total) < 1e-5


def test_pieces_that_leave_out_what_is_zero_do_not_matter() -> None:
    for pieces in (1, 3, 12):
        found = confidence(constant(4 * 3), pointing(-3), pointing(3), pieces)
        assert torch.all(found[..., 3:] == 1)


def test_confidence_stays_in_range_where_rounding_adds_up_to_more_than_one() -> None:
    sum_above_one = pointing(-1) * (1 + 1e-6)
    found = confidence(constant(4), sum_above_one, pointing(1))
    assert found.max() == 1
