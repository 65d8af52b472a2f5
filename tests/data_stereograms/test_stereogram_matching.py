"""Disparities of both views and of either sign."""

from __future__ import annotations

import numpy as np
import pytest
from layered_scene import layered_pair

from pamcli.data.stereograms.alignment import grey_of
from pamcli.data.stereograms.matching import DenseMatch, match_densely


def matched(move: int) -> tuple[DenseMatch, np.ndarray]:
    left, right, disparity = layered_pair(seed=3)
    return match_densely(grey_of(left), grey_of(np.roll(right, move, axis=1)), -35, 30), disparity - move


@pytest.mark.parametrize("move", [0, 17, 40])
def test_disparities_are_found_whatever_their_sign(move: int) -> None:
    match, disparity = matched(move)
    inside = slice(45, -45)  # what was rolled around the edge has no match
    seen = match.first_seen[:, inside]
    wrong = np.abs(match.first - disparity)[:, inside][seen] > 1
    assert seen.mean() > 0.8
    assert wrong.mean() < 0.02


def test_both_views_agree_where_both_see_the_same() -> None:
    match, _ = matched(0)
    y, x = np.nonzero(match.first_seen)
    there = np.rint(x - match.first[y, x]).astype(int)
    assert np.abs(match.second[y, there] - match.first[y, x]).max() <= 1


def test_what_one_view_alone_sees_is_not_called_seen() -> None:
    match, disparity = matched(0)
    rows, columns = np.indices(disparity.shape)
    nearest = np.full(disparity.shape, -1)
    np.maximum.at(nearest, (rows, np.clip(columns - disparity, 0, None)), disparity)
    hidden = nearest[rows, np.clip(columns - disparity, 0, None)] > disparity
    assert hidden.sum() > 1000
    assert match.first_seen[hidden].mean() < 0.3
    assert match.first_seen[~hidden][:, None].mean() > 0.85
