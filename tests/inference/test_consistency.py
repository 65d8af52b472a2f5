"""Confidence and visibility on cases made by hand, and against the loops that they stand for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pamcli.inference.consistency import VISIBLE_THRESHOLD, WINDOW, consistent, cycle_confidence
from pamcli.networks.parallax import ParallaxMaps

WIDTH = 12
"""Columns of the maps: a quarter of the pictures'."""


def maps_of(right_to_left: Tensor, left_to_right: Tensor) -> ParallaxMaps:
    everywhere = torch.ones(right_to_left.shape[:3], dtype=torch.bool)
    return ParallaxMaps(right_to_left, left_to_right, everywhere, everywhere)


def pointing(offset: int) -> Tensor:
    """A map (1, 1, W, W) whose row j attends to column j + offset alone, or to the nearest that exists."""
    columns = (torch.arange(WIDTH) + offset).clamp(0, WIDTH - 1)
    return torch.eye(WIDTH)[columns][None, None]


def constant(disparity: float) -> Tensor:
    """A refined disparity (1, 1, 4, 4 W) in pixels."""
    return torch.full((1, 1, 4, 4 * WIDTH), disparity)


def test_sure_maps_that_agree_with_the_disparity_give_one() -> None:
    for shift in (0, 1, 3):
        found = cycle_confidence(constant(4 * shift), maps_of(pointing(-shift), pointing(shift)))
        assert found.shape == (1, 1, WIDTH)
        assert torch.all(found[..., shift:] == 1)


def test_a_match_outside_the_right_view_gives_nothing() -> None:
    found = cycle_confidence(constant(4 * 5), maps_of(pointing(-5), pointing(5)))
    assert torch.all(found[..., : 5 - math.ceil(WINDOW)] == 0)


def test_maps_that_contradict_the_disparity_give_nothing() -> None:
    sure = maps_of(pointing(-3), pointing(3))
    assert torch.all(cycle_confidence(constant(4 * (3 + 2)), sure)[..., 5:] == 0)
    assert torch.all(cycle_confidence(constant(4 * (3 - 2)), sure)[..., 5:] == 0)
    # Up to the window it is the refinement's own business.
    assert torch.all(cycle_confidence(constant(4 * 3 + 4 * WINDOW), sure)[..., 5:] == 1)


def test_maps_that_contradict_each_other_give_nothing() -> None:
    found = cycle_confidence(constant(4 * 3), maps_of(pointing(-3), pointing(3 + 2)))
    assert torch.all(found[..., 3 : WIDTH - 2] == 0)


def test_attention_that_is_spread_out_gives_little() -> None:
    uniform = torch.full((1, 1, WIDTH, WIDTH), 1 / WIDTH)
    found = cycle_confidence(constant(4 * 3), maps_of(uniform, uniform))
    assert torch.allclose(found[..., 4:-1], torch.tensor((3 / WIDTH) ** 2))
    half = 0.5 * pointing(-3) + 0.5 * pointing(-7)
    found = cycle_confidence(constant(4 * 3), maps_of(half, pointing(3)))
    assert torch.allclose(found[..., 7:], torch.tensor(0.5))


def test_confidence_equals_its_loops_on_random_attention() -> None:
    random = torch.Generator().manual_seed(1)
    there, back = (torch.randn(2, 3, WIDTH, WIDTH, generator=random).mul(3).softmax(-1) for _ in range(2))
    disparity = torch.rand(2, 1, 12, 4 * WIDTH, generator=random) * 60 - 6
    found = cycle_confidence(disparity, maps_of(there, back))
    assert found.shape == (2, 3, WIDTH)
    assert found.min() >= 0
    assert found.max() <= 1
    assert found.max() > 0.1
    for b in range(2):
        for i in range(3):
            for j in range(WIDTH):
                cell = disparity[b, 0, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4]
                target = j - float(cell.mean()) / 4
                total = 0.0
                for k in range(WIDTH):
                    if abs(k - target) <= WINDOW:
                        home = sum(float(back[b, i, k, n]) for n in range(WIDTH) if abs(n - j) <= WINDOW)
                        total += float(there[b, i, j, k]) * home
                assert abs(float(found[b, i, j]) - total) < 1e-5


def test_confidence_stays_in_range_where_rounding_adds_up_to_more_than_one() -> None:
    sum_above_one = pointing(-1) * (1 + 1e-6)
    found = cycle_confidence(constant(4), maps_of(sum_above_one, pointing(1)))
    assert found.max() == 1


def test_disparities_that_point_at_each_other_are_consistent() -> None:
    left, right = torch.full((2, 1, 5, 20), 4.0), torch.full((2, 1, 5, 20), 4.0)
    found = consistent(left, right)
    assert found.shape == left.shape
    assert found.dtype == torch.bool
    assert found[..., 4:].all()
    assert not found[..., :4].any(), "the match lies outside the right view"
    assert consistent(left, right + VISIBLE_THRESHOLD)[..., 4:].all()
    assert not consistent(left, right + VISIBLE_THRESHOLD + 0.01).any()
    assert not consistent(left, right - VISIBLE_THRESHOLD - 0.01).any()
    assert consistent(left, right + 3, threshold=3)[..., 4:].all()


def test_background_beside_a_nearer_object_is_hidden() -> None:
    """An object at disparity 6 over a background at 2 hides the 4 px of background to its left."""
    left, right = torch.full((1, 30), 2.0), torch.full((1, 30), 2.0)
    left[:, 15:20] = 6
    right[:, 9:14] = 6
    expected = torch.ones(1, 30, dtype=torch.bool)
    expected[:, :2] = False  # outside
    expected[:, 11:15] = False  # hidden
    assert torch.equal(consistent(left, right), expected)


def test_consistency_equals_its_loop_on_random_disparities() -> None:
    random = torch.Generator().manual_seed(2)
    left = torch.rand(3, 25, generator=random) * 12
    right = left.flip(-1) * 0.5 + torch.rand(3, 25, generator=random) * 4
    found = consistent(left, right)
    assert 0.1 < found.float().mean() < 0.9
    for i in range(3):
        for j in range(25):
            position = j - float(left[i, j])
            low = math.floor(position)
            expected = False
            if position >= 0:
                high = min(low + 1, 24)
                there = (1 - (position - low)) * right[i, low] + (position - low) * right[i, high]
                expected = abs(float(there) - float(left[i, j])) <= VISIBLE_THRESHOLD
            assert bool(found[i, j]) == expected
