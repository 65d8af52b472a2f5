"""From two views that show about the same to their disparities and the fit of their rows, coarse to fine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pamcli.data.stereograms.geometry import Alignment, Points, corners, fit_rows, measured
from pamcli.data.stereograms.matching import Grey, census, match_densely
from pamcli.data.stereograms.result import SetAside

COARSE_AREA, COARSE_WIDTH = 40_000, 300
LOOK_AREA, LOOK_WIDTH = 12_000, 150
"""Pixels of the views, and their width, at which the first look for a vertical offset is made."""
REACH = 0.25
"""Largest disparity of either sign, as a share of the width."""
_ROWS = 5
"""Vertical offsets tried in the first look, pixels of the look to either side."""
FEWEST_POINTS = 25
_ALIKE = 0.25


def grey_of(view: NDArray[np.generic]) -> Grey:
    """(H, W) float32 of 0 .. 255 from (H, W, 3) uint8 or uint16."""
    weights = np.array([0.299, 0.587, 0.114], np.float32) / (257 if view.dtype == np.uint16 else 1)
    grey: Grey = view.astype(np.float32) @ weights
    return grey


def reduced(grey: Grey, factor: int) -> Grey:
    """(H // factor, W // factor): each pixel the mean of a block."""
    height, width = grey.shape[0] // factor * factor, grey.shape[1] // factor * factor
    if factor == 1:
        return grey
    return np.asarray(Image.fromarray(grey[:height, :width]).reduce(factor))


def factor_for(shape: tuple[int, ...], area: int, width: int) -> int:
    return max(1, -(-shape[1] // width), int(np.ceil(np.sqrt(shape[0] * shape[1] / area))))


def align(first: Grey, second: Grey) -> tuple[Points, Alignment, tuple[float, float]] | SetAside:
    """Points measured at full size, and the fit of their rows."""
    look = factor_for(first.shape, LOOK_AREA, LOOK_WIDTH)
    rows = look_for_rows(reduced(first, look), reduced(second, look)) * look
    factor = factor_for(first.shape, COARSE_AREA, COARSE_WIDTH)
    one, two = reduced(first, factor), reduced(second, factor)
    move = round(rows / factor)
    two = np.roll(two, -move, axis=0)
    reach = round(REACH * one.shape[1])
    dense = match_densely(one, two, -reach, reach)
    if dense.first_seen.mean() < _ALIKE:
        return SetAside(f"its halves do not show the same: {dense.first_seen.mean():.0%} of them match")
    low, high = np.percentile(dense.first[dense.first_seen], (0.5, 99.5)) * factor
    y, x = corners(one, dense.first_seen)
    points = Points(
        x.astype(float), y.astype(float), dense.first[y, x].astype(float), np.full(len(x), float(move))
    )
    two = reduced(second, factor)
    points = measured(one, two, points, 2, 4)
    while True:
        if len(points) < FEWEST_POINTS:
            return SetAside(f"its halves do not show the same: {len(points)} places match")
        shape = one.shape
        fit = fit_rows(points, shape)
        points = points.take(fit.inliers)
        if factor == 1:
            break
        smaller = factor // 2
        one, two = reduced(first, smaller), reduced(second, smaller)
        points = points.scaled(factor / smaller)
        # the best place of a coarser pixel is not that of a finer one
        points = measured(one, two, points, 3, 3)
        factor = smaller
    fit = fit_rows(points, first.shape)
    return points.take(fit.inliers), fit, (float(low), float(high))


def look_for_rows(one: Grey, two: Grey) -> int:
    """By how many rows the second view shows things lower, in whole pixels."""
    reach = round(REACH * one.shape[1])
    first, second = census(one), census(two)
    height, width = first.shape
    scores = {}
    for rows in sorted(range(-_ROWS, _ROWS + 1), key=abs):
        top, bottom = max(0, -rows), min(height, height - rows)
        best = np.full((bottom - top, width), 24.0, np.float32)
        for disparity in range(-reach, reach + 1):
            start, end = max(0, disparity), min(width, width + disparity)
            cost = np.bitwise_count(
                first[top:bottom, start:end]
                ^ second[top + rows : bottom + rows, start - disparity : end - disparity]
            ).astype(np.float32)
            sums = np.pad(cost, ((3, 2), (3, 2)), mode="edge").cumsum(0).cumsum(1)
            box = (sums[5:, 5:] - sums[:-5, 5:] - sums[5:, :-5] + sums[:-5, :-5]) / 25
            part = best[:, start:end]
            np.minimum(part, box, out=part)
        scores[rows] = float(best.mean())
    return min(scores, key=lambda rows: scores[rows])
