"""How many rows a network computes at a time: as many as pay, and no more than fit into the memory.

What a network holds above its weights is counted here, tensor by tensor, and held against measurements by
the tests. `item` is the bytes of a number in the network's precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pamcli.errors import DeviceError
from pamcli.inference.memory import HINT, free_memory
from pamcli.inference.pipeline import AT_ONCE
from pamcli.networks.streamed_attention import COLUMN_BLOCKS, lines_at_once

COMFORTABLE = 0.7
"""Share of the free memory that is taken without being asked for more."""

MATCHING_LAG, MATCHING_ROW, MATCHING_COSTS = 4_500, 86, 216
"""Of PASMnet's attention stages: numbers for each column of the pictures, whatever the strip; numbers for
each pixel of a strip; and bytes for each pixel of a strip that are float32 in any precision.

Rows wait for those below them that the convolutions of all stages still need; a strip's are the heads and
their sums (64 channels at 1/4, 96 at 1/8, 128 at 1/16, four blocks of each, both views); and queries of one
view with keys of the other have four times as many channels.
"""

UPSCALING_LAG, UPSCALING_ROW, UPSCALING_COSTS = 19_500, 750, 1_500
"""The same of PASSRnet.

The six groups of dilated convolutions wait for 16 rows each (and their sums for 8), both views, 64 channels;
a strip's are a group's input, sum, three branches and these joined; queries, keys and values of both views.
"""

SCATTER = 2
"""Strips come and go in pieces of many sizes: so many times their bytes are held by the allocator, and by the
convolutions' own copies in another layout, at the most (measured from 0.03 to 1 megapixels)."""

LIBRARIES = 30_000_000
"""Bytes of kernels that are compiled for each new shape, and of weights in the layout that these want."""

CLEANING = 80
"""Bytes for each pixel of a mask while it is cleaned: labels, their neighbours and counts, 4 or 8 each."""

MATCHING_STRIP = 80_000
UPSCALING_STRIP = 10_000
"""Pixels of a strip, at the most: a thicker one only takes more memory."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that a network holds at its peak, above its weights."""

    fixed: int
    """Whatever the strip."""
    per_row: int
    """For each row of the strip."""
    rows: tuple[int, int, int]
    """Of a strip: the least, the most that pays, and what it is a multiple of."""

    def peak(self, strip: int) -> int:
        """With strips of so many rows."""
        return self.fixed + strip * self.per_row


def matching_footprint(
    width: int, height: int, item: int, *, confidence: bool = False, right: bool = False
) -> Footprint:
    """Of PASMnet on a pair of `width` x `height` px, multiples of 32."""
    pixels = width * height
    # Both views: E1 (64 channels at 1/4), F2 (96 at 1/8), F1 (128 at 1/16).
    features = 2 * (64 * pixels // 16 + 96 * pixels // 64 + 128 * pixels // 256) * item
    # Initial disparity, received attention, filled disparity at 1/4; refined disparity.
    disparities = 4 * (3 * pixels // 16 + pixels)
    # What is returned: disparity; of the right view, with the mask; confidence, and before it is cropped.
    results = 4 * pixels * (1 + 2 * right + 2 * confidence)
    most = _useful(MATCHING_STRIP, width, height, 32)
    pieces = _attention(width // 4, most // 4, ordered=True)
    lag = SCATTER * MATCHING_LAG * item * width
    return Footprint(
        fixed=LIBRARIES + features + disparities + results + pieces + lag,
        per_row=SCATTER * (MATCHING_ROW * item + MATCHING_COSTS) * width,
        rows=(32, most, 32),
    )


def upscaling_footprint(width: int, height: int, item: int, *, scale: int, views: int) -> Footprint:
    """Of PASSRnet on a pair of `width` x `height` px, of which `views` are enlarged."""
    pixels = width * height
    # Fused features; attention that both views receive; a mask and its clean-up.
    held = 64 * item * views * pixels + 8 * pixels + CLEANING * pixels
    # The last layers, a row at a time, before and after channels become pixels, with its neighbours.
    pictures = 4 * 64 * scale**2 * item * width
    most = _useful(UPSCALING_STRIP, width, height, 2)
    lag = SCATTER * UPSCALING_LAG * item * width
    return Footprint(
        fixed=LIBRARIES + held + pictures + _attention(width, most, ordered=False) + lag,
        per_row=SCATTER * (UPSCALING_ROW * item + UPSCALING_COSTS) * width,
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
    """Rows to compute at a time of a pair of `width` x `height` px.

    `max_memory`: bytes that the program may take in all, of which it had `taken` some before it was given
    pictures; those of a pair take `pictures`, and a batch holds several pairs. Raises DeviceError where even
    the thinnest strip needs more than that, or than is free.
    """
    least, most, multiple = footprint.rows
    free = free_memory(device)
    allowed = None if max_memory is None else max_memory - taken - AT_ONCE * pictures
    needed = footprint.peak(least)
    if allowed is not None and needed > allowed:
        raise DeviceError(
            f"a pair of {width} x {height} pixels does not fit into --max-memory {readable(max_memory)}",
            f"--max-memory {readable(taken + AT_ONCE * pictures + needed)} is the least that would do",
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
    fitting = min([most, *((limit - footprint.fixed) // footprint.per_row for limit in limits)])
    return max(least, fitting // multiple * multiple)


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
