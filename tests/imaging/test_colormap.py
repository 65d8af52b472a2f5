"""Colours of disparity maps: a table of rising lightness, and what is outside of the range."""

from __future__ import annotations

import numpy as np
import pytest

from pamcli.errors import UsageError
from pamcli.imaging.colormap import colorize, get_color_table


def test_lightness_rises_and_no_colour_is_the_black_of_unknown() -> None:
    luminance = (get_color_table() / 255) ** 2.2 @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(luminance) > 0).all()
    assert 0.01 < luminance[0] < 0.05
    assert luminance[-1] > 0.75


@pytest.mark.parametrize(
    ("disparity", "entry"),
    [(10, 0), (20, 128), (30, 255), (-1, 0), (30.5, 255), (1e30, 255), (np.nan, None), (-np.inf, None)],
)
def test_disparities_are_clipped_and_unknown_is_black(disparity: float, entry: int | None) -> None:
    colored = colorize(np.array([[disparity]], np.float32), 10, 30)
    assert (colored.dtype, colored.shape) == (np.uint8, (1, 1, 3))
    assert (colored == (0 if entry is None else get_color_table()[entry])).all()


def test_ranges_that_are_empty() -> None:
    for low, high in ((5, 4), (0, np.inf), (np.nan, 3)):
        with pytest.raises(UsageError, match="range"):
            colorize(np.zeros((2, 2), np.float32), low, high)
    assert (colorize(np.full((2, 2), 7, np.float32), 7, 7) == get_color_table()[0]).all()
