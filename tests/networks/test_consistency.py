"""Visibility on cases made by hand, and against the loop that it stands for."""

from __future__ import annotations

import math

import torch

from pamcli.networks.parallax import VISIBLE_THRESHOLD, find_consistent


def test_disparities_that_point_at_each_other_are_consistent() -> None:
    left, right = torch.full((2, 1, 5, 20), 4.0), torch.full((2, 1, 5, 20), 4.0)
    found = find_consistent(left, right)
    assert found.shape == left.shape
    assert found.dtype == torch.bool
    assert found[..., 4:].all()
    assert not found[..., :4].any(), "the match lies outside the right view"
    assert find_consistent(left, right + VISIBLE_THRESHOLD)[..., 4:].all()
    assert not find_consistent(left, right + VISIBLE_THRESHOLD + 0.01).any()
    assert not find_consistent(left, right - VISIBLE_THRESHOLD - 0.01).any()
    assert find_consistent(left, right + 3, threshold=3)[..., 4:].all()


def test_background_beside_a_nearer_object_is_hidden() -> None:
    """An object at disparity 6 over a background at 2 hides the 4 px of background to its left."""
    left, right = torch.full((1, 30), 2.0), torch.full((1, 30), 2.0)
    left[:, 15:20] = 6
    right[:, 9:14] = 6
    expected = torch.ones(1, 30, dtype=torch.bool)
    expected[:, :2] = False  # outside
    expected[:, 11:15] = False  # hidden
    assert torch.equal(find_consistent(left, right), expected)


def test_consistency_equals_its_loop_on_random_disparities() -> None:
    random = torch.Generator().manual_seed(2)
    left = torch.rand(3, 25, generator=random) * 12
    right = left.flip(-1) * 0.5 + torch.rand(3, 25, generator=random) * 4
    found = find_consistent(left, right)
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
