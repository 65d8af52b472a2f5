"""Images that do not fit: cut into overlapping parts, and their results joined without a seam.

A band has all columns of an image, for disparities run along rows, and a halo of rows above and below that
its own rows depend on. Networks of others that take one size alone are given tiles of that size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Progress = Callable[[float], None]
"""Is told the share of some work that is done, ever more, up to 1."""

RAMP = 0.25
"""Share of an overlap in which one part gives way to the next."""


@dataclass(frozen=True)
class Tile:
    """A part of an image."""

    rows: slice
    columns: slice
    weights: NDArray[np.float32]
    """(rows, columns): what its result counts; over all tiles 1 at each pixel."""


def spans(length: int, size: int, shared: int) -> list[tuple[int, int]]:
    """Return begin and end of equal pieces of a side, evenly spaced, neighbours sharing at least `shared`."""
    if length <= size:
        return [(0, length)]
    count = -(-(length - shared) // (size - shared))
    return [
        (begin, begin + size)
        for begin in (round(index * (length - size) / (count - 1)) for index in range(count))
    ]


def shares(pieces: Sequence[tuple[int, int]], middle: float = 0.5) -> list[NDArray[np.float32]]:
    """Return what each piece counts at each of its places, over all pieces 1.

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
    """Cut an image into tiles of `size` (rows, columns) where it has as many, row by row.

    `middle`: of the columns that two tiles share, as of `shares`; of rows it is the middle.
    """
    rows, columns = spans(height, size[0], shared[0]), spans(width, size[1], shared[1])
    for down, weight in zip(rows, shares(rows), strict=True):
        for across, beside in zip(columns, shares(columns, middle), strict=True):
            yield Tile(slice(*down), slice(*across), weight[:, None] * beside)


def bands(height: int, width: int, rows: int, halo: int, multiple: int = 1) -> list[Tile]:
    """Cut an image into bands of at most `rows` rows, of which `halo` at each inner edge do not count.

    Networks pad at the top, to a multiple: bands lie on the grid that the padded image has.
    """
    above = -height % multiple
    units = (height + above) // multiple
    pieces = spans(units, max(rows // multiple, 1), min(-(-2 * halo // multiple), rows // multiple - 1))
    lines = [(max(first * multiple - above, 0), last * multiple - above) for first, last in pieces]
    return [
        Tile(slice(*line), slice(0, width), np.broadcast_to(weight[:, None], (len(weight), width)))
        for line, weight in zip(lines, shares(lines), strict=True)
    ]


def join(
    parts: Sequence[Tile],
    compute: Callable[[slice, slice, Progress], dict[str, Array]],
    *,
    scale: int = 1,
    progress: Progress | None = None,
) -> dict[str, Array]:
    """Compute every part and join the results.

    Args:
        parts: What `tiles` or `bands` return: together they cover the image.
        compute: From rows and columns of the image, and what is told of progress, to results by name,
            (scale h, scale w) or with channels behind. Floating-point results are blended; of others the
            part that counts most is taken.
        scale: How many times larger results are than the image.
        progress: Is told the share of the work that is done.
    """
    tell = progress or (lambda share: None)
    if len(parts) == 1:
        return compute(parts[0].rows, parts[0].columns, tell)
    height, width = parts[-1].rows.stop, parts[-1].columns.stop
    joined: dict[str, Array] = {}
    for number, part in enumerate(parts):
        place = tuple(slice(scale * side.start, scale * side.stop) for side in (part.rows, part.columns))
        weights = part.weights.repeat(scale, 0).repeat(scale, 1) if scale > 1 else part.weights
        begun = partial(_tell_part, tell, number, len(parts))
        found = compute(part.rows, part.columns, begun)
        for name, values in found.items():
            if name not in joined:
                joined[name] = np.zeros((scale * height, scale * width, *values.shape[2:]), values.dtype)
            counts = weights.reshape(*weights.shape, *(1,) * (values.ndim - 2))
            if values.dtype.kind == "f":
                joined[name][place] += counts.astype(values.dtype) * values
            else:
                np.copyto(joined[name][place], values, where=counts >= 0.5)
        tell((number + 1) / len(parts))
    return joined


def _tell_part(tell: Progress, number: int, count: int, share: float) -> None:
    """Tell what the share of one part is of all."""
    tell((number + share) / count)
