from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import DTypeLike

from pamcli.imaging.resize import bicubic


def one_dimension(values: np.ndarray, scale: int) -> np.ndarray:
    """Bicubic interpolation of a row, written out: of four neighbours, those outside are left out."""

    def kernel(x: float) -> float:
        x = abs(x)
        if x < 1:
            return 1.5 * x**3 - 2.5 * x**2 + 1
        return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0

    result = np.zeros(len(values) * scale)
    for index in range(len(result)):
        centre = (index + 0.5) / scale - 0.5
        weights = np.array([kernel(centre - k) for k in range(len(values))])
        result[index] = (weights @ values) / weights.sum()
    return result


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_is_the_bicubic_of_the_books(dtype: DTypeLike, scale: int) -> None:
    top = np.iinfo(dtype).max
    channel = np.random.default_rng(0).integers(0, top, (7, 9), endpoint=True).astype(dtype)
    rows = np.array([one_dimension(row, scale) for row in channel.astype(np.float64)])
    exact = np.clip(np.array([one_dimension(column, scale) for column in rows.T]).T, 0, top)
    large = bicubic(channel, scale)
    assert large.dtype == dtype
    assert large.shape == (7 * scale, 9 * scale)
    assert np.abs(large - exact).max() <= 0.51  # rounding, and float32 along the way


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_constant_stays_and_edges_do_not_wrap_around(dtype: DTypeLike) -> None:
    top = np.iinfo(dtype).max
    constant = np.full((5, 6), top, dtype)
    assert (bicubic(constant, 4) == top).all()
    step = np.zeros((6, 8), dtype)
    step[:, 4:] = top
    large = bicubic(step, 4)  # overshoots on both sides of the step
    assert large.min() == 0
    assert (large[:, :12] < top // 8).all()
    assert (large[:, -12:] > top - top // 8).all()


def test_a_scale_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="scale"):
        bicubic(np.zeros((4, 4), np.uint8), 0)
