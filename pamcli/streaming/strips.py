"""Strips of rows, and which rows of a smaller map an enlargement looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

Rows = Callable[[int, int], Tensor]
"""rows(first, last): rows first ... last - 1 of a map (B, C, H, W)."""


def strips(height: int, rows: int) -> Iterator[tuple[int, int]]:
    """(first, last) of consecutive strips of at most `rows` rows that cover `height`."""
    for first in range(0, height, rows):
        yield first, min(first + rows, height)


def coarser(first: int, last: int, height: int) -> tuple[int, int]:
    """Rows of a map of `height` rows on which rows first ... last - 1 of its enlargement by 2 depend.

    Bilinear enlargement without aligned corners. Enlarging these rows alone gives rows 2 low ... 2 high - 1,
    of which the wanted ones are right.
    """
    return max(0, (first - 1) // 2), min(height, last // 2 + 1)
