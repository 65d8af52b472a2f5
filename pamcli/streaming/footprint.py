"""What a network takes above its weights while it runs: its tensors, and what is lost between them.

The networks' numbers are bytes of their tensors, which tests count, as they count what a run takes.

To count them instead, as is done of networks that run whole, was tried: of `pasmnet2` a strip of 64 x 32 px
takes 0.07 s, and 0.5 s if nothing is computed, but its rows wait for up to 1,200 others, and 64 x 1472 px
take 1.4 s, where a pair of 1248 x 384 is matched in 0.6 s. Counts that are kept in a file need a term for
each of `in_strips` (six terms come within 1.5 times of its estimates for `pasmnet2`, nine within 1.1) for 28
choices of network, scale, precision and views: some 200 numbers and a script in place of 25. And no one
factor leads from counts to what is taken: beyond 30 MB it is 1.1 for `pasmnet` in one strip and 1.7 for
`passrnet2` in strips, with which the estimate for `pasmnet` would be 1.3 times what it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

LIBRARIES = 30_000_000
"""Bytes of kernels that are compiled for each new shape, and of weights in the layout that these want."""

STRIP, WAITING, WHOLE = 2.25, 1.25, 1.08
"""So many times their bytes are taken: by a strip's tensors, which come and go in many sizes, and which
convolutions copy into a layout of their own; by rows that wait; by a picture's that is one strip."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that a network holds at its peak, above its weights."""

    peak: Callable[[int], int]
    """Bytes with strips of so many rows."""
    rows: tuple[int, int, int]
    """Rows of a strip: the least, the most that pays, and what it is a multiple of."""

    def with_results(self, count: int) -> "Footprint":
        """Add bytes that the results take."""
        return replace(self, peak=lambda strip: self.peak(strip) + count)


@dataclass(frozen=True)
class Pays:
    """How many rows of a picture are computed at a time: a thicker strip only takes more memory."""

    pixels: int
    """Pixels of a strip, at the most."""
    whole: int = 0
    """Pixels of a picture that is one strip: without any edge between strips it takes a tenth less time."""
    multiple: int = 2
    """Rows of a strip are a multiple of it."""

    def rows(self, width: int, height: int) -> tuple[int, int, int]:
        """`Footprint.rows` of a picture."""
        if width * height <= self.whole:
            return min(self.multiple, height), height, self.multiple
        most = min(round(self.pixels / width / self.multiple), -(-height // self.multiple))
        return self.multiple, self.multiple * max(1, most), self.multiple


def in_strips(
    width: int,
    height: int,
    pays: Pays,
    *,
    picture: float,
    strip: float,
    waiting: Sequence[tuple[float, int]],
    line: float,
    lines: int,
    ahead: int = 0,
) -> Footprint:
    """Count what a network takes for `width` x `height` px, from bytes for each pixel.

    These are of the whole `picture`; of the `strip` that is computed; of rows that are `waiting` for others
    below them, and how many these are at the most. `line`: bytes for each of the rows whose attention is
    looked at at a time: at most `lines`, and no more than those of a strip and `ahead` of it.
    """

    def peak(rows: int) -> int:
        rest = max(0, height - rows)
        of_strip = (STRIP if rest else WHOLE) * strip * (height - rest)
        of_waiting = WAITING * sum(each * min(count, rest) for each, count in waiting)
        return int(
            LIBRARIES
            + width * (picture * height + of_strip + of_waiting)
            + line * min(lines, rows + ahead, height)
        )

    return Footprint(peak, pays.rows(width, height))
