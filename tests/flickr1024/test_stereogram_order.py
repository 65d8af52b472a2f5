"""Tests of the decision which view of a stereogram is the left one."""

from __future__ import annotations

import numpy as np
import pytest
from layered_scene import layered_pair, texture

from pamcli.imaging.left_right_order import OrderEvidence, weigh_order
from pamcli.imaging.matching import match_densely, to_grey


def weighed(first: np.ndarray, second: np.ndarray, low: int, high: int) -> OrderEvidence:
    return weigh_order(first, second, match_densely(to_grey(first), to_grey(second), low, high))


@pytest.mark.parametrize(("seed", "plane"), [(1, 0), (2, 17), (3, 40)])
def test_half_occlusions_tell_the_left_view_wherever_the_plane_of_focus_lies(seed: int, plane: int) -> None:
    left, right, _ = layered_pair(seed)
    left, right = left[:, plane:], right[:, : right.shape[1] - plane]
    parallel, cross = weighed(left, right, -45, 30), weighed(right, left, -30, 45)
    assert parallel.vote > 0.2
    assert cross.vote < -0.2


def test_exchanged_views_give_the_opposite_evidence() -> None:
    left, right, _ = layered_pair(4)
    there, back = weighed(left, right, -5, 30), weighed(right, left, -30, 5)
    assert there.vote == pytest.approx(-back.vote, abs=0.15)
    assert there.rows == pytest.approx(-back.rows, abs=0.05)


def test_without_a_step_there_is_no_vote() -> None:
    wall = texture(np.random.default_rng(0), (150, 260), 100)
    evidence = weighed(wall[:, :250], wall[:, 10:], -20, 20)
    assert evidence.vote == 0
    assert evidence.agreement == 0


def test_certainty_grows_with_the_evidence_and_is_that_of_the_likelier_order() -> None:
    hint, weak, strong = OrderEvidence(0, 0, 0.7), OrderEvidence(0.05, 0.3, 0.1), OrderEvidence(0.4, 3, 0.5)
    assert hint.first_is_left
    assert not OrderEvidence(-0.4, -3, 0.7).first_is_left
    assert hint.certainty < 0.9
    assert OrderEvidence(0, 0, 0).certainty == 0.5 <= weak.certainty < strong.certainty <= 1
    assert OrderEvidence(-0.4, -3, -0.5).certainty == pytest.approx(strong.certainty)
