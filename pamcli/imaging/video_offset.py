"""How many frames two videos of one scene are apart: found by its motion, which both show at the same time.

What moves, moves alike in both views of a pair, whatever its disparity; which pixels it covers does not. So
frames are compared by the optical flow that leads to them: its mean in bands of rows, less its mean over
time, since what moves evenly says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.files.finding import shown
from pamcli.imaging.videos import Video

LOOKED_AT = 600  # frames of each video, at most
LARGEST = 150  # frames that they may be apart, at most; and at most a third of what is looked at
BANDS = 4  # bands of rows of which the flow is averaged
LONGER_SIDE = 192  # pixels of the pictures that are compared
STILL = 0.03  # pixels by which the flow of such pictures varies over time, below which nothing moves
ALIKE = 0.5  # correlation of both motions from which they are one
DISTINCT = 0.1
"""Least difference between that correlation and the largest one at offsets which are no neighbours."""


@dataclass(frozen=True)
class FoundOffset:
    """The offset at which the motions in both videos agree best."""

    frames: int
    """The right video shows this many frames later what the left one shows."""
    agreement: float
    """Correlation of both motions there, at most 1."""
    next_best: float
    """Largest correlation at other offsets, neighbours aside."""


def find_offset(left: Video, right: Video, step: float, *, start: int = 0) -> FoundOffset:
    """Measure the offset of two videos. step: seconds from a frame to the next. start: frame to begin with.

    Raises InputError: it cannot be decided, since nothing or everything moves evenly, or again and again
    alike; or a frame cannot be decoded.
    """
    begin = float(left.times[min(start, len(left.times) - 1)])
    one, two = motions = [_motion(video, step, begin) for video in (left, right)]
    names = f"{shown(left.path)} and {shown(right.path)}"
    hint = "give `offset` N, or with `start` N a frame from which on something moves unevenly"
    if min(_varies(motion) for motion in motions) < STILL:
        raise InputError(f"the offset of {names} cannot be measured: hardly anything moves in them", hint)
    reach = min(LARGEST, min(map(len, motions)) // 3)
    offsets = np.arange(-reach, reach + 1)
    found = np.array([_agreement(one, two, int(offset)) for offset in offsets])
    best = int(found.argmax())
    others = found[np.abs(offsets - offsets[best]) > _lobe(found, best)]
    next_best = float(others.max()) if len(others) else -1.0
    if found[best] < ALIKE or found[best] - next_best < DISTINCT:
        why = f"their motions agree to {found[best]:.2f} at {offsets[best]}, to {next_best:.2f} elsewhere"
        raise InputError(f"the offset of {names} cannot be measured: {why}", hint)
    return FoundOffset(int(offsets[best]), float(found[best]), next_best)


def _motion(video: Video, step: float, begin: float) -> NDArray[np.float64]:
    """(T, 2 BANDS): mean flow to the frame of each time from `begin` on, pixels; NaN where one is missing."""
    import cv2

    flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
    places = np.rint((video.times - begin) / step).astype(int)
    numbers = np.flatnonzero(places >= 0)[:LOOKED_AT]
    motion = np.full((places[numbers[-1]] + 1 if len(numbers) else 0, 2 * BANDS), np.nan)
    before = None
    for number in numbers.tolist():
        picture = video.small(number, LONGER_SIDE)
        if before is not None and places[number] == places[number - 1] + 1:
            bands = np.array_split(flow.calc(before, picture, None), BANDS)
            motion[places[number]] = np.concatenate([band.mean(axis=(0, 1)) for band in bands])
        before = picture
    return motion


def _varies(motion: NDArray[np.float64]) -> float:
    """Pixels by which the mean flow of the band in which it does so most varies over time."""
    known = motion[~np.isnan(motion[:, 0])]
    return float(known.std(axis=0).max()) if len(known) > 1 else 0.0


def _agreement(left: NDArray[np.float64], right: NDArray[np.float64], offset: int) -> float:
    """Correlation of both motions over the times that both have."""
    first, end = max(0, -offset), min(len(left), len(right) - offset)
    one, two = left[first:end], right[first + offset : end + offset]
    both = ~np.isnan(one[:, 0] + two[:, 0])
    if both.sum() < 3:
        return -1.0
    one, two = (each[both] - each[both].mean(axis=0) for each in (one, two))
    size = float(np.sqrt((one**2).sum() * (two**2).sum()))
    return float((one * two).sum()) / size if size > 0 else -1.0


def _lobe(found: NDArray[np.float64], best: int) -> int:
    """How many neighbours of the best offset belong to it: motion that changes slowly agrees there, too."""
    for reach in range(2, len(found)):
        beside = [found[place] for place in (best - reach, best + reach) if 0 <= place < len(found)]
        if max(beside, default=-1) < found[best] - DISTINCT:
            return reach
    return len(found)
