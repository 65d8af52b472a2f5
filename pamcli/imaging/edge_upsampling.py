"""Upsample maps of a downscaled image to full size, along the edges of the full-size image.

Values are interpolated linearly within a surface. Near a disparity step, each full-size pixel uses the
downscaled pixels around it: the median of their disparities, weighted by distance and colour, selects one
surface, and the values are averaged over that surface alone. So no disparity between foreground and
background is invented.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]
Levels = NDArray[np.int16]
Pixels = NDArray[np.generic]  # an image (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]

REACH = 2  # downscaled pixels used on each side
STEP = 1.0  # largest disparity difference (downscaled px) between neighbours on one surface
NEAR = 2.5  # standard deviation (downscaled px) of the weights by distance ...
ALIKE = 12.0  # and by colour (mean channel difference of 255), chosen on procedural scenes
ALWAYS = 1e-6  # smallest weight by colour: without similar colours, the nearest pixels decide

PIXELS_AT_ONCE = 200_000
EDGE_PIXELS_AT_ONCE = 16_000  # edge pixels processed together, so that their 25 neighbours stay in the cache


def upsample_along_edges(
    disparity: Floats,
    others: Sequence[Floats],
    reduced: Pixels,
    view: Pixels,
    *,
    done: Callable[[int], None] = lambda row: None,
) -> list[Floats]:
    """Upsample the maps of a downscaled image (h, w, 3) to the size of the full image (H, W, 3).

    `disparity` (h, w) is finite, in px of the downscaled image; `done` is called with the finished rows.
    """
    import cv2

    height, width = view.shape[:2]
    maps = [disparity, *others]
    results = [cv2.resize(values, (width, height), interpolation=cv2.INTER_LINEAR) for values in maps]
    down, across = _Axis(height, disparity.shape[0]), _Axis(width, disparity.shape[1])
    edges = _find_steps(disparity)
    colours = _to_int16(reduced).reshape(-1, 3)
    rows = max(1, PIXELS_AT_ONCE // width)
    for first in range(0, height, rows):
        last = min(first + rows, height)
        strip = slice(first, last)
        mixed = edges[down.nearest[strip]][:, across.nearest].reshape(-1).nonzero()[0]
        for begin in range(0, len(mixed), EDGE_PIXELS_AT_ONCE):
            y, x = np.divmod(mixed[begin : begin + EDGE_PIXELS_AT_ONCE], width)
            own = _to_int16(view[strip][y, x])
            near = down.find_neighbours(y + first), across.find_neighbours(x)
            found = _select_surface(maps, colours, own, *near)
            for result, values in zip(results, found, strict=True):
                result[strip][y, x] = values
        done(last)
    return results


_Neighbours = tuple[Ints, Floats]


class _Axis:
    """Positions of the pixels of a full-size side on the downscaled side."""

    def __init__(self, long: int, short: int) -> None:
        self.count = short
        self.at = ((np.arange(long) + 0.5) * (short / long) - 0.5).clip(0, short - 1).astype(np.float32)
        self.nearest = np.rint(self.at).astype(np.intp)

    def find_neighbours(self, which: Ints) -> _Neighbours:
        """Return the downscaled pixels (5, N) around those of the full-size side, and squared distances."""
        around = np.arange(-REACH, REACH + 1)[:, None]
        there = (self.nearest[which] + around).clip(0, self.count - 1)
        return there, (there - self.at[which]).astype(np.float32) ** 2


def _find_steps(disparity: Floats) -> NDArray[np.bool_]:
    """Return the mask (h, w) of pixels with a disparity step within their reach."""
    import cv2

    step = np.zeros(disparity.shape, np.uint8)
    beside, below = (np.abs(np.diff(disparity, axis=axis)) > STEP for axis in (1, 0))
    for part in (step[:, 1:], step[:, :-1]):
        part |= beside
    for part in (step[1:], step[:-1]):
        part |= below
    side = 2 * REACH - 1
    return np.asarray(cv2.dilate(step, np.ones((side, side), np.uint8)), bool)


def _select_surface(
    maps: Sequence[Floats], colours: Levels, own: Levels, row: _Neighbours, column: _Neighbours
) -> list[Floats]:
    """Return the values of each map at N pixels of colours `own` (N, 3), each taken from one surface."""
    (rows, from_rows), (columns, from_columns) = row, column
    places = (rows[:, None] * maps[0].shape[1] + columns[None]).reshape(-1, len(own))
    distance = (from_rows[:, None] + from_columns[None]).reshape(-1, len(own))
    order = maps[0].reshape(-1)[places].argsort(axis=0, kind="stable")
    places, distance = np.take_along_axis(places, order, 0), np.take_along_axis(distance, order, 0)
    disparity = maps[0].reshape(-1)[places]
    near = np.exp(distance * np.float32(-0.5 / NEAR**2))
    unlike = np.abs(colours[places] - own).sum(-1).astype(np.float32)
    alike = np.exp(unlike**2 * np.float32(-0.5 / (3 * ALIKE) ** 2)) + np.float32(ALWAYS)
    below = np.cumsum(near * alike, axis=0)
    middle = (below < below[-1] / 2).sum(0)
    chosen = disparity[middle, np.arange(len(own))]
    near *= np.abs(disparity - chosen) <= STEP
    total = near.cumsum(0)[-1]  # cumsum adds in a fixed order for any number of pixels
    return [(near * values.reshape(-1)[places]).cumsum(0)[-1] / total for values in maps]


def _to_int16(pixels: Pixels) -> Levels:
    if pixels.dtype == np.uint8:
        return pixels.astype(np.int16)
    largest = 65535 if pixels.dtype.kind == "u" else 1
    return np.asarray(np.rint(pixels.astype(np.float32) * np.float32(255 / largest)), np.int16)
