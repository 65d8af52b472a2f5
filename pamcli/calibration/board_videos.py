"""Boards in videos: frames of both cameras at one time, whether the board stood still, which ones to take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.making import Sighting
from pamcli.calibration.rectified import Floats
from pamcli.errors import InputError

Pixels = NDArray[np.uint8]

LOOKED_AT = 150
"""Moments of a video that are looked at, evenly over its length."""
MOST = 50
"""Boards that are kept of a video: those that lie farthest from each other in the picture."""
STILL = 3.0
"""Pixels by which a board may move from one frame to the next."""


@dataclass(frozen=True)
class Frames:
    """A frame of each camera, and the one that follows it in the left one's video."""

    name: str
    left: Pixels
    """(H, W, 3) RGB."""
    right: Pixels | None
    """None: the left one holds both views."""
    following: Pixels | None


@dataclass(frozen=True)
class Clip:
    """Moments of a video, or of two, that are looked at."""

    count: int
    """Number of moments, about."""
    moments: Iterator[Frames]
    warning: str | None
    """Doubt about the videos, for people; None: nothing looks wrong."""


def clip(left: Path, right: Path | None) -> Clip:
    """The moments of videos. right: None = one video holds both views.

    Raises InputError: no video that OpenCV can read, videos of unlike frame rates.
    """
    import cv2

    paths = [left] if right is None else [left, right]
    videos = [cv2.VideoCapture(str(path)) for path in paths]
    facts = []
    for path, video in zip(paths, videos, strict=True):
        count, rate = (float(video.get(key)) for key in (cv2.CAP_PROP_FRAME_COUNT, cv2.CAP_PROP_FPS))
        if not video.isOpened() or count < 1:
            raise InputError(f"{path} cannot be read as a video", "make pictures of it, with ffmpeg for one")
        facts.append((count, rate))
    counts, rates = zip(*facts, strict=True)
    if max(rates) > 1.01 * min(rates):
        raise InputError(
            f"the videos have {rates[0]:g} and {rates[1]:g} frames a second", "record both at one rate"
        )
    step = max(1, int(min(counts) // LOOKED_AT))
    warning = None
    if max(counts) - min(counts) > 2:
        lengths = " and ".join(f"{count:.0f}" for count in counts)
        warning = f"the videos have {lengths} frames: did both begin at the same moment?"
    return Clip(math.ceil(min(counts) / step), _read(videos, step, rates[0]), warning)


def _read(videos: Sequence[object], step: int, rate: float) -> Iterator[Frames]:
    import cv2

    number = 0
    waiting: Frames | None = None
    while True:
        good = [video.grab() for video in videos]  # type: ignore[attr-defined]
        if not all(good):
            break
        if waiting is not None or number % step == 0:
            frames = [
                cv2.cvtColor(video.retrieve()[1], cv2.COLOR_BGR2RGB)  # type: ignore[attr-defined]
                for video in videos
            ]
            if waiting is not None:
                yield Frames(waiting.name, waiting.left, waiting.right, frames[0])
                waiting = None
            if number % step == 0:
                name = f"frame {number}" + (f" ({number / rate:.1f} s)" if rate > 0 else "")
                waiting = Frames(name, frames[0], frames[1] if len(frames) > 1 else None, None)
        number += 1
    if waiting is not None:
        yield waiting


def motion(now: Pixels, following: Pixels, corners: Floats) -> float:
    """Median distance in pixels by which corners (N, 2) move between two grey pictures (H, W); inf: lost."""
    import cv2

    start = corners.astype(np.float32).reshape(-1, 1, 2)
    found, good, _ = cv2.calcOpticalFlowPyrLK(now, following, start, None)
    kept = good.ravel() == 1
    if not kept.any():
        return float("inf")
    return float(np.median(np.linalg.norm((found - start).reshape(-1, 2)[kept], axis=1)))


def spread(sightings: Sequence[Sighting], size: tuple[int, int]) -> list[Sighting]:
    """Choose at most `MOST` sightings, which differ most in where, how large and how tilted the board is.

    Those that both cameras saw come first. size: (width, height) of the pictures.
    """
    chosen: list[Sighting] = []
    for both in (True, False):
        group = [each for each in sightings if each.both == both]
        features = np.array([_feature(each, size) for each in group]).reshape(len(group), 8)
        nearest = np.full(len(group), np.inf)
        while len(chosen) < MOST and len(group) and nearest.max() > 0:
            best = int(nearest.argmax())
            chosen.append(group[best])
            nearest = np.minimum(nearest, np.linalg.norm(features - features[best], axis=1))
    order = {id(each): number for number, each in enumerate(sightings)}
    return sorted(chosen, key=lambda each: order[id(each)])


def _feature(sighting: Sighting, size: tuple[int, int]) -> Floats:
    """(8,): the corners of the board's bounding quadrangle, as shares of the picture's width."""
    found = sighting.left or sighting.right
    assert found is not None
    pixels = found.corners.pixels / size[0]
    ends = [
        pixels[int(np.argmax(pixels @ towards))] for towards in np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    ]
    return np.concatenate(ends)
