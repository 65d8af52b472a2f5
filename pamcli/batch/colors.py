"""Disparities in colours: between which of them the colours run, and what lies outside."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.video_results import StoredFrames
from pamcli.files.outputs import Encoded
from pamcli.imaging.colormap import colorize, count_outside
from pamcli.imaging.disparity_files import from_levels
from pamcli.imaging.images import Picture, encode_picture

ColorRange = tuple[float, float] | Literal["auto"]
EVEN_RANGE = (0.0, 192.0)
"""Range of the colours, where all disparities are equal, or none is known."""
PERCENTILES = (1, 99)
"""Colours run from the 1st to the 99th percentile of a map, of several from the lowest to the highest of them
all."""
OUTSIDE = 0.1
"""Share of a map that may lie outside of another one's range before that is said."""
BEGINNING = 1
"""Seconds of a video whose frames give the range of all."""


def range_of(disparity: np.ndarray) -> tuple[float, float] | None:
    """The `PERCENTILES` of what is known; None where nothing is."""
    known = disparity[np.isfinite(disparity)]
    if not known.size:
        return None
    low, high = np.percentile(known, PERCENTILES).tolist()
    return low, high


def range_of_video(frames: StoredFrames, *, whole: bool) -> tuple[tuple[float, float] | None, str]:
    """Range of disparities in the frames of the first second, or of all, and whose it is.

    None: nothing is known there.
    """
    taken = itertools.takewhile(lambda frame: whole or frame[0] < BEGINNING, _disparities(frames))
    found = [each for _, disparity in taken if (each := range_of(disparity)) is not None]
    whose = "of all frames" if whole else "of the frames of the first second"
    if not found:
        return None, whose
    return (min(low for low, _ in found), max(high for _, high in found)), whose


def colored(disparity: np.ndarray, colors: tuple[float, float], place: Path, outside: float) -> Encoded:
    """A picture of a map; outside: share of what is known that may be so before that is said."""
    data = encode_picture(Picture(colorize(disparity, *colors)), place.suffix, name=str(place))
    known, saturated = int(np.isfinite(disparity).sum()), count_outside(disparity, *colors)
    return Encoded(data, _said(saturated, known, colors, outside))


def colored_frames(
    frames: StoredFrames, colors: tuple[float, float], outside: float
) -> Iterator[tuple[Fraction, np.ndarray]]:
    """Frames of disparities in colours, (H, W, 3) uint8 RGB. outside: as of `colored`, of the whole video."""
    known = saturated = 0
    for seconds, disparity in _disparities(frames):
        known += int(np.isfinite(disparity).sum())
        saturated += count_outside(disparity, *colors)
        yield seconds, colorize(disparity, *colors)
    for warning in _said(saturated, known, colors, outside):
        LOG.warning(warning)


def _disparities(frames: StoredFrames) -> Iterator[tuple[Fraction, np.ndarray]]:
    for seconds, levels in frames:
        yield seconds, from_levels(levels[..., 0])


def _said(saturated: int, known: int, colors: tuple[float, float], outside: float) -> list[str]:
    if saturated <= outside * known:
        return []
    pixels = f"{saturated} pixels ({100 * saturated / known:.1f} %) of the colour map"
    return ["{} lie outside {:g}:{:g} px (`range`)".format(pixels, *colors)]
