"""Between which disparities do the colours of a colour map run, and what lies outside?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.video_results import StoredFrames
from pamcli.files.outputs import Encoded
from pamcli.imaging.colormap import colorize
from pamcli.imaging.disparity_files import decode_levels
from pamcli.imaging.images import RgbImage, encode_image

DEFAULT_RANGE = (0.0, 192.0)
"""Range (px) where all disparities are equal, or none is known."""
PERCENTILES = (1, 99)
"""Colours run from the 1st to the 99th percentile of the known disparities."""


class Range:
    """The percentiles of one or more disparity maps, from the lowest to the highest of them all."""

    def __init__(self, maps: Iterable[np.ndarray] = ()) -> None:
        self.low, self.high = math.inf, -math.inf
        for disparity in maps:
            self.add(disparity)

    def add(self, disparity: np.ndarray) -> None:
        """Extend the range by a disparity map, (H, W) px, NaN = unknown."""
        known = disparity[np.isfinite(disparity)]
        if known.size:
            low, high = np.percentile(known, PERCENTILES).tolist()
            self.low, self.high = min(self.low, low), max(self.high, high)

    def settled(self, whose: str, say: Callable[[str], None] = LOG.info) -> tuple[float, float]:
        """Return the range of the colours, px, and report it. whose: the maps, for the message."""
        if self.low >= self.high:
            return DEFAULT_RANGE
        say(f"colours of {whose} run from {self.low:.1f} to {self.high:.1f} px (1st to 99th percentile)")
        return self.low, self.high


def color(disparity: np.ndarray, colors: tuple[float, float], place: Path, *, warn: bool) -> Encoded:
    """Encode a colour map. warn: about disparities outside of the range, which was given."""
    data = encode_image(RgbImage(colorize(disparity, *colors)), place.suffix, name=str(place))
    return Encoded(data, _outside([disparity], colors) if warn else ())


def colored_frames(
    frames: StoredFrames, colors: tuple[float, float], *, warn: bool
) -> Iterator[tuple[Fraction, np.ndarray]]:
    """Yield disparities of a video in colours, (H, W, 3) uint8 RGB. warn: as of `color`."""
    for seconds, disparity in disparities(frames):
        yield seconds, colorize(disparity, *colors)
    for warning in _outside((each for _, each in disparities(frames)), colors) if warn else ():
        LOG.warning(warning)


def disparities(frames: StoredFrames) -> Iterator[tuple[Fraction, np.ndarray]]:
    """Yield the disparity maps of stored frames, each with its time in seconds."""
    for seconds, levels in frames:
        yield seconds, decode_levels(levels[..., 0])


def _outside(maps: Iterable[np.ndarray], colors: tuple[float, float]) -> list[str]:
    """Say how much of the maps lies outside of the colours' range, and which range holds them."""
    low, high = colors
    count = outside = 0
    ends = math.inf, -math.inf
    for disparity in maps:
        known = disparity[np.isfinite(disparity)]
        count += known.size
        outside += int(np.count_nonzero((known < low) | (known > high)))
        if known.size:
            ends = min(ends[0], float(known.min())), max(ends[1], float(known.max()))
    if not outside:
        return []
    share, fitting = 100 * outside / count, f"{math.floor(ends[0])}:{math.ceil(ends[1])}"
    return [
        f"{share:.2g} % of the disparities lie outside of the colours' range {low:g}:{high:g} px "
        f"(`range` {fitting} holds all; without `range` the colours fit each pair)"
    ]
