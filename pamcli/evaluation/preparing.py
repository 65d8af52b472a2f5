"""Prepare estimates and ground truth for measuring: hole filling, fine grids, errors."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample

Scalar = TypeVar("Scalar", bound=np.generic)


def interpolate_background(disparity: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fill unknown pixels as `interpolateBackground` of the KITTI kit does (io_disp.h).

    In each row a gap gets the smaller of its two neighbours; the ends get the nearest known value. Rows above
    the first and below the last row with known pixels copy that row. Unknown rows in between stay unknown.
    `disparity`: (H, W), px; NaN, inf or below 0 = unknown. Returns (H, W), NaN = unknown.
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
    """Repeat each pixel of (H, W) in both directions: (times * H, times * W)."""
    return np.repeat(np.repeat(values, times, axis=0), times, axis=1)


def on_fine_grid(sample: Sample) -> tuple[Sample, int]:
    """Bring the ground truth and masks of a sample to its finer grid; images are unchanged.

    Returns the sample with ground truth and ndisp in fine pixels, and the factor; or the same sample and 1.
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
    """Compute per-pixel ground truth, errors and D1 outliers of an estimate.

    Outliers are computed in float32 as in KITTI's kit, where exactly 5 % slightly exceeds 0.05. `estimate`:
    (H, W), px; not finite = no estimate. `nearest`: on a finer grid, compare with the nearest ground truth
    within the pixel. The returned ground truth is then their mean, NaN if any of them is unknown. Returns (H,
    W) each: ground truth, px, NaN = unknown; error, px, inf without an estimate; and two masks, error above 3
    px and 5 % of the (largest) ground truth, and above 1 px and 5 %.
    """
    assert sample.disparity is not None
    truth = at = longest = sample.disparity
    filled = np.where(np.isfinite(estimate), estimate, np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        if nearest and sample.fine is not None:
            height, width = sample.left.shape[:2]
            times = sample.fine.shape[0] // height
            blocks = sample.fine.reshape(height, times, width, times).swapaxes(1, 2)
            within = blocks.reshape(height, width, times * times)  # all ground truths of each pixel
            truth, longest = within.mean(axis=-1), np.abs(within).max(axis=-1)
            best = np.abs(filled[..., None] - within).argmin(axis=-1)
            at = np.take_along_axis(within, best[..., None], axis=-1)[..., 0]
        error = np.abs(filled.astype(np.float64) - at)
        short = np.abs(filled.astype(np.float32) - at)
        beyond = (short / np.abs(longest)).astype(np.float64) > 0.05
        outliers = (short > 3) & beyond, (short > 1) & beyond
    return truth, error, outliers
