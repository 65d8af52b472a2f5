"""KITTI's interpolation against the loops of its kit; error distributions against plain sorting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pamcli.errors import InputError
from pamcli.evaluation.pixels import (
    FRACTIONS,
    SparsificationCurve,
    compute_sparsification,
    count_between,
    count_by_confidence,
    find_quantile,
    interpolate_background,
    make_error_histogram,
)

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


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 1])
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
    assert np.isnan(interpolate_background(np.full((3, 4), N, np.float32))).all()


def curve_of(errors: list[float], confidence: list[float]) -> SparsificationCurve:
    by_level = count_by_confidence(np.array(errors), np.array(confidence), name="x")
    found = compute_sparsification(by_level, make_error_histogram(np.array(errors)))
    assert found is not None
    return found


def test_two_pixels_by_hand() -> None:
    # The wrong pixel (4 px) is the surer one: removing the other raises the error.
    found = curve_of([0, 4], [0.2, 0.9])
    at = [FRACTIONS.index(f) for f in (0.0, 0.25, 0.5, 0.75)]
    assert found.epe[at] == pytest.approx([2, 4 / 1.5, 4, 4])
    assert found.epe_oracle[at] == pytest.approx([2, 2 / 1.5, 0, 0])
    assert found.bad_2[at] == pytest.approx([50, 100 / 1.5, 100, 100])
    assert found.bad_2_oracle[at] == pytest.approx([50, 50 / 1.5, 0, 0])
    grid = np.array(FRACTIONS)
    apart = np.where(grid < 0.5, 1 / (1 - grid), 2) - np.where(grid < 0.5, (0.5 - grid) * 2 / (1 - grid), 0)
    area = float(np.sum((apart[1:] + apart[:-1]) / 2) * 0.01)
    assert found.areas == {"ause-epe": pytest.approx(area), "ause-bad-2": pytest.approx(area)}


def test_curves_of_the_oracle_of_equal_confidence_and_of_no_errors() -> None:
    found = curve_of([0.1, 0.5, 1, 3, 6, 7], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    assert found.epe == pytest.approx(found.epe_oracle)
    assert list(found.areas.values()) == pytest.approx([0, 0])
    found = curve_of([0, 0, 3, 3], [0.5] * 4)
    assert found.epe == pytest.approx([1.5] * 100)
    assert found.bad_2 == pytest.approx([50] * 100)
    assert curve_of([2, 2.5], [0.5, 0.5]).bad_2[0] == 50, "an error of 2 px is not bad"
    assert curve_of([0, 0], [0.1, 0.9]).areas == {"ause-epe": 0, "ause-bad-2": 0}
    assert compute_sparsification(np.zeros((3, 65536)), make_error_histogram(np.zeros(0))) is None


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_a_confidence_out_of_range_is_an_error(value: float) -> None:
    with pytest.raises(InputError, match=r"street: .*confidence"):
        count_by_confidence(np.zeros(1), np.array([value]), name="street")


def test_quantiles_of_few_errors() -> None:
    histogram = make_error_histogram(np.array([[0.0, 1.0], [2.0, 300.0]]))
    assert [find_quantile(histogram, q) for q in (0.25, 0.5, 0.51, 0.75, 1)] == [0, 1, 2, 2, 300]
    assert math.isnan(find_quantile(make_error_histogram(np.zeros(0)), 0.5))


def test_quantiles_are_close_for_errors_of_any_size() -> None:
    errors = 10 ** np.random.default_rng(0).uniform(-6, 6, 20000)
    histogram = sum(make_error_histogram(part) for part in np.split(errors, 4))
    for q in (0.01, 0.5, 0.9, 0.999):
        exact = np.quantile(errors, q, method="inverted_cdf")
        assert find_quantile(histogram, q) == pytest.approx(exact, rel=1 / 2048)


def test_counts_between_edges() -> None:
    histogram = make_error_histogram(np.array([0.0, 0.5, 0.75, 1.0, 2.0, 9.0]))
    assert count_between(histogram, (0, 0.5, 1, 2)) == (1, 2, 1)
    assert count_between(histogram, (2, math.inf)) == (2,)
