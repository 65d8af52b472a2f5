"""Measure how many frames two videos of one scene are apart, from their motion.

Motion is nearly equal in both views at the same time, whatever the disparity, although it covers other
pixels. So frames are compared by their optical flow, averaged in bands of rows, minus its mean over time, as
uniform motion is uninformative.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.files.paths import quote
from pamcli.imaging.videos import Video

MOST_FRAMES = 600  # largest number of frames per video
LARGEST = 150  # frames, largest offset; also at most a third of the frames used
BANDS = 4  # bands of rows over which flow is averaged
LONGER_SIDE = 192  # px, longer side of the compared images
STILL = 0.03  # px, variation of the flow over time below which nothing moves
ALIKE = 0.5  # smallest correlation of equal motions
DISTINCT = 0.1  # smallest difference to the best correlation at offsets that are not neighbours


@dataclass(frozen=True)
class VideoOffset:
    """The offset at which the motions of both videos agree best."""

    frames: int  # frames by which the right video is later than the left one
    agreement: float  # correlation of both motions at this offset, at most 1
    next_best: float  # largest correlation at other offsets, except neighbours


def find_offset(left: Video, right: Video, step: float, *, start: int = 0) -> VideoOffset:
    """Measure the offset of two videos whose frames are `step` seconds apart, from frame `start` on."""
    begin = float(left.times[min(start, len(left.times) - 1)])
    one, two = motions = [_measure_motion(video, step, begin) for video in (left, right)]
    names = f"{quote(left.path)} and {quote(right.path)}"
    hint = "state `offset` N, or use `start` N with a frame after which something moves irregularly"
    known = [motion[~np.isnan(motion[:, 0])] for motion in motions]
    if min(float(each.std(axis=0).max()) if len(each) > 1 else 0.0 for each in known) < STILL:
        raise InputError(f"cannot measure the offset of {names}: hardly anything moves", hint)
    reach = min(LARGEST, min(map(len, motions)) // 3)
    offsets = np.arange(-reach, reach + 1)
    found = np.array([_correlate(one, two, int(offset)) for offset in offsets])
    best = int(found.argmax())
    apart = np.abs(offsets - offsets[best])
    # Neighbours agree as well, as far as the motion is slow.
    drops = (n for n in range(2, len(found)) if found[apart == n].max(initial=-1) < found[best] - DISTINCT)
    next_best = float(found[apart > next(drops, len(found))].max(initial=-1))
    if found[best] < ALIKE or found[best] - next_best < DISTINCT:
        values = f"{found[best]:.2f} at {offsets[best]} frames, {next_best:.2f} elsewhere"
        raise InputError(f"cannot measure the offset of {names}: the correlation is {values}", hint)
    return VideoOffset(int(offsets[best]), float(found[best]), next_best)


def _measure_motion(video: Video, step: float, begin: float) -> NDArray[np.float64]:
    """Return the mean flow (px) to each frame from `begin` on, (T, 2 BANDS).

    NaN if a frame is missing or damaged.
    """
    import cv2

    flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
    places = np.rint((video.times - begin) / step).astype(int)
    numbers = np.flatnonzero(places >= 0)[:MOST_FRAMES]
    motion = np.full((places[numbers[-1]] + 1 if len(numbers) else 0, 2 * BANDS), np.nan)
    before = None
    for number in numbers.tolist():
        image = None
        with suppress(InputError):  # it is reported when it is processed
            image = video.small(number, LONGER_SIDE)
        if image is not None and before is not None and places[number] == places[number - 1] + 1:
            bands = np.array_split(flow.calc(before, image, None), BANDS)
            motion[places[number]] = np.concatenate([band.mean(axis=(0, 1)) for band in bands])
        before = image
    return motion


def _correlate(left: NDArray[np.float64], right: NDArray[np.float64], offset: int) -> float:
    """Return the correlation of both motions over their common times."""
    first, end = max(0, -offset), min(len(left), len(right) - offset)
    one, two = left[first:end], right[first + offset : end + offset]
    both = ~np.isnan(one[:, 0] + two[:, 0])
    if both.sum() < 3:
        return -1.0
    one, two = (each[both] - each[both].mean(axis=0) for each in (one, two))
    size = float(np.sqrt((one**2).sum() * (two**2).sum()))
    return float((one * two).sum()) / size if size > 0 else -1.0
