"""Layers applied to a picture a few rows at a time, with the result of applying them to all of it.

A strip is computed from its own rows and as many around them as the layers can see (their halo), and what
the halo's cut edge has spoilt is thrown away. At the true edges of the picture the layers pad as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

Rows = Callable[[int, int], Tensor]
"""rows(first, last): rows first ... last - 1 of a feature map (B, C, H, W)."""


def strips(height: int, rows: int) -> Iterator[tuple[int, int]]:
    """(first, last) of consecutive strips of at most `rows` rows that cover `height`."""
    for first in range(0, height, rows):
        yield first, min(first + rows, height)


def with_halo(first: int, last: int, halo: int, height: int, align: int = 1) -> tuple[int, int]:
    """The strip with `halo` rows around it that the picture has, ends rounded out to multiples of `align`."""
    low = max(0, first - halo) // align * align
    high = -(-min(height, last + halo) // align) * align
    return low, min(high, height)


def coarser(first: int, last: int, height: int) -> tuple[int, int]:
    """Rows of a map of `height` rows on which rows first ... last - 1 of its enlargement by 2 depend.

    Bilinear enlargement without aligned corners. Enlarging these rows alone gives rows 2 low ... 2 high - 1,
    of which the wanted ones are right.
    """
    return max(0, (first - 1) // 2), min(height, last // 2 + 1)


def in_strips(rows: Rows, height: int, strip: int, halo: int, *, align: int = 1, factor: int = 1) -> Tensor:
    """All rows of what `rows` computes: strips of `strip` rows with their halo, cut and put together.

    `align`: what first and last must be multiples of. `factor`: rows that come out for each row asked for.
    """
    if strip >= height:
        return rows(0, height)
    whole: Tensor | None = None
    for first, last in strips(height, strip):
        low, high = with_halo(first, last, halo, height, align)
        part = rows(low, high)[:, :, factor * (first - low) : factor * (last - low)]
        if whole is None:
            whole = part.new_empty((*part.shape[:2], factor * height, part.shape[3]))
        whole[:, :, factor * first : factor * last] = part
    assert whole is not None
    return whole
