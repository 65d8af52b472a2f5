from __future__ import annotations

import math

import numpy as np
import pytest

from pamcli.evaluation.pixels import interpolate_background

N = math.nan


def fill_slowly(disparity: np.ndarray) -> np.ndarray:
    """Pixel by pixel, -1 = unknown, in the order of the kit."""
    d = np.where(np.isfinite(disparity), disparity, -1)
    height, width = d.shape
    for v in range(height):
        count = 0
        for u in range(width):
            if d[v, u] < 0:
                count += 1
                continue
            first = u - count
            if count and first > 0:
                d[v, first:u] = min(d[v, first - 1], d[v, u])
            count = 0
        known = [u for u in range(width) if d[v, u] >= 0]
        if known:
            d[v, : known[0]] = d[v, known[0]]
            d[v, known[-1] :] = d[v, known[-1]]
    for u in range(width):
        known = [v for v in range(height) if d[v, u] >= 0]
        if known:
            d[: known[0], u] = d[known[0], u]
            d[known[-1] :, u] = d[known[-1], u]
    return np.where(d < 0, N, d)


def test_gaps_ends_and_rows() -> None:
    filled = interpolate_background(
        np.array(
            [
                [N, N, N, N, N, N],
                [N, 7, N, N, 3, N],
                [N, N, N, N, N, N],
                [5, N, 9, N, N, 8],
                [N, N, N, N, N, N],
            ],
            np.float32,
        )
    )
    assert filled[:2].tolist() == [[7, 7, 3, 3, 3, 3]] * 2
    assert np.isnan(filled[2]).all()  # between rows that know something: the kit leaves it
    assert filled[3:].tolist() == [[5, 5, 9, 8, 8, 8]] * 2


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9, 1])
def test_equals_the_loops_of_the_kit(share: float) -> None:
    random = np.random.default_rng(int(100 * share))
    for _ in range(20):
        disparity = random.uniform(0, 200, random.integers(1, 12, 2)).astype(np.float32)
        disparity[random.random(disparity.shape) > share] = N
        before = disparity.copy()
        assert np.array_equal(interpolate_background(disparity), fill_slowly(disparity), equal_nan=True)
        assert np.array_equal(disparity, before, equal_nan=True)


def test_zero_is_known_and_negative_or_infinite_is_not() -> None:
    assert interpolate_background(np.array([[4, -1, math.inf, 0]], np.float32)).tolist() == [[4, 0, 0, 0]]


def test_nothing_known_stays_unknown() -> None:
    assert np.isnan(interpolate_background(np.full((3, 4), N, np.float32))).all()
