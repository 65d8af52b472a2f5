"""Brings what was found of reduced views back to full size, sharp along the edges of the full-size view.

Inside of a surface values run on linearly. Near a step of the disparity each pixel of the full view looks at
the reduced pixels around it: where they belong to several surfaces, the weighted median of their disparities
says to which the pixel belongs, those that have its colour and are near counting most; and its values are the
mean of that surface's alone. So no disparity is made up between what is in front and what is behind.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]
Pixels = NDArray[np.generic]
"""A picture (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]."""

REACH = 2  # reduced pixels to each side that a pixel looks at
STEP = 1.0
"""Disparities of neighbours (in reduced pixels) farther apart than this are of two surfaces: on one that both
views see they hardly change by more."""
NEAR = 2.5
"""Standard deviation of the weights by distance, in reduced pixels ..."""
ALIKE = 12.0
"""... and by colour, in the mean of the channels' differences, of 255. Both were chosen on drawn scenes:
of reduced disparities that are right, a third to a half as many pixels near edges go wrong as with the
nearest."""
ALWAYS = 1e-6  # least weight by colour: where no colour is alike, the nearest pixels decide

PIXELS_AT_ONCE = 200_000
EDGE_PIXELS_AT_ONCE = 16_000
"""Edge pixels whose 25 reduced neighbours are looked at together: so many that these stay in the cache."""


def along_edges(
    disparity: Floats,
    others: Sequence[Floats],
    reduced: Pixels,
    view: Pixels,
    *,
    done: Callable[[int], None] = lambda row: None,
) -> list[Floats]:
    """The disparity and the other maps of a reduced view, each (h, w), at the size (H, W) of the view itself.

    disparity: pixels of the reduced view, finite; the result is in them, too. others: what belongs to the
    same pixels, as confidence. reduced, view: (h, w, 3) and (H, W, 3), of any type of picture. done: is told
    how many rows are.
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
    """Where the pixels of a long side lie on the reduced one."""

    def __init__(self, long: int, short: int) -> None:
        self.count = short
        self.at = ((np.arange(long) + 0.5) * (short / long) - 0.5).clip(0, short - 1).astype(np.float32)
        self.nearest = np.rint(self.at).astype(np.intp)
        self.before = np.floor(self.at).astype(np.intp)
        self.behind = np.minimum(self.before + 1, short - 1)
        self.part = self.at - self.before.astype(np.float32)
        """Share of the way from the one before to the one behind."""


def _linear(values: Floats, down: _Places, across: _Places, rows: slice) -> Floats:
    low = int(down.before[rows][0])
    few = values[low : down.behind[rows][-1] + 1]
    wide = few[:, across.before]
    wide += across.part * (few[:, across.behind] - wide)
    found = wide[down.before[rows] - low]
    found += down.part[rows, None] * (wide[down.behind[rows] - low] - found)
    return found


def _near_steps(disparity: Floats) -> NDArray[np.bool_]:
    """(h, w): pixels that see a step of the disparity within their reach."""
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
    """The value of each map at N pixels, of the surface that each belongs to.

    colours (h w, 3), own (N, 3): of the reduced view, and of the pixels in the view.
    """
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
    total = near.cumsum(0)[-1]  # of cumsum: it adds in one order, however many pixels there are
    return [(near * values.reshape(-1)[places]).cumsum(0)[-1] / total for values in maps]


def _around(places: _Places, which: Ints, offsets: Ints) -> tuple[Ints, Floats]:
    """Reduced pixels (5, N) around those of the long side, and the squares of how far away they are."""
    there = (places.nearest[which] + offsets[:, None]).clip(0, places.count - 1)
    return there, (there - places.at[which]).astype(np.float32) ** 2


def _eight_bits(pixels: Pixels) -> NDArray[np.int16]:
    if pixels.dtype == np.uint8:
        return pixels.astype(np.int16)
    largest = 65535 if pixels.dtype.kind == "u" else 1
    return np.asarray(np.rint(pixels.astype(np.float32) * np.float32(255 / largest)), np.int16)
