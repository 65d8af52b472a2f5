"""Test error histograms and sparsification curves against plain sorting."""

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
    make_error_histogram,
)


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
    assert found.areas() == {"ause-epe": pytest.approx(area), "ause-bad-2": pytest.approx(area)}


def test_an_error_of_two_pixels_is_not_bad() -> None:
    assert curve_of([2, 2.5], [0.5, 0.5]).bad_2[0] == 50


def test_the_order_of_the_oracle_has_no_area() -> None:
    found = curve_of([0.1, 0.5, 1, 3, 6, 7], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    assert found.epe == pytest.approx(found.epe_oracle)
    assert list(found.areas().values()) == pytest.approx([0, 0])


def test_equal_confidence_removes_the_mean() -> None:
    found = curve_of([0, 0, 3, 3], [0.5] * 4)
    assert found.epe == pytest.approx([1.5] * 100)
    assert found.bad_2 == pytest.approx([50] * 100)


def test_without_errors_every_order_is_right() -> None:
    assert curve_of([0, 0], [0.1, 0.9]).areas() == {"ause-epe": 0, "ause-bad-2": 0}


def test_curves_match_plain_sorting() -> None:
    random = np.random.default_rng(0)
    errors, confidence = random.gamma(1, 2, 600), random.random(600)
    by_level, histogram = 0, make_error_histogram()
    for part in (slice(0, 200), slice(200, 600)):
        by_level += count_by_confidence(errors[part], confidence[part], name="x")
        histogram += make_error_histogram(errors[part])
    found = compute_sparsification(by_level, histogram)
    assert found.epe[50] == pytest.approx(errors[np.argsort(-confidence)][:300].mean(), rel=1e-3)
    assert found.epe_oracle[50] == pytest.approx(np.sort(errors)[:300].mean(), rel=1e-3)


def test_no_pixels_give_no_curve() -> None:
    assert compute_sparsification(np.zeros((3, 65536)), make_error_histogram()) is None


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_a_confidence_out_of_range_is_an_error(value: float) -> None:
    with pytest.raises(InputError, match=r"street: .*confidence"):
        count_by_confidence(np.zeros(1), np.array([value]), name="street")


def test_quantiles_of_few_errors() -> None:
    histogram = make_error_histogram(np.array([[0.0, 1.0], [2.0, 300.0]]))
    assert [find_quantile(histogram, q) for q in (0.25, 0.5, 0.51, 0.75, 1)] == [0, 1, 2, 2, 300]
    assert math.isnan(find_quantile(make_error_histogram(), 0.5))


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
