"""How KITTI's development kit treats a result before it measures it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def interpolate_background(disparity: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fill unknown pixels as the kit's `interpolateBackground` (io_disp.h) does.

    disparity: (H, W), pixels; NaN, inf or below 0 = unknown. In each row a gap takes the smaller of its two
    neighbours, what lies before the first or behind the last known pixel takes that one; then rows above the
    first and below the last row that knows anything copy that row. Rows between two such rows that know
    nothing at all stay unknown, as they do in the kit. Returns (H, W), NaN = unknown.
    """
    known = np.isfinite(disparity) & (disparity >= 0)
    width = disparity.shape[1]
    columns = np.broadcast_to(np.arange(width), disparity.shape)
    before = np.maximum.accumulate(np.where(known, columns, -1), axis=1)
    behind = np.minimum.accumulate(np.where(known, columns, width)[:, ::-1], axis=1)[:, ::-1]
    left = np.take_along_axis(disparity, np.maximum(before, 0), axis=1)
    right = np.take_along_axis(disparity, np.minimum(behind, width - 1), axis=1)
    left = np.where(before >= 0, left, np.nan)
    right = np.where(behind < width, right, np.nan)
    filled: NDArray[np.float32] = np.fmin(left, right).astype(np.float32)
    rows = np.flatnonzero(known.any(axis=1))
    if len(rows):
        filled[: rows[0]] = filled[rows[0]]
        filled[rows[-1] + 1 :] = filled[rows[-1]]
    return filled
