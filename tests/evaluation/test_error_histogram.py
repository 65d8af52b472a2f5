from __future__ import annotations

import math

import numpy as np
import pytest

from pamcli.evaluation.error_histogram import ErrorHistogram


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
