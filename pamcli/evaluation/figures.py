"""What figures are: by the part of the pictures that they are about; and the meters that take them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

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
