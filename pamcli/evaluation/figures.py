"""What do all figures share: their meters, the parts of a picture, and how errors are distributed?"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError

Figures = Mapping[str, Mapping[str, float]]
"""Figures by part of the pictures ("noc", "both") -> metric ("d1", "psnr") -> value. A part without pixels is
absent; NaN: it could not be computed."""


@dataclass(frozen=True)
class ImageFigures:
    """The figures of one pair; none where no pixel of it was counted."""

    name: str
    figures: Figures
    seconds: float | None = None
    """What the method took, where that is known."""
    memory: int | None = None
    """Bytes that it took at most beyond what was held before, where that is known."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a method reaches on a whole data set."""

    images: tuple[ImageFigures, ...]
    image_means: Figures
    """Means of the pairs' figures."""
    notes: tuple[str, ...] = ()
    """What changes the figures, a clause each."""

    @property
    def headline(self) -> Figures:
        """The average that is stated first."""
        return self.image_means

    def having(self, part: str) -> int:
        """Count the pairs that have a part: "all", "noc", "left" ..."""
        return sum(part in image.figures for image in self.images)


Case = TypeVar("Case")
Answer = TypeVar("Answer")
Total = TypeVar("Total", bound=Summary)


class Meter(ABC, Generic[Case, Answer, Total]):
    """Measures what a method answers to one case after the other: truths, and what the method was given."""

    @abstractmethod
    def add(self, case: Case, answer: Answer) -> ImageFigures:
        """Measure one answer. Raises InputError naming the sample."""

    @abstractmethod
    def summary(self) -> Total:
        """Summarise all answers so far. Raises InputError: an empty set has no score."""


def mean_figures(images: Iterable[ImageFigures], weights: Mapping[str, float] | None = None) -> Figures:
    """Take the means of each figure over the pairs that have it; NaN where one of these is.

    weights: of pairs, by the last part of their names; all others have 1. Raises InputError: no pair.
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
    """Columns and rows of a shape (H, W), for messages, and whatever else it has."""
    return " x ".join(map(str, (*shape[1::-1], *shape[2:])))


def flat(figures: Figures) -> dict[str, float]:
    """Name figures as their columns are: "d1" of all pixels, "noc d1", "both psnr"."""
    return {
        metric if part == "all" else f"{part} {metric}": value
        for part, values in figures.items()
        for metric, value in values.items()
    }


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
