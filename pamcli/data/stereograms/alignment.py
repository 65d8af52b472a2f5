"""How two views lie against each other, coarse to fine.

First a look for the vertical offset, then disparities of a small picture, then places followed through larger
and larger ones until they are measured at full size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pamcli.data.stereograms.geometry import Alignment, Points, corners, fit_rows, measured
from pamcli.data.stereograms.matching import BITS, Grey, census, match_densely
from pamcli.data.stereograms.result import SetAside

REACH = 0.25
"""Largest disparity of either sign, as a share of the width."""
FEWEST_POINTS = 30
"""Places that must be found in both views, and fit; ordinary pictures halved have up to 25 by chance."""
FEWEST_ALIKE = 0.25
"""Share of the pixels of the small picture that must be."""
_LOOK_AREA, _LOOK_WIDTH = 12_000, 150
"""Pixels of a view, and its width, for the look at the vertical offset."""
_LOOK_ROWS = 0.1
"""How far up and down is looked, as a share of the height."""
_LOOK_BOX = 5
"""Its pixels to either direction over which costs are averaged."""
_COARSE_AREA, _COARSE_WIDTH = 40_000, 300
"""Pixels of a view, and its width, for the first disparities."""
_TAILS = (0.5, 99.5)
"""Percentiles of the disparities there that count."""


@dataclass(frozen=True)
class Aligned:
    """What is known of two views before they are straightened."""

    fit: Alignment
    lowest: float
    """Disparities lie about between these, full-size pixels."""
    highest: float


def align(first: Grey, second: Grey) -> Aligned | SetAside:
    """Two views (H, W) of one size, 0 .. 255. SetAside: they do not show the same."""
    look = factor_for(first.shape, _LOOK_AREA, _LOOK_WIDTH)
    rows = _look_for_rows(reduced(first, look), reduced(second, look)) * look
    factor = factor_for(first.shape, _COARSE_AREA, _COARSE_WIDTH)
    one, two = reduced(first, factor), reduced(second, factor)
    move = round(rows / factor)
    reach = round(REACH * one.shape[1])
    dense = match_densely(one, np.roll(two, -move, axis=0), -reach, reach)
    alike = float(dense.first_seen.mean())
    if alike < FEWEST_ALIKE:
        return SetAside(f"its halves do not show the same: {alike:.0%} of them match")
    lowest, highest = np.percentile(dense.first[dense.first_seen], _TAILS) * factor
    y, x = corners(one, dense.first_seen)
    disparity = dense.first[y, x].astype(np.float64)
    guess = Points(x.astype(np.float64), y.astype(np.float64), disparity, np.full(len(x), float(move)))
    points = measured(one, two, guess, reach_x=2, reach_y=4)
    while len(points) >= FEWEST_POINTS:
        fit = fit_rows(points, one.shape)
        points = points.take(fit.inliers)
        if factor == 1:
            if len(points) >= FEWEST_POINTS:
                return Aligned(fit, float(lowest), float(highest))
            break
        finer = factor // 2
        one, two = reduced(first, finer), reduced(second, finer)
        points = measured(one, two, points.scaled(factor / finer), reach_x=3, reach_y=3)
        factor = finer
    return SetAside(f"its halves do not show the same: of {len(y)} places {len(points)} match")


def grey_of(view: NDArray[np.generic]) -> Grey:
    """(H, W) float32 of 0 .. 255 from (H, W, 3) uint8 or uint16."""
    weights = np.array([0.299, 0.587, 0.114], np.float32) / np.float32(257 if view.dtype == np.uint16 else 1)
    grey: Grey = view.astype(np.float32) @ weights
    return grey


def reduced(grey: Grey, factor: int) -> Grey:
    """(H // factor, W // factor): each pixel the mean of a block."""
    if factor == 1:
        return grey
    height, width = (side // factor * factor for side in grey.shape)
    return np.asarray(Image.fromarray(grey[:height, :width]).reduce(factor))


def factor_for(shape: tuple[int, ...], area: int, width: int) -> int:
    """The smallest whole factor that reduces (H, W) to no more than an area and a width."""
    return max(1, -(-shape[1] // width), int(np.ceil(np.sqrt(shape[0] * shape[1] / area))))


def _look_for_rows(one: Grey, two: Grey) -> int:
    """By how many rows the second view shows things lower, about."""
    first, second = census(one), census(two)
    height, width = first.shape
    reach, most = round(REACH * width), round(_LOOK_ROWS * height)

    def mean_cost(rows: int) -> float:
        """Of the best match of each pixel in the row `rows` below."""
        top, bottom = max(0, -rows), min(height, height - rows)
        best = np.full((bottom - top, width), BITS, np.float32)
        for disparity in range(-reach, reach + 1):
            start, end = max(0, disparity), min(width, width + disparity)
            here = first[top:bottom, start:end]
            there = second[top + rows : bottom + rows, start - disparity : end - disparity]
            part = best[:, start:end]
            np.minimum(part, _averaged(np.bitwise_count(here ^ there)), out=part)
        return float(best.mean())

    costs = {rows: mean_cost(rows) for rows in sorted(range(-most, most + 1), key=abs)}
    return min(costs, key=lambda rows: costs[rows])


def _averaged(costs: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(H, W): the mean over a square, the pixels at the edges repeated."""
    half = _LOOK_BOX // 2
    padded = np.pad(costs, ((half + 1, half), (half + 1, half)), mode="edge")
    sums = padded.cumsum(axis=0, dtype=np.float32).cumsum(axis=1)
    n = _LOOK_BOX
    box: NDArray[np.float32] = sums[n:, n:] - sums[:-n, n:] - sums[n:, :-n] + sums[:-n, :-n]
    return box / np.float32(n * n)
