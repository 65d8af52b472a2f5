"""Tests of the decision which view of a stereogram is the left one."""

from __future__ import annotations

import numpy as np
import pytest
from layered_scene import layered_pair, texture

from pamcli.imaging.left_right_order import weigh_order
from pamcli.imaging.matching import match_densely, to_grey


def weigh(first: np.ndarray, second: np.ndarray, low: int, high: int) -> float:
    return weigh_order(first, second, match_densely(to_grey(first), to_grey(second), low, high))


@pytest.mark.parametrize(("seed", "plane"), [(1, 0), (2, 17), (3, 40)])
def test_half_occlusions_tell_the_left_view_in_either_order(seed: int, plane: int) -> None:
    """The plane of focus may lie anywhere."""
    left, right, _ = layered_pair(seed)
    left, right = left[:, plane:], right[:, : right.shape[1] - plane]
    assert weigh(left, right, -45, 30) > 2
    assert weigh(right, left, -30, 45) < -2


def test_without_a_step_only_rows_count() -> None:
    wall = texture(np.random.default_rng(0), (150, 260), 100)
    assert abs(weigh(wall[:, :250], wall[:, 10:], -20, 20)) <= 2
