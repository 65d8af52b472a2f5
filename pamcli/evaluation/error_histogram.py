"""Distribution of the errors of a whole data set in a fixed amount of memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Positive floats order as their bits do. Without the last 12 of 23 bits of the mantissa, a bin is at most
# 1/2048 of its value wide, for errors of any size: 522,240 bins, 8 MB with the sums.
_DROPPED_BITS = 12
_BINS = int(np.array(np.inf, np.float32).view(np.uint32)) >> _DROPPED_BITS


class ErrorHistogram:
    """Counts and sums of finite errors >= 0 in bins of 0.05 % relative width."""

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(_BINS, np.int64)
        self.sums: NDArray[np.float64] = np.zeros(_BINS)

    def add(self, errors: NDArray[np.floating]) -> None:
        """errors: of any shape, finite, at least 0."""
        flat = errors.ravel()
        bins = flat.astype(np.float32).view(np.uint32) >> _DROPPED_BITS
        self.counts += np.bincount(bins, minlength=_BINS)
        self.sums += np.bincount(bins, weights=flat, minlength=_BINS)

    def merge(self, other: ErrorHistogram) -> None:
        self.counts += other.counts
        self.sums += other.sums

    def quantile(self, fraction: float) -> float:
        """The smallest error that at least `fraction` of all do not exceed, to 0.05 %; NaN of none.

        It is the mean of the errors in its bin.
        """
        total = int(self.counts.sum())
        if not total:
            return float("nan")
        rank = max(1, int(np.ceil(fraction * total)))
        found = int(np.searchsorted(np.cumsum(self.counts), rank))
        return float(self.sums[found] / self.counts[found])

    def between(self, edges: list[float]) -> list[int]:
        """How many errors lie in [edges[i], edges[i + 1]), to the bins' 0.05 %; edges rise."""
        positions = np.array(edges, np.float32).view(np.uint32) >> _DROPPED_BITS
        below = np.concatenate([[0], np.cumsum(self.counts)])[np.minimum(positions, _BINS)]
        return [int(count) for count in np.diff(below)]
