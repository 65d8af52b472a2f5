"""Figures by the part of the pictures that they are about, and what a meter is that measures them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Figures = Mapping[str, Mapping[str, float]]
"""Part of the pictures ("noc", "both") -> metric ("d1", "psnr") -> value. A part without pixels is absent;
NaN: it could not be computed."""


@dataclass(frozen=True)
class ImageFigures:
    """The figures of one pair; none where no pixel of it was counted."""

    name: str
    figures: Figures
    seconds: float | None = None
    """What the network took, where that is known."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a method reaches on a whole data set."""

    images: tuple[ImageFigures, ...]
    image_means: Figures
    """Means of the pairs' figures."""
    notes: tuple[str, ...] = ()
    """What changes the figures, a clause each."""
    warnings: tuple[str, ...] = ()
    """Why they are probably not what was meant."""

    @property
    def headline(self) -> Figures:
        """The average that is stated first."""
        return self.image_means

    @property
    def counted(self) -> int:
        """Pairs in which pixels were counted."""
        return sum(bool(image.figures) for image in self.images)


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


def flat(figures: Figures) -> dict[str, float]:
    """Name figures as their columns are: "d1" of all pixels, "noc d1", "both psnr"."""
    return {
        metric if part == "all" else f"{part} {metric}": value
        for part, values in figures.items()
        for metric, value in values.items()
    }
