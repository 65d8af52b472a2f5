"""Colour disparity maps, and choose the range of the colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pamcli.batch import LOG
from pamcli.files.outputs import Encoded
from pamcli.imaging.colormap import colorize
from pamcli.imaging.disparity_encoding import decode_levels
from pamcli.imaging.images import RgbImage, encode_image

if TYPE_CHECKING:
    from pamcli.batch.video_results import StoredFrames

DEFAULT_RANGE = (0.0, 192.0)  # range (px or m) if all values are equal or unknown
PERCENTILES = (1, 99)  # percentiles of the known values at both ends of the range


class ColorRange:
    """The range of the percentiles of one or more disparity maps, px, or depth maps, m."""

    def __init__(self, maps: Iterable[np.ndarray] = (), unit: str = "px") -> None:
        self.low, self.high, self.unit = math.inf, -math.inf, unit
        for disparity in maps:
            self.add(disparity)

    def add(self, values: np.ndarray) -> None:
        """Extend the range by a map, (H, W), NaN = unknown."""
        known = values[np.isfinite(values)]
        if known.size:
            low, high = np.percentile(known, PERCENTILES).tolist()
            self.low, self.high = min(self.low, low), max(self.high, high)

    def report(self, source: str, log: Callable[[str], None] = LOG.info) -> tuple[float, float]:
        """Return the range, and report it. source: the pair or video, for the message."""
        if self.low >= self.high:
            return DEFAULT_RANGE
        log(f"{source}: colour range {self.low:.1f}:{self.high:.1f} {self.unit} (1st to 99th percentile)")
        return self.low, self.high


def encode_colors(
    disparity: np.ndarray, colors: tuple[float, float], path: Path, *, warn: bool, grey: bool
) -> Encoded:
    """Encode a colour map. warn: about disparities outside of the range."""
    image = RgbImage(colorize(disparity, *colors, grey=grey), grey=grey)
    data = encode_image(image, path.suffix, name=str(path))
    return Encoded(data, find_outliers([disparity], colors) if warn else ())


def colorize_depth(depth: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the colours (H, W, 3), uint8, of a depth map (H, W) in a range (m): near is bright."""
    return colorize(-depth, -high, -low)


def render_frames(
    frames: StoredFrames,
    colors: tuple[float, float] | None,
    paint: Callable[..., np.ndarray],
    measure: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Iterator[tuple[Fraction, np.ndarray]]:
    """Yield the disparity maps of a video as colours, (H, W, 3) uint8 RGB.

    Args:
        frames: Stored disparity maps.
        colors: The range; disparities outside of it are reported. None: the range of the frames.
        paint: Colours a map in a range.
        measure: Converts disparity, px, to the depth to colour, m.
    """

    def read() -> Iterator[tuple[Fraction, np.ndarray]]:
        for seconds, levels in frames:
            disparity = decode_levels(levels[..., 0])
            yield seconds, disparity if measure is None else measure(disparity)

    maps = (values for _, values in read())
    warnings = find_outliers(maps, colors) if colors is not None and measure is None else ()
    colors = colors or ColorRange(maps, "px" if measure is None else "m").report("the video")
    for seconds, values in read():
        yield seconds, paint(values, *colors)
    for warning in warnings:
        LOG.warning(warning)


def find_outliers(maps: Iterable[np.ndarray], colors: tuple[float, float]) -> list[str]:
    """Return a warning about disparities outside of the range, with a range that holds them."""
    low, high = colors
    count = outside = 0
    least, most = math.inf, -math.inf
    for disparity in maps:
        known = disparity[np.isfinite(disparity)]
        count += known.size
        outside += int(np.count_nonzero((known < low) | (known > high)))
        if known.size:
            least, most = min(least, float(known.min())), max(most, float(known.max()))
    if not outside:
        return []
    outliers = f"{100 * outside / count:.2g} % of the disparities are outside of the colour range"
    fitting = f"{math.floor(least)}:{math.ceil(most)}"
    return [f"{outliers} {low:g}:{high:g} px (use `range` {fitting}, or drop `range` for one range per pair)"]
