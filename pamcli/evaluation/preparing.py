"""What rules do to truth and estimate before measuring: holes filled, a finer grid of truth; errors."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample

Scalar = TypeVar("Scalar", bound=np.generic)


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


def repeated(values: NDArray[Scalar], times: int) -> NDArray[Scalar]:
    """Repeat each pixel of (H, W) so often in both directions: (times * H, times * W)."""
    return np.repeat(np.repeat(values, times, axis=0), times, axis=1)


def on_fine_grid(sample: Sample) -> tuple[Sample, int]:
    """Bring a sample's truth and masks to the finer grid of its truth; pictures stay as they are.

    Returns the sample, its truths and ndisp in pixels of that grid, and how many times finer that is; the
    sample itself and 1 where it has no such truth.
    """
    if sample.fine is None:
        return sample, 1
    times = sample.fine.shape[0] // sample.left.shape[0]

    def mask(values: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        return None if values is None else repeated(values, times)

    calibration = sample.calibration
    if calibration is not None and calibration.ndisp is not None:
        calibration = replace(calibration, ndisp=calibration.ndisp * times)
    finer = replace(
        sample,
        disparity=sample.fine * np.float32(times),
        visible=mask(sample.visible) if sample.fine_visible is None else sample.fine_visible,
        foreground=mask(sample.foreground),
        masks=sample.masks and {name: repeated(each, times) for name, each in sample.masks.items()},
        calibration=calibration,
    )
    return finer, times


def errors_of(
    estimate: NDArray[np.floating], sample: Sample, *, nearest: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.float64], tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Compare an estimate with a sample's truth, pixel by pixel: the truth, the error, and what D1 counts.

    estimate: (H, W) px, not finite = none. nearest: where the truth has a finer grid, each estimate is
    compared with the nearest of the truths within its pixel; the truth is then their mean, and NaN where one
    of them is unknown. Returns (H, W) each: truth in px, NaN = unknown; error in px, inf where there is no
    estimate; whether the error is above 3 px and above 5 % of the (largest) truth, and above 1 px and 5 %.
    These are computed in float32 as in KITTI's kit: exactly 5 % exceeds 0.05 by a hair there.
    """
    assert sample.disparity is not None
    truth = at = longest = sample.disparity
    filled = np.where(np.isfinite(estimate), estimate, np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        if nearest and sample.fine is not None:
            height, width = sample.left.shape[:2]
            times = sample.fine.shape[0] // height
            blocks = sample.fine.reshape(height, times, width, times).swapaxes(1, 2)
            within = blocks.reshape(height, width, times * times)  # the truths of each pixel
            truth, longest = within.mean(axis=-1), np.abs(within).max(axis=-1)
            best = np.abs(filled[..., None] - within).argmin(axis=-1)
            at = np.take_along_axis(within, best[..., None], axis=-1)[..., 0]
        error = np.abs(filled.astype(np.float64) - at)
        short = np.abs(filled.astype(np.float32) - at)
        beyond = (short / np.abs(longest)).astype(np.float64) > 0.05
        outliers = (short > 3) & beyond, (short > 1) & beyond
    return truth, error, outliers
