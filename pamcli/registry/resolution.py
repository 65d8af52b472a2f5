"""Choose the matching resolution of images. No torch.

The finest attention of a matcher has a quarter of the image's rows and columns, so structures below four px
can be lost to the background. Upscaled images lose less, in time proportional to their pixels. Images much
larger than those in training give better results when downscaled.
"""

import math
from dataclasses import dataclass
from typing import Literal

from pamcli.errors import UsageError

SMALLEST_FACTOR, LARGEST_FACTOR, NARROWEST_MATCH = 1 / 16, 4.0, 64

SMALLEST_SIDE = 16  # px, at matching resolution

LEAST_RESIZING = 1.1  # smaller factors, up or down, are not worth the interpolation

EffortName = Literal["fast", "normal", "best"]

MatchSize = float | Literal["auto"] | EffortName
"""Matching resolution: up to `LARGEST_FACTOR` a factor of the image sides; from `NARROWEST_MATCH` on a width
in px; or the name of an effort. auto: the effort normal."""


@dataclass(frozen=True)
class Effort:
    """A rule for the matching resolution: one point of the curve of accuracy over time."""

    pixels: int  # to which images are resized,
    least: float  # by at least this factor per side
    most: float  # and at most this one
    largest: int  # pixels to which larger images are downscaled in any case (scripts/measure_match_size.py)

    def __str__(self) -> str:
        verb, bound, factor = (
            ("upscale", "above", self.most) if self.most > 1 else ("downscale", "below", self.least)
        )
        return f"{verb} to {self.pixels / 1e6:g} megapixels, not {bound} {factor:g} times the size"


EFFORTS: dict[str, Effort] = {
    "fast": Effort(170_000, 0.6, 1, 1_500_000),
    "normal": Effort(820_000, 1, 2, 3_000_000),
    "best": Effort(1_200_000, 1, 2, 3_000_000),
}
"""Chosen by accuracy and time on the validation set (guide page benchmarks)."""


def describe_efforts() -> str:
    """Describe all efforts in one line of help."""
    return "; ".join(f"{name}: {effort}" for name, effort in EFFORTS.items())


def check_match_size(size: MatchSize, option: str = "`match_size`") -> None:
    """Raise UsageError unless a matching resolution is a factor, a width, auto or an effort."""
    number = size if isinstance(size, int | float) else 0
    if size not in ("auto", *EFFORTS) and not (
        SMALLEST_FACTOR <= number <= LARGEST_FACTOR or NARROWEST_MATCH <= number <= 65535
    ):
        raise UsageError(
            f"{option} must be auto, a factor from {SMALLEST_FACTOR:g} to {LARGEST_FACTOR:g}, or a width of "
            f"{NARROWEST_MATCH} px or more, got {size}"
        )


def choose_matching_size(
    size: MatchSize,
    height: int,
    width: int,
    most: tuple[int, int] | None = None,
    *,
    largest: float = math.inf,
) -> tuple[int, int]:
    """Return height and width at which images of `height` x `width` px are matched.

    An effort upscales images at most `largest` times and within `most` (height, width).

    Raises UsageError: a width above `LARGEST_FACTOR` times the image's.
    """
    if isinstance(size, str):
        effort, pixels = EFFORTS["normal" if size == "auto" else size], height * width
        factor = min(max((effort.pixels / pixels) ** 0.5, effort.least), effort.most, largest)
        if most is not None:
            factor = min(factor, max(1.0, min(most[0] / height, most[1] / width)))
        factor = min(factor, (effort.largest / pixels) ** 0.5)
        if 1 / LEAST_RESIZING < factor < LEAST_RESIZING:
            return height, width
    else:
        factor = size if size < NARROWEST_MATCH else size / width
        if factor > LARGEST_FACTOR:
            raise UsageError(
                f"`match_size` {size:g} px is more than {LARGEST_FACTOR:g} times the width of the images, "
                f"{width} px"
            )
    return max(round(factor * height), SMALLEST_SIDE), max(round(factor * width), SMALLEST_SIDE)
