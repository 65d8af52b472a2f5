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
Pixels = NDArray[np.generic]
"""An image (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]."""

REACH = 2  # downscaled pixels used on each side
STEP = 1.0
"""Largest disparity difference (downscaled px) between neighbours on one surface; on surfaces visible in
both images it is hardly larger."""
NEAR = 2.5
"""Standard deviation (downscaled px) of the weights by distance ..."""
ALIKE = 12.0
"""... and by colour (mean channel difference of 255). Both were chosen on procedural scenes: with correct
downscaled disparities, a third to a half as many pixels near edges are wrong as with nearest neighbours."""
ALWAYS = 1e-6  # smallest weight by colour: without similar colours, the nearest pixels decide

PIXELS_AT_ONCE = 200_000
EDGE_PIXELS_AT_ONCE = 16_000
"""Edge pixels processed together, so that their 25 neighbours stay in the cache."""


def upsample_along_edges(
    disparity: Floats,
    others: Sequence[Floats],
    reduced: Pixels,
    view: Pixels,
    *,
    done: Callable[[int], None] = lambda row: None,
) -> list[Floats]:
    """Return the disparity and other maps of a downscaled image at the size (H, W) of the full image.

    Args:
        disparity: Finite disparities (h, w), in px of the downscaled image, as in the result.
        others: Further maps (h, w), such as confidence.
        reduced: Downscaled image (h, w, 3).
        view: Full-size image (H, W, 3).
        done: Called with the number of finished rows.
    """
    height, width = view.shape[:2]
    made = [np.empty((height, width), np.float32) for _ in range(1 + len(others))]
    maps = [disparity, *others]
    down, across = _Places(height, disparity.shape[0]), _Places(width, disparity.shape[1])
    edges = _near_steps(disparity)
    colours = _eight_bits(reduced).reshape(-1, 3)
    rows = max(1, PIXELS_AT_ONCE // width)
    for first in range(0, height, rows):
        last = min(first + rows, height)
        strip = slice(first, last)
        for whole, values in zip(made, maps, strict=True):
            whole[strip] = _linear(values, down, across, strip)
        mixed = edges[down.nearest[strip]][:, across.nearest].reshape(-1).nonzero()[0]
        for begin in range(0, len(mixed), EDGE_PIXELS_AT_ONCE):
            y, x = np.divmod(mixed[begin : begin + EDGE_PIXELS_AT_ONCE], width)
            own = _eight_bits(view[strip][y, x])
            found = _of_one_surface(maps, colours, own, (down, y + first), (across, x))
            for whole, values in zip(made, found, strict=True):
                whole[strip][y, x] = values
        done(last)
    return made


class _Places:
    """Positions of the pixels of a full-size side on the downscaled side."""

    def __init__(self, long: int, short: int) -> None:
        self.count = short
        self.at = ((np.arange(long) + 0.5) * (short / long) - 0.5).clip(0, short - 1).astype(np.float32)
        self.nearest = np.rint(self.at).astype(np.intp)
        self.before = np.floor(self.at).astype(np.intp)
        self.behind = np.minimum(self.before + 1, short - 1)
        self.part = self.at - self.before.astype(np.float32)
        """Fraction of the way from the pixel before to the pixel behind."""


def _linear(values: Floats, down: _Places, across: _Places, rows: slice) -> Floats:
    low = int(down.before[rows][0])
    few = values[low : down.behind[rows][-1] + 1]
    wide = few[:, across.before]
    wide += across.part * (few[:, across.behind] - wide)
    found = wide[down.before[rows] - low]
    found += down.part[rows, None] * (wide[down.behind[rows] - low] - found)
    return found


def _near_steps(disparity: Floats) -> NDArray[np.bool_]:
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


def _of_one_surface(
    maps: Sequence[Floats],
    colours: NDArray[np.int16],
    own: NDArray[np.int16],
    row: tuple[_Places, Ints],
    column: tuple[_Places, Ints],
) -> list[Floats]:
    """Return the values of each map at N pixels of colours `own` (N, 3), each taken from one surface."""
    width = column[0].count
    around = np.arange(-REACH, REACH + 1)
    rows, from_rows = _around(*row, around)
    columns, from_columns = _around(*column, around)
    places = (rows[:, None] * width + columns[None]).reshape(-1, len(own))
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


def _around(places: _Places, which: Ints, offsets: Ints) -> tuple[Ints, Floats]:
    """Return the downscaled pixels (5, N) around those of the full-size side, and their squared distances."""
    there = (places.nearest[which] + offsets[:, None]).clip(0, places.count - 1)
    return there, (there - places.at[which]).astype(np.float32) ** 2


def _eight_bits(pixels: Pixels) -> NDArray[np.int16]:
    if pixels.dtype == np.uint8:
        return pixels.astype(np.int16)
    largest = 65535 if pixels.dtype.kind == "u" else 1
    return np.asarray(np.rint(pixels.astype(np.float32) * np.float32(255 / largest)), np.int16)
