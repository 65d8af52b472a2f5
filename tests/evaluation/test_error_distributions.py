from __future__ import annotations

import math

import numpy as np
import pytest

from pamcli.errors import InputError
from pamcli.evaluation.figures import FRACTIONS, ConfidenceCurve, ConfidenceTally, ErrorHistogram


def curve(errors: list[float], confidence: list[float]) -> ConfidenceCurve:
    tally = ConfidenceTally()
    tally.add(np.array(errors), np.array(confidence), name="x")
    found = tally.curve()
    assert found is not None
    return found


def test_two_pixels_by_hand() -> None:
    # The wrong pixel (4 px) is the surer one: removing the other raises the error.
    found = curve([0, 4], [0.2, 0.9])
    at = [FRACTIONS.index(f) for f in (0.0, 0.25, 0.5, 0.75)]
    assert [found.epe[i] for i in at] == pytest.approx([2, 4 / 1.5, 4, 4])
    assert [found.epe_oracle[i] for i in at] == pytest.approx([2, 2 / 1.5, 0, 0])
    assert [found.bad_2[i] for i in at] == pytest.approx([50, 100 / 1.5, 100, 100])
    assert [found.bad_2_oracle[i] for i in at] == pytest.approx([50, 50 / 1.5, 0, 0])
    grid = np.array(FRACTIONS)
    apart = np.where(grid < 0.5, 1 / (1 - grid), 2) - np.where(grid < 0.5, (0.5 - grid) * 2 / (1 - grid), 0)
    area = float(np.sum((apart[1:] + apart[:-1]) / 2) * 0.01)
    assert found.ause_epe == pytest.approx(area)
    assert found.ause_bad_2 == pytest.approx(area)


def test_an_error_of_two_pixels_is_not_bad() -> None:
    assert curve([2, 2.5], [0.5, 0.5]).bad_2[0] == 50


def test_the_order_of_the_oracle_has_no_area() -> None:
    errors = [0.1, 0.5, 1, 3, 6, 7]
    found = curve(errors, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    assert found.epe == pytest.approx(found.epe_oracle)
    assert (found.ause_epe, found.ause_bad_2) == (pytest.approx(0), pytest.approx(0))


def test_equal_confidence_removes_the_mean() -> None:
    found = curve([0, 0, 3, 3], [0.5] * 4)
    assert found.epe == pytest.approx([1.5] * 100)
    assert found.bad_2 == pytest.approx([50] * 100)


def test_without_errors_every_order_is_right() -> None:
    found = curve([0, 0], [0.1, 0.9])
    assert (found.ause_epe, found.ause_bad_2) == (0, 0)


def test_tallies_add_up() -> None:
    random = np.random.default_rng(0)
    errors, confidence = random.gamma(1, 2, 600), random.random(600)
    whole, halves = ConfidenceTally(), ConfidenceTally()
    whole.add(errors, confidence, name="x")
    for part in (slice(0, 200), slice(200, 600)):
        one = ConfidenceTally()
        one.add(errors[part], confidence[part], name="x")
        halves.merge(one)
    first, second = whole.curve(), halves.curve()
    assert first is not None
    assert second is not None
    assert second.epe == pytest.approx(first.epe)
    # Against plain sorting.
    order = np.argsort(-confidence)
    assert first.epe[50] == pytest.approx(errors[order][:300].mean(), rel=1e-3)
    assert first.epe_oracle[50] == pytest.approx(np.sort(errors)[:300].mean(), rel=1e-3)


def test_nothing_has_no_curve() -> None:
    assert ConfidenceTally().curve() is None


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_a_confidence_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"street: .* no confidence"):
        ConfidenceTally().add(np.zeros(1), np.array([value]), name="street")


def test_quantiles_of_few_errors() -> None:
    histogram = ErrorHistogram()
    histogram.add(np.array([[0.0, 1.0], [2.0, 300.0]]))
    assert [histogram.quantile(q) for q in (0.25, 0.5, 0.51, 0.75, 1)] == [0, 1, 2, 2, 300]
    assert math.isnan(ErrorHistogram().quantile(0.5))


def test_close_for_errors_of_any_size() -> None:
    errors = 10 ** np.random.default_rng(0).uniform(-6, 6, 20000)
    histogram = ErrorHistogram()
    for part in np.split(errors, 4):
        other = ErrorHistogram()
        other.add(part)
        histogram.merge(other)
    for q in (0.01, 0.5, 0.9, 0.999):
        exact = np.quantile(errors, q, method="inverted_cdf")
        assert histogram.quantile(q) == pytest.approx(exact, rel=1 / 2048)


def test_counts_between_edges() -> None:
    histogram = ErrorHistogram()
    histogram.add(np.array([0.0, 0.5, 0.75, 1.0, 2.0, 9.0]))
    assert histogram.between([0, 0.5, 1, 2]) == [1, 2, 1]
    assert histogram.between([2, math.inf]) == [2]
