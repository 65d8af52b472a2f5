"""Gaps and grey of tiles."""

from __future__ import annotations

import numpy as np

from pamcli.inference.satellite_tiles import fill_gaps, stretch

NAN = np.nan


def test_gaps_take_the_nearest_known_pixel() -> None:
    view = np.array(
        [[NAN, 1, NAN, NAN, NAN, 5], [NAN] * 6, [NAN] * 6, [NAN, NAN, 7, NAN, NAN, NAN], [2, 3, 4, 5, 6, 7]],
        np.float32,
    )
    expected = [[1, 1, 1, 1, 5, 5], [1, 1, 1, 1, 5, 5], [7] * 6, [7] * 6, [2, 3, 4, 5, 6, 7]]
    assert np.array_equal(fill_gaps(view), expected)


def test_grey_is_stretched_between_percentiles() -> None:
    view = np.linspace(1000, 3000, 100 * 100, dtype=np.float32).reshape(100, 100)
    view[0, 0] = 1e6  # one hot pixel
    grey = stretch(view)
    assert (grey.min(), grey.max()) == (0, 1)
    assert abs(float(np.median(grey)) - 0.5) < 0.01
    assert np.array_equal(stretch(np.full((4, 4), 7, np.float32)), np.zeros((4, 4)))
