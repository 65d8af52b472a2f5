"""Compute per-pixel errors, the image regions that metrics are reported for, and error distributions.

Edges and textureless regions follow Scharstein and Szeliski (IJCV 2002, Section 5.1).
"""

import itertools
import math
from dataclasses import replace
from typing import NamedTuple, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample
from pamcli.errors import InputError
from pamcli.evaluation.protocols import DisparityProtocol

Mask = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)
Number = TypeVar("Number", np.int64, np.float64)

REGIONS = {
    "all": "every pixel with ground truth (KITTI: occ)",
    "noc": "pixels that are visible in both images",
    "occluded": "pixels that are not visible in the right image",
    "bg": "background (KITTI's object map)",
    "fg": "foreground (KITTI's object map)",
    "noc-bg": "background that is visible in both images",
    "noc-fg": "foreground that is visible in both images",
    "0-100": "ground truth below 100 px",
    "100-200": "ground truth from 100 to 200 px",
    ">200": "ground truth above 200 px",
    ">192": "ground truth above 192 px, the usual maximum of cost volumes",
    "low-detail": "pixels outside fine structures (Spring)",
    "high-detail": "fine structures, where the ground truth varies within a pixel (Spring)",
    "not-sky": "everything but the sky (Spring)",
    "sky": "the sky (Spring)",
    "class-0": "materials that are easy to match (Booster's class 0)",
    "class-1": "Booster's class 1",
    "class-2": "Booster's class 2",
    "class-3": "transparent and mirroring materials, the hardest (Booster's class 3)",
    "edges": "at most 4 px from a step of the ground truth by more than 2 px",
    "textureless": "mean squared horizontal grey-level difference below 4 in 3 x 3 pixels",
}

RANGES = ("0-100", "100-200", ">200", ">192")  # regions by size of the ground truth

FRACTIONS = tuple(index / 100 for index in range(100))  # fractions of removed pixels in sparsification curves

_JUMP, _REACH = 2.0, 4  # px of disparity; px of the image
_FLAT = 4.0  # squared 8-bit grey levels
_BAD = 2.0  # px, error threshold of bad pixels in sparsification curves
_LEVELS = 65536  # quantisation of confidence, as in 16-bit confidence files
# Positive floats sort as their bits do. Dropping the last 12 of 23 mantissa bits makes each bin at most
# 1/2048 of its value wide, for errors of any size: 522,240 bins, 8 MB with the sums.
_DROPPED_BITS = 12
BINS = int(np.array(np.inf, np.float32).view(np.uint32)) >> _DROPPED_BITS


def interpolate_background(disparity: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fill unknown pixels of (H, W), px, as `interpolateBackground` of the KITTI kit does (io_disp.h).

    In each row a gap gets the smaller of its two neighbours; the ends get the nearest known value. Rows above
    the first and below the last row with known pixels copy that row. Unknown rows in between stay unknown.
    """
    known = np.isfinite(disparity) & (disparity >= 0)
    filled = fill_rows(np.where(known, disparity, np.float32(np.nan)))
    rows = np.flatnonzero(known.any(axis=1))
    if len(rows):
        filled[: rows[0]] = filled[rows[0]]
        filled[rows[-1] + 1 :] = filled[rows[-1]]
    return filled


def fill_rows(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace NaN in (H, W) by the smaller of its neighbours in the row; rows of NaN stay."""
    return np.fmin(carry_forward(values), carry_forward(values[:, ::-1])[:, ::-1])


def carry_forward(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace NaN in (H, W) by the last value before it in the row; NaN remains where there is none."""
    places = np.where(np.isnan(values), 0, np.arange(values.shape[1]))
    np.maximum.accumulate(places, axis=1, out=places)
    return np.take_along_axis(values, places, 1)


def repeat_pixels(values: NDArray[Scalar], times: int) -> NDArray[Scalar]:
    """Repeat each pixel of (H, W) in both directions: (times * H, times * W)."""
    return np.repeat(np.repeat(values, times, axis=0), times, axis=1)


def use_fine_grid(sample: Sample) -> tuple[Sample, int]:
    """Return a sample with ground truth and masks on its finer grid, in fine px, and the factor."""
    assert sample.fine is not None
    times = sample.fine.shape[0] // sample.left.shape[0]
    visible = sample.visible if sample.fine_visible is None else None
    finer = replace(
        sample,
        disparity=sample.fine * np.float32(times),
        visible=sample.fine_visible if visible is None else repeat_pixels(visible, times),
        foreground=None if sample.foreground is None else repeat_pixels(sample.foreground, times),
        masks=sample.masks and {name: repeat_pixels(each, times) for name, each in sample.masks.items()},
        calibration=sample.calibration and sample.calibration.scale_width(times),
    )
    return finer, times


def compute_pixel_errors(
    estimate: NDArray[np.floating], sample: Sample, *, nearest: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.float64], tuple[Mask, Mask]]:
    """Return ground truth, px; error, px, inf without an estimate; and D1 outliers above 3 px and above 1 px.

    Outliers are computed in float32 as in KITTI's kit, where exactly 5 % slightly exceeds 0.05. `nearest`: on
    a finer grid, compare with the nearest ground truth within the pixel; the returned one is then their mean.
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


def make_region_masks(
    sample: Sample, truth: NDArray[np.float32], rules: DisparityProtocol
) -> dict[str, Mask]:
    """Return the counted pixels of each region, "all" first; `truth`: (H, W), px, NaN = unknown."""
    counted = np.isfinite(truth)
    with np.errstate(invalid="ignore"):
        if not rules.any_truth:
            counted &= truth > 0
        if rules.max_gt is not None:
            counted &= truth < rules.max_gt
    if rules.corner is not None:
        width, height = rules.corner
        counted[: max(0, counted.shape[0] - height)] = False
        counted[:, : max(0, counted.shape[1] - width)] = False
    masks = {"all": counted}
    if sample.visible is not None:
        masks |= {"noc": counted & sample.visible, "occluded": counted & ~sample.visible}
    if sample.foreground is not None:
        masks |= {"bg": counted & ~sample.foreground, "fg": counted & sample.foreground}
    if sample.visible is not None and sample.foreground is not None:
        masks |= {"noc-bg": masks["bg"] & sample.visible, "noc-fg": masks["fg"] & sample.visible}
    for name, mask in (sample.masks or {}).items():
        masks[name] = counted & mask
    with np.errstate(invalid="ignore"):
        masks["0-100"] = counted & (truth < 100)
        masks["100-200"] = counted & (truth >= 100) & (truth <= 200)
        masks[">200"] = counted & (truth > 200)
        masks[">192"] = counted & (truth > 192)
        for (region, low), high in zip(name_ranges(rules.ranges).items(), rules.ranges[1:], strict=True):
            masks[region] = counted & (truth >= low) & (truth < high)
    return masks


def name_ranges(edges: tuple[float, ...]) -> dict[str, float]:
    """Return the names of the ground-truth ranges between edges, px, with their lower edges."""
    names = {}
    for low, high in itertools.pairwise(edges):
        names[f"{low:g} and more" if math.isinf(high) else f"{low:g} to {high:g}"] = low
    return names


def compute_regions(sample: Sample) -> dict[str, Mask]:
    """Return masks (H, W): within 4 px of a ground-truth step, and textureless parts of the left image."""
    assert sample.disparity is not None
    jumps = np.zeros(sample.disparity.shape, np.uint8)
    with np.errstate(invalid="ignore"):
        across = np.abs(np.diff(sample.disparity, axis=1)) > _JUMP
        down = np.abs(np.diff(sample.disparity, axis=0)) > _JUMP
    jumps[:, 1:] |= across
    jumps[:, :-1] |= across
    jumps[1:] |= down
    jumps[:-1] |= down
    grey = sample.left.mean(axis=2, dtype=np.float64) / (257 if sample.left.dtype == np.uint16 else 1)
    squares = np.diff(grey, axis=1, prepend=grey[:, :1]) ** 2
    near = cv2.dilate(jumps, np.ones((2 * _REACH + 1, 2 * _REACH + 1), np.uint8))
    sums, counts = (sum_windows(np.pad(each, 1), 3, 3) for each in (squares, np.ones_like(squares)))
    return {"edges": near.astype(np.bool_), "textureless": sums < _FLAT * counts}


def sum_windows(values: NDArray[Number], height: int, width: int) -> NDArray[Number]:
    """Sum over all windows inside, exact for integers: (H, W) -> (H - height + 1, W - width + 1)."""
    rows = np.cumsum(np.pad(values, ((1, 0), (0, 0))), axis=0)
    columns = np.cumsum(np.pad(rows[height:] - rows[:-height], ((0, 0), (1, 0))), axis=1)
    return np.asarray(columns[:, width:] - columns[:, :-width])


def make_error_histogram(errors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return counts and sums (2, N) of errors in bins of 0.05 % relative width; they can be added."""
    flat = errors.ravel()
    bins = flat.astype(np.float32).view(np.uint32) >> _DROPPED_BITS
    counts = np.bincount(bins, minlength=BINS)
    return np.stack([counts, np.bincount(bins, weights=flat, minlength=BINS)])


def find_quantile(histogram: NDArray[np.float64], fraction: float) -> float:
    """Return the smallest error that `fraction` of all do not exceed, to 0.05 %; NaN if empty."""
    upto = np.cumsum(histogram[0])
    if not upto[-1]:
        return math.nan
    found = int(np.searchsorted(upto, max(1, math.ceil(fraction * upto[-1]))))
    return float(histogram[1, found] / histogram[0, found])


def count_between(histogram: NDArray[np.float64], edges: tuple[float, ...]) -> tuple[int, ...]:
    """Count the errors in [edges[i], edges[i + 1]) for rising edges, accurate to 0.05 %."""
    positions = np.array(edges, np.float32).view(np.uint32) >> _DROPPED_BITS
    below = np.concatenate([[0], np.cumsum(histogram[0])])[np.minimum(positions, BINS)]
    return tuple(map(int, np.diff(below)))


def count_by_confidence(
    errors: NDArray[np.floating], confidence: NDArray[np.floating], *, name: str
) -> NDArray[np.float64]:
    """Return pixel count, sum of errors and count of bad pixels, per level of confidence: (3, 65536)."""
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise InputError(
            f"{name}: the confidence must be from 0 to 1 at every pixel with a disparity",
            "0 = unreliable, 1 = certain",
        )
    levels = np.rint(confidence * (_LEVELS - 1)).astype(np.intp)
    rows = np.empty((3, _LEVELS))
    for row, weights in zip(rows, (None, errors, errors > _BAD), strict=True):
        row[:] = np.bincount(levels, weights, minlength=_LEVELS)
    return rows


class SparsificationCurve(NamedTuple):
    """Errors after removing each of `FRACTIONS`: the least confident pixels, or (oracle) the worst ones."""

    epe: NDArray[np.float64]  # end-point error, px
    epe_oracle: NDArray[np.float64]
    bad_2: NDArray[np.float64]  # bad pixels, percent
    bad_2_oracle: NDArray[np.float64]
    areas: dict[str, float]
    """Areas between each curve and its oracle, relative to the error of all pixels, by metric."""


def compute_sparsification(
    by_confidence: NDArray[np.float64], histogram: NDArray[np.float64]
) -> SparsificationCurve | None:
    """Return the curve of `count_by_confidence` and `make_error_histogram`; None without pixels."""
    pixels, _, wrong = by_confidence.sum(axis=1)
    if not pixels:
        return None
    # Groups are sorted last removed first: by confidence, or for the oracle by smallest error.
    counts, sums, bad_counts = by_confidence[:, ::-1]
    epe, epe_oracle = _average_remaining(counts, sums), _average_remaining(*histogram)
    bad = 100 * _average_remaining(counts, bad_counts)
    bad_oracle = 100 * _average_remaining(np.array([pixels - wrong, wrong]), np.array([0, wrong]))
    areas = {}
    for name, curve, oracle in (("ause-epe", epe, epe_oracle), ("ause-bad-2", bad, bad_oracle)):
        # Without errors, every order is the oracle's.
        areas[name] = float(np.trapezoid((curve - oracle) / curve[0], FRACTIONS)) if curve[0] else 0.0
    return SparsificationCurve(epe, epe_oracle, bad, bad_oracle, areas)


def _average_remaining(counts: NDArray[np.number], sums: NDArray[np.number]) -> NDArray[np.float64]:
    """Return the mean over the remaining pixels at each fraction; groups are sorted last removed first."""
    used = counts > 0
    upto = np.concatenate([[0.0], np.cumsum(counts[used])])
    total = np.concatenate([[0.0], np.cumsum(sums[used])])
    staying = (1 - np.array(FRACTIONS)) * upto[-1]
    return np.asarray(np.interp(staying, upto, total) / staying)
