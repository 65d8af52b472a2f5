"""Compare the disparity maps of both images of a pair."""

import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.networks.parallax import find_consistent

ROWS_AT_ONCE = 64  # rows per step of the visibility computation


def measure_agreement(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 2^(-d^2) for a difference of both disparity maps (H, W) of d px; 0 outside the right image."""
    width = left.shape[1]
    there = np.nan_to_num(np.arange(width, dtype=np.float32) - left, nan=-1)  # foreign networks return NaN
    inside = (there >= 0) & (there <= width - 1)
    place = np.clip(np.rint(there), 0, width - 1).astype(np.intp)
    apart = left - np.take_along_axis(right, place, axis=1)
    inside &= np.isfinite(apart)
    return np.where(inside, np.exp2(-np.square(np.minimum(np.abs(apart), 10))), 0).astype(np.float32)


def find_visible(
    left: NDArray[np.float32], right: NDArray[np.float32], attended: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Return where the disparities (H, W) of both images agree and the left pixel receives attention."""
    visible = np.empty(left.shape, bool)
    for first in range(0, len(left), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        visible[rows] = find_consistent(torch.from_numpy(left[rows]), torch.from_numpy(right[rows])).numpy()
    return visible if attended is None else visible & attended
