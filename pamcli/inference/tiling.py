"""Pictures larger than what a network by others takes: cut into tiles that overlap, and laid together again.

Our own networks go down a picture in strips instead, see `pamcli.streaming`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

RAMP = 0.25
"""Share of an overlap in which one tile gives way to the next."""


@dataclass(frozen=True)
class Tile:
    """A part of a picture."""

    rows: slice
    columns: slice
    weights: NDArray[np.float32]
    """(rows, columns): what its result counts; over all tiles 1 at each pixel."""


def spans(length: int, size: int, shared: int) -> list[tuple[int, int]]:
    """Begin and end of equal pieces of a side, evenly spaced, neighbours sharing at least `shared`."""
    if length <= size:
        return [(0, length)]
    count = -(-(length - shared) // (size - shared))
    return [
        (begin, begin + size)
        for begin in (round(index * (length - size) / (count - 1)) for index in range(count))
    ]


def shares(pieces: list[tuple[int, int]], middle: float = 0.5) -> list[NDArray[np.float32]]:
    """What each piece counts at each of its places, over all pieces 1.

    Where two share places, the first gives way to the second around `middle` of them, counted from 0 to 1.
    """
    found = [np.ones(end - begin, np.float32) for begin, end in pieces]
    for index, (one, other) in enumerate(pairwise(pieces)):
        shared = one[1] - other[0]
        place = (np.arange(shared, dtype=np.float32) + 0.5) / shared
        second = np.clip((place - middle) / RAMP + 0.5, 0, 1)
        found[index][len(found[index]) - shared :] *= 1 - second  # they may share nothing
        found[index + 1][:shared] *= second
    return found


def tiles(
    height: int, width: int, size: tuple[int, int], shared: tuple[int, int], middle: float
) -> Iterator[Tile]:
    """Tiles of a picture, of `size` (rows, columns) where it has as many, row by row.

    `middle`: of the columns that two tiles share, as of `shares`; of rows it is the middle.
    """
    rows, columns = spans(height, size[0], shared[0]), spans(width, size[1], shared[1])
    for down, weight in zip(rows, shares(rows), strict=True):
        for across, beside in zip(columns, shares(columns, middle), strict=True):
            yield Tile(slice(*down), slice(*across), weight[:, None] * beside)
