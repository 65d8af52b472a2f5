"""How many rows a network computes at a time: as many as pay, and no more than fit into the memory.

What a network holds above its weights is counted here, tensor by tensor, and held against measurements by
the tests. `item` is the bytes of a number in the network's precision.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from pamcli.errors import DeviceError
from pamcli.inference import PAIRS_AT_ONCE
from pamcli.inference.memory import HINT, free_memory
from pamcli.streaming.attention import COLUMN_BLOCKS, lines_at_once
from pamcli.streaming.passrnet2 import SMALLER
from pamcli.streaming.symmetric_attention import AFTER, BEFORE

COMFORTABLE = 0.7  # share of the free memory that is taken without being asked for more

MATCHING_LAG, MATCHING_ROW, MATCHING_COSTS = 4_500, 86, 216
"""What PASMnet's attention stages hold: numbers for each column, whatever the strip; numbers for
each pixel of a strip; and bytes for each pixel of a strip that are float32 in any precision.

Rows wait for those below them that the convolutions of all stages still need; a strip's are the heads and
their sums (64 channels at 1/4, 96 at 1/8, 128 at 1/16, four blocks of each, both views); and queries of one
view with keys of the other have four times as many channels.
"""

MATCHING2_LAG, MATCHING2_LAG_COSTS, MATCHING2_ROWS = 17_000, 2_500, 900
MATCHING2_ROW, MATCHING2_COSTS = 34, 180
MATCHING2_COST_ROWS = 32, 30, 32
"""What PASMnet 2 holds, measured on what tensors take: for each column of pictures that have that many rows
or more; for each pixel of a strip; and lines of costs at 1/4, 1/8 and 1/16.

Its coarsest scale looks 900 rows ahead of the disparity that is given out. What is held of so many rows are
the features at 1/4 of both views (64 channels), those at 1/8 (96), and 32 of E0's."""

UPSCALING_LAG, UPSCALING_ROW, UPSCALING_COSTS = 19_500, 750, 1_500
"""What PASSRnet holds, in that order.

The six groups of dilated convolutions wait for 16 rows each (and their sums for 8), both views, 64 channels;
a strip's are a group's input, sum, three branches and these joined; queries, keys and values of both views.
"""

UPSCALING2_LAG, UPSCALING2_ROW, UPSCALING2_COSTS = 8_000, 450, 1_600
"""What PASSRnet 2 holds, fitted to what tensors take. Its blocks wait for two rows of 64 channels of both
views; a strip's are features before and after a 3x3 convolution, their norm in float32."""

MATCHING_WHOLE_ROW, MATCHING_WHOLE_COSTS = 90, 380
MATCHING2_WHOLE_ROW, MATCHING2_WHOLE_COSTS = 20, 205
UPSCALING_WHOLE_ROW, UPSCALING_WHOLE_COSTS = 64, 1_536
"""What a picture holds that is one strip. PASMnet's costs are those of the lines whose attention is looked
at at a time. PASSRnet's rows are counted for each view, and once more."""

MATCHING_HEADS = 48
"""Numbers for each pixel that are held until the confidence is computed: the heads, see `MATCHING_LAG`."""

WHOLE_SCATTER = 1.5
SCATTER = 2
"""Strips come and go in pieces of many sizes: so many times their bytes are held by the allocator, and by the
convolutions' own copies in another layout, at the most (measured from 0.03 to 1 megapixels). Less where
PASSRnet's picture is one strip."""

LIBRARIES = 30_000_000
"""Bytes of kernels that are compiled for each new shape, and of weights in the layout that these want."""

CLEANING = 80
"""Bytes for each pixel of a mask while it is cleaned: labels, their neighbours and counts, 4 or 8 each."""

MATCHING_STRIP, MATCHING_WHOLE = 120_000, 500_000
UPSCALING_STRIP, UPSCALING_WHOLE = 15_000, 30_000
"""Pixels of a strip, at the most: a thicker one only takes more memory. But a picture that has no more than
the second number is one strip, for without any edge between strips it takes a tenth less time."""

UPSCALING2_STRIP = 30_000
"""Pixels of a strip of PASSRnet 2, at the most: small pictures are one, which takes less memory, too."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that a network holds at its peak, above its weights."""

    fixed: int
    """Whatever the strip."""
    per_row: int
    """Bytes for each row of the strip."""
    rows: tuple[int, int, int]
    """Rows of a strip: the least, the most that pays, and what it is a multiple of."""
    whole: tuple[int, int] | None = None
    """Rows of the whole picture, and bytes for it as one strip, where that pays."""

    def peak(self, strip: int) -> int:
        """Bytes with strips of so many rows."""
        if self.whole is not None and strip >= self.whole[0]:
            return self.whole[1]
        return self.fixed + strip * self.per_row

    @property
    def comfortable(self) -> int:
        """Rows of a strip where memory is no limit."""
        return self.rows[1] if self.whole is None else self.whole[0]

    def with_results(self, count: int) -> "Footprint":
        """Add bytes that the results take."""
        whole = None if self.whole is None else (self.whole[0], self.whole[1] + count)
        return replace(self, fixed=self.fixed + count, whole=whole)


def matching_footprint(
    width: int,
    height: int,
    item: int,
    *,
    confidence: bool = False,
    right: bool = False,
) -> Footprint:
    """Memory of PASMnet for `width` x `height` px, multiples of 32."""
    pixels = width * height
    # Both views: E1 (64 channels at 1/4), F2 (96 at 1/8), F1 (128 at 1/16).
    features = 2 * (64 * pixels // 16 + 96 * pixels // 64 + 128 * pixels // 256) * item
    # Initial disparity, received attention, filled disparity at 1/4; refined disparity.
    disparities = 4 * (3 * pixels // 16 + pixels)
    held = LIBRARIES + features + disparities + _results(pixels, confidence, right)
    most = _useful(MATCHING_STRIP, width, height, 32)
    lag = SCATTER * MATCHING_LAG * item * width
    per_row = SCATTER * (MATCHING_ROW * item + MATCHING_COSTS) * width
    whole = None
    if pixels <= MATCHING_WHOLE:
        lines = min(height, 4 * lines_at_once(width // 4, width // 4))
        costs = MATCHING_WHOLE_COSTS * lines * width
        pieces = _attention(width // 4, height // 4, ordered=True)
        numbers = MATCHING_WHOLE_ROW + (MATCHING_HEADS if confidence else 0)
        whole = height, held + pieces + numbers * item * pixels + costs
    return Footprint(
        fixed=held + lag + _attention(width // 4, most // 4, ordered=True),
        per_row=per_row,
        rows=(32, most, 32),
        whole=whole,
    )


def matching2_footprint(
    width: int, height: int, item: int, *, confidence: bool = False, right: bool = False
) -> Footprint:
    """Memory of PASMnet 2 for `width` x `height` px, multiples of 32."""
    pixels, quarter = width * height, width // 4
    # Disparity before it is cropped; received attention, confidence, and what is made of both.
    held = LIBRARIES + 4 * pixels + 16 * pixels // 16 + _results(pixels, confidence, right)
    square, beside = 4 * quarter**2, 4 * quarter * (BEFORE + AFTER)
    # Bytes of a line of costs: of the finest as they are ordered; of coarser ones twice, as a whole, too.
    fine = square * (COLUMN_BLOCKS + 1) / (2 * COLUMN_BLOCKS) + beside
    middle, coarse = square / 2 + beside / 2, square / 8 + beside / 4
    most = _useful(MATCHING_STRIP, width, height, 32)
    lag = MATCHING2_LAG * item * min(1.0, height / MATCHING2_ROWS) + MATCHING2_LAG_COSTS
    costs = [rows * each for rows, each in zip(MATCHING2_COST_ROWS, (fine, middle, coarse), strict=True)]
    per_row = (MATCHING2_ROW * item + MATCHING2_COSTS) * width
    per_row_costs = fine / 4 + middle / 8 + coarse / 16
    whole = None
    if pixels <= MATCHING_WHOLE:
        run = (MATCHING2_WHOLE_ROW * item + MATCHING2_WHOLE_COSTS) * pixels + height * per_row_costs
        whole = height, int(held + run + _attention(quarter, height // 4, ordered=True))
    pieces = _attention(quarter, most // 4, ordered=True)
    return Footprint(
        fixed=int(held + WHOLE_SCATTER * lag * width + sum(costs) + pieces),
        per_row=int(WHOLE_SCATTER * per_row + per_row_costs),
        rows=(32, most, 32),
        whole=whole,
    )


def _results(pixels: int, confidence: bool, right: bool) -> int:
    """What is returned: disparity; of the right view, with the mask; confidence, and before it is cropped."""
    return 4 * pixels * (1 + 2 * right + 2 * confidence)


def upscaling_footprint(width: int, height: int, item: int, *, scale: int, views: int) -> Footprint:
    """Memory of PASSRnet for a pair of `width` x `height` px, of which `views` are enlarged."""
    pixels = width * height
    # Fused features; attention that both views receive; a mask and its clean-up.
    held = 64 * item * views * pixels + 8 * pixels + CLEANING * pixels
    # A row of the last layers, before and after channels become pixels, and made float32.
    pictures = 2 * 3 * scale**2 * (item + 4) * width
    most = _useful(UPSCALING_STRIP, width, height, 2)
    lag = SCATTER * UPSCALING_LAG * item * width
    whole = None
    if pixels <= UPSCALING_WHOLE:
        numbers = UPSCALING_WHOLE_ROW * (views + 1) * item + UPSCALING_WHOLE_COSTS + CLEANING
        run = _attention(width, height, ordered=False) + numbers * pixels
        whole = height, LIBRARIES + pictures * height + int(WHOLE_SCATTER * run)
    return Footprint(
        fixed=LIBRARIES + held + _attention(width, most, ordered=False) + lag,
        per_row=SCATTER * (UPSCALING_ROW * item + UPSCALING_COSTS) * width + pictures,
        rows=(2, most, 2),
        whole=whole,
    )


def upscaling2_footprint(width: int, height: int, item: int, *, scale: int, views: int) -> Footprint:
    """Memory of PASSRnet 2: it enlarges both views in any case, and holds nothing of the whole picture."""
    pictures = 2 * 3 * scale**2 * (item + 12) * width
    most = _useful(UPSCALING2_STRIP, width, height, 2)
    attention = _attention(width, max(4, most // SMALLER), ordered=False)
    return Footprint(
        fixed=LIBRARIES + attention + SCATTER * UPSCALING2_LAG * item * width,
        per_row=SCATTER * (UPSCALING2_ROW * item + UPSCALING2_COSTS) * width + pictures,
        rows=(2, most, 2),
    )


def choose_strip(
    footprint: Footprint,
    *,
    width: int,
    height: int,
    pictures: int,
    device: torch.device,
    max_memory: int | None = None,
    taken: int = 0,
) -> int:
    """Rows to compute at a time of a pair of `width` x `height` px: all, or as many as pay, or as fit.

    `max_memory`: bytes that the program may take in all, of which it had `taken` some before it was given
    pictures; those of a pair take `pictures`, and a batch holds several pairs. Raises DeviceError where even
    the thinnest strip needs more than that, or than is free.
    """
    least, most, multiple = footprint.rows
    free = free_memory(device)
    allowed = None if max_memory is None else max_memory - taken - PAIRS_AT_ONCE * pictures
    needed = min(footprint.peak(least), footprint.peak(footprint.comfortable))
    if allowed is not None and needed > allowed:
        raise DeviceError(
            f"a pair of {width} x {height} pixels does not fit into {readable(max_memory)} of memory",
            f"`max_memory` {readable(taken + PAIRS_AT_ONCE * pictures + needed)} is the least that would do",
        )
    if free is not None and needed > free:
        raise DeviceError(
            f"a pair of {width} x {height} pixels needs at least {readable(needed)} of memory, "
            f"{readable(free, math.floor)} are free",
            HINT,
        )
    limits = [
        limit for limit in (allowed, None if free is None else int(COMFORTABLE * free)) if limit is not None
    ]
    if footprint.whole is not None and all(footprint.whole[1] <= limit for limit in limits):
        return footprint.whole[0]
    fitting = min([most, *((limit - footprint.fixed) // footprint.per_row for limit in limits)])
    strip = max(least, fitting // multiple * multiple)
    # A small picture in strips takes more than as a whole.
    return strip if footprint.peak(strip) < footprint.peak(footprint.comfortable) else footprint.comfortable


def readable(count: int | None, rounded: Callable[[float], int] = math.ceil) -> str:
    """Bytes in GB with two decimals, or in MB."""
    assert count is not None
    megabytes = rounded(count / 1e6)
    return f"{megabytes}MB" if megabytes < 1000 else f"{rounded(count / 1e7) / 100:.2f}GB"


def _useful(pixels: int, width: int, height: int, multiple: int) -> int:
    """Rows that have about so many pixels, and not many more than there are."""
    return multiple * max(1, min(round(pixels / width / multiple), -(-height // multiple)))


def _attention(width: int, rows: int, *, ordered: bool) -> int:
    """Pieces of attention maps: enlarged coarser costs, before and after they are cut; costs; attention."""
    lines = min(rows, lines_at_once(width, width))
    return 4 * 4 * lines * width**2 // (COLUMN_BLOCKS if ordered else 1)
