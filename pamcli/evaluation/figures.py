"""Define the parts that all metrics share: meters, summaries and error distributions."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError

Figures = Mapping[str, Mapping[str, float]]
"""Metrics: region ("noc", "both") -> metric ("d1", "psnr") -> value. Regions without pixels are absent; NaN
marks a value that could not be computed."""


@dataclass(frozen=True)
class ImageFigures:
    """The metrics of one pair; empty if none of its pixels was counted."""

    name: str
    figures: Figures
    seconds: float | None = None
    """Run time of the method, s, if known."""
    memory: int | None = None
    """Peak memory of the method beyond what was in use before, bytes, if known."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The metrics of a method on a whole data set."""

    images: tuple[ImageFigures, ...]
    image_means: Figures
    """Means of the metrics of the pairs."""
    notes: tuple[str, ...] = ()
    """Circumstances that change the metrics, one clause each."""

    @property
    def headline(self) -> Figures:
        """The average that is reported first."""
        return self.image_means

    def having(self, part: str) -> int:
        """Return the number of pairs that have a region: "all", "noc", "left", ..."""
        return sum(part in image.figures for image in self.images)


Case = TypeVar("Case")
Answer = TypeVar("Answer")
Total = TypeVar("Total", bound=Summary)


class Meter(ABC, Generic[Case, Answer, Total]):
    """A meter that measures the answers of a method, one case after the other."""

    @abstractmethod
    def add(self, case: Case, answer: Answer) -> ImageFigures:
        """Measure one answer; raise InputError that names the sample."""

    @abstractmethod
    def summary(self) -> Total:
        """Summarize all answers so far; raise InputError if there are none."""


def mean_figures(images: Iterable[ImageFigures], weights: Mapping[str, float] | None = None) -> Figures:
    """Compute the mean of each metric over the pairs that have it; NaN if any of its values is NaN.

    `weights`: weights of pairs, by the last component of their names; 1 for all others. Raises InputError:
    there are no pairs.
    """
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for image in images:
        weight = (weights or {}).get(image.name.rpartition("/")[2], 1.0)
        for part, figures in image.figures.items():
            for metric, value in figures.items():
                found.setdefault(part, {}).setdefault(metric, []).append((value, weight))
    if not found:
        raise InputError("no pair was measured", "an empty set has no mean")

    def mean(values: Iterable[tuple[float, float]]) -> float:
        return float(np.average([value for value, _ in values], weights=[weight for _, weight in values]))

    return {part: {metric: mean(values) for metric, values in each.items()} for part, each in found.items()}


def size_of(shape: Sequence[int]) -> str:
    """Format a shape (H, W, ...) for messages, width first."""
    return " x ".join(map(str, (*shape[1::-1], *shape[2:])))


def flat(figures: Figures) -> dict[str, float]:
    """Flatten metrics to column names: "d1" for all pixels, "noc d1", "both psnr"."""
    return {
        metric if part == "all" else f"{part} {metric}": value
        for part, values in figures.items()
        for metric, value in values.items()
    }


FRACTIONS = tuple(index / 100 for index in range(100))
"""Fractions of removed pixels at which curves are sampled."""

BAD = 2.0
"""Error threshold, px, of bad pixels in the second curve."""

_LEVELS = 65536  # quantisation of confidence, as in 16-bit confidence files


@dataclass(frozen=True)
class ConfidenceCurve:
    """A sparsification curve: errors after removing each of `FRACTIONS`, least confident pixels first."""

    pixels: int
    epe: tuple[float, ...]
    """End-point error, px."""
    epe_oracle: tuple[float, ...]
    bad_2: tuple[float, ...]
    """Bad pixels, percent."""
    bad_2_oracle: tuple[float, ...]
    ause_epe: float
    ause_bad_2: float


class ConfidenceTally:
    """Errors by confidence, accumulated over any number of images in 14 MB."""

    def __init__(self) -> None:
        self._errors = ErrorHistogram()
        self._by_level = np.zeros((3, _LEVELS))
        """Pixel count, sum of errors and count of bad pixels, per level of confidence."""

    def add(self, errors: NDArray[np.floating], confidence: NDArray[np.floating], *, name: str) -> None:
        """Add pixels.

        `errors`: (N,), px, finite. `confidence`: (N,), in [0, 1]. `name`: the sample, for messages. Raises
        InputError: a confidence is unknown or outside [0, 1].
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
        """Compute the curve, or return None if there are no pixels."""
        pixels, _, wrong = self._by_level.sum(axis=1)
        if not pixels:
            return None
        # Groups are sorted last removed first: by confidence, or for the oracle by smallest error.
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
    """Return the mean over the remaining pixels at each fraction; groups are sorted last removed first."""
    used = counts > 0
    upto = np.concatenate([[0.0], np.cumsum(counts[used])])
    total = np.concatenate([[0.0], np.cumsum(sums[used])])
    staying = (1 - np.array(FRACTIONS)) * upto[-1]
    return np.asarray(np.interp(staying, upto, total) / staying)


def _area(curve: NDArray[np.float64], oracle: NDArray[np.float64]) -> float:
    if curve[0] == 0:
        return 0.0  # no errors: every order is the oracle's
    return float(np.trapezoid((curve - oracle) / curve[0], FRACTIONS))


# Positive floats sort as their bits do. Dropping the last 12 of 23 mantissa bits makes each bin at most
# 1/2048 of its value wide, for errors of any size: 522,240 bins, 8 MB with the sums.
_DROPPED_BITS = 12
_BINS = int(np.array(np.inf, np.float32).view(np.uint32)) >> _DROPPED_BITS


class ErrorHistogram:
    """A histogram of finite, non-negative errors: counts and sums in bins of 0.05 % relative width."""

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(_BINS, np.int64)
        self.sums: NDArray[np.float64] = np.zeros(_BINS)

    def add(self, errors: NDArray[np.floating]) -> None:
        """Add errors of any shape, finite and at least 0."""
        flat = errors.ravel()
        bins = flat.astype(np.float32).view(np.uint32) >> _DROPPED_BITS
        self.counts += np.bincount(bins, minlength=_BINS)
        self.sums += np.bincount(bins, weights=flat, minlength=_BINS)

    def merge(self, other: "ErrorHistogram") -> None:
        self.counts += other.counts
        self.sums += other.sums

    def quantile(self, fraction: float) -> float:
        """Return the smallest error that at least `fraction` of all errors do not exceed, NaN if empty.

        The result is the mean of the errors in its bin, accurate to 0.05 %.
        """
        total = int(self.counts.sum())
        if not total:
            return float("nan")
        rank = max(1, int(np.ceil(fraction * total)))
        found = int(np.searchsorted(np.cumsum(self.counts), rank))
        return float(self.sums[found] / self.counts[found])

    def between(self, edges: list[float]) -> list[int]:
        """Count the errors in [edges[i], edges[i + 1]) for rising edges, accurate to 0.05 %."""
        positions = np.array(edges, np.float32).view(np.uint32) >> _DROPPED_BITS
        below = np.concatenate([[0], np.cumsum(self.counts)])[np.minimum(positions, _BINS)]
        return [int(count) for count in np.diff(below)]
