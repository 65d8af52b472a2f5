"""Errors of a whole data set in a fixed amount of memory: their histogram, and how they go with confidence.

Sparsification is how the error falls when the least confident pixels are left out. With the fraction f of
pixels removed, least confident first, the curve is the error of those that stay; the oracle removes the
largest errors first. AUSE, the area under the sparsification error (Ilg et al., ECCV 2018), is the area
between both curves over f = 0, 0.01 ... 0.99 (trapezoids), each divided by the error at f = 0; 0 means an
order as good as the oracle's. Given for the end-point error and for bad-2. Pixels of equal confidence are
removed in random order, so their mean counts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError

FRACTIONS = tuple(index / 100 for index in range(100))
"""Removed fractions at which curves are given."""

BAD = 2.0
"""Error, px, above which a pixel is bad in the second curve."""

_LEVELS = 65536  # of confidence, as in pam's 16-bit confidence files


@dataclass(frozen=True)
class ConfidenceCurve:
    """How the error falls when the least confident pixels go: at each of `FRACTIONS`."""

    pixels: int
    epe: tuple[float, ...]
    """px"""
    epe_oracle: tuple[float, ...]
    bad_2: tuple[float, ...]
    """percent"""
    bad_2_oracle: tuple[float, ...]
    ause_epe: float
    ause_bad_2: float


class ConfidenceTally:
    """Errors by confidence, of one picture or of many, in 14 MB however many there are."""

    def __init__(self) -> None:
        self._errors = ErrorHistogram()
        self._by_level = np.zeros((3, _LEVELS))
        """Pixels, the sum of their errors, and how many are bad, for each level of confidence."""

    def add(self, errors: NDArray[np.floating], confidence: NDArray[np.floating], *, name: str) -> None:
        """Add pixels. errors: (N,) px, finite. confidence: (N,) in [0, 1]. name: the sample, for messages.

        Raises InputError: a confidence that is unknown or outside [0, 1].
        """
        if not ((confidence >= 0) & (confidence <= 1)).all():
            raise InputError(
                f"{name}: a pixel with a disparity has no confidence in [0, 1]",
                "confidence runs from 0, no idea, to 1, sure",
            )
        levels = np.rint(confidence * (_LEVELS - 1)).astype(np.intp)
        self._errors.add(errors)
        for row, weights in zip(self._by_level, (None, errors, errors > BAD), strict=True):
            row += np.bincount(levels, weights, minlength=_LEVELS)

    def merge(self, other: "ConfidenceTally") -> None:
        self._errors.merge(other._errors)
        self._by_level += other._by_level

    def curve(self) -> ConfidenceCurve | None:
        """Compute the curve; None where nothing was added."""
        pixels, _, wrong = self._by_level.sum(axis=1)
        if not pixels:
            return None
        # Groups in the order in which they stay: surest first; for the oracle, smallest errors first.
        counts, sums, bad_counts = self._by_level[:, ::-1]
        epe, epe_oracle = _remaining(counts, sums), _remaining(self._errors.counts, self._errors.sums)
        bad = 100 * _remaining(counts, bad_counts)
        bad_oracle = 100 * _remaining(np.array([pixels - wrong, wrong]), np.array([0, wrong]))
        return ConfidenceCurve(
            int(pixels),
            epe=tuple(epe.tolist()),
            epe_oracle=tuple(epe_oracle.tolist()),
            bad_2=tuple(bad.tolist()),
            bad_2_oracle=tuple(bad_oracle.tolist()),
            ause_epe=_area(epe, epe_oracle),
            ause_bad_2=_area(bad, bad_oracle),
        )


def _remaining(counts: NDArray[np.number], sums: NDArray[np.number]) -> NDArray[np.float64]:
    """Return the mean over what stays at each fraction; groups in the order in which they stay longest."""
    used = counts > 0
    upto = np.concatenate([[0.0], np.cumsum(counts[used])])
    total = np.concatenate([[0.0], np.cumsum(sums[used])])
    staying = (1 - np.array(FRACTIONS)) * upto[-1]
    return np.asarray(np.interp(staying, upto, total) / staying)


def _area(curve: NDArray[np.float64], oracle: NDArray[np.float64]) -> float:
    if curve[0] == 0:
        return 0.0  # nothing is wrong: every order is the oracle's
    return float(np.trapezoid((curve - oracle) / curve[0], FRACTIONS))


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
        """Count errors, of any shape, finite, at least 0."""
        flat = errors.ravel()
        bins = flat.astype(np.float32).view(np.uint32) >> _DROPPED_BITS
        self.counts += np.bincount(bins, minlength=_BINS)
        self.sums += np.bincount(bins, weights=flat, minlength=_BINS)

    def merge(self, other: "ErrorHistogram") -> None:
        self.counts += other.counts
        self.sums += other.sums

    def quantile(self, fraction: float) -> float:
        """Return the smallest error that at least `fraction` of all do not exceed, to 0.05 %; NaN of none.

        It is the mean of the errors in its bin.
        """
        total = int(self.counts.sum())
        if not total:
            return float("nan")
        rank = max(1, int(np.ceil(fraction * total)))
        found = int(np.searchsorted(np.cumsum(self.counts), rank))
        return float(self.sums[found] / self.counts[found])

    def between(self, edges: list[float]) -> list[int]:
        """Count the errors in [edges[i], edges[i + 1]), to the bins' 0.05 %; edges rise."""
        positions = np.array(edges, np.float32).view(np.uint32) >> _DROPPED_BITS
        below = np.concatenate([[0], np.cumsum(self.counts)])[np.minimum(positions, _BINS)]
        return [int(count) for count in np.diff(below)]
