"""How many rows a network computes at a time: as many as pay, and no more than fit into the memory."""

import math
from collections.abc import Callable

import torch

from pamcli.errors import DeviceError
from pamcli.inference import PAIRS_AT_ONCE
from pamcli.inference.memory import HINT, free_memory
from pamcli.streaming.footprint import Footprint

COMFORTABLE = 0.7  # share of the free memory that is taken without being asked for more


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
    needed = min(footprint.peak(least), footprint.peak(most))
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
    strip = most
    while strip > least and any(footprint.peak(strip) > limit for limit in limits):
        strip = max(least, (strip - 1) // multiple * multiple)
    # A small picture in strips takes more than as a whole.
    return strip if footprint.peak(strip) < footprint.peak(most) else most


def readable(count: int | None, rounded: Callable[[float], int] = math.ceil) -> str:
    """Bytes in GB with two decimals, or in MB."""
    assert count is not None
    megabytes = rounded(count / 1e6)
    return f"{megabytes}MB" if megabytes < 1000 else f"{rounded(count / 1e7) / 100:.2f}GB"
