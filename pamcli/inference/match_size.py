"""In what size pictures are matched: small ones enlarged, large ones reduced.

The finest attention has a quarter of the pictures' rows and columns: what is narrower than four pixels can be
lost to what is behind it. Enlarged pictures lose less, for time that grows with their pixels. Of pictures
that are far larger than those that the networks learned from, more is found where they are reduced.
"""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from pamcli.errors import UsageError
from pamcli.imaging.resize import area_mean
from pamcli.inference.pictures import RANGES, Pixels

MatchSize = float | Literal["auto"]
"""Size in which pictures are matched: up to `MOST` how many times as large on each side as they are; from
`NARROWEST` on a width in pixels; auto: see `matched_size`."""

LEAST, MOST = 1 / 16, 4.0
NARROWEST = 64

AUTO_MOST = 2.0
AUTO_PIXELS = 850_000
"""`auto` enlarges smaller pictures to so many pixels, and at most twice on each side.

Chosen for the fewest errors on KITTI and Middlebury (scripts/training/README.md); scripts/training/ship.py
measures other sizes."""

AUTO_LARGEST = 3_000_000
"""`auto` reduces larger pictures to so many pixels (scripts/measure_match_size.py)."""

AUTO_LEAST = 1.1  # a smaller factor, up or down, is not worth the interpolation

SMALLEST_SIDE = 16  # pixels of what is matched


def check_match_size(size: MatchSize) -> MatchSize:
    """The size itself. Raises UsageError: neither a factor from `LEAST` to `MOST`, a width, nor auto."""
    if size != "auto" and not (LEAST <= size <= MOST or NARROWEST <= size <= 65535):  # also true for NaN
        raise UsageError(
            f"pictures cannot be matched at {size:g}",
            f"auto, a factor from {LEAST:g} to {MOST:g}, or a width from {NARROWEST} px on",
        )
    return size


def matched_size(
    size: MatchSize, height: int, width: int, most: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Rows and columns in which pictures of `height` x `width` pixels are matched.

    auto: small pictures enlarged to `AUTO_PIXELS`, but no more than fit into `most` (rows, columns); large
    ones reduced to `AUTO_LARGEST`. Raises UsageError: a width that is more than `MOST` times theirs.
    """
    if size == "auto":
        times = max(1.0, min(AUTO_MOST, (AUTO_PIXELS / (height * width)) ** 0.5))
        if most is not None:
            times = max(1.0, min(times, most[0] / height, most[1] / width))
        if height * width > AUTO_LARGEST:
            times = (AUTO_LARGEST / (height * width)) ** 0.5
        if 1 / AUTO_LEAST < times < AUTO_LEAST:
            return height, width
    else:
        times = size if size < NARROWEST else size / width
        if times > MOST:
            raise UsageError(
                f"a width of {size:g} px is more than {MOST:g} times that of the pictures, {width} px"
            )
    return max(round(times * height), SMALLEST_SIDE), max(round(times * width), SMALLEST_SIDE)


def resized(view: Pixels, height: int, width: int) -> Pixels:
    """A picture (H, W, 3) in `height` x `width` pixels: bicubic where it grows, else the mean of its pixels.

    uint8 remains, and uint16 where pictures are reduced; all else becomes float32.
    """
    if height <= view.shape[0] and width <= view.shape[1]:
        given = view.dtype.newbyteorder("=")
        return area_mean(view.astype(given if given in RANGES else np.float32, copy=False), width, height)
    if view.dtype != np.uint8:
        view = view.astype(np.float32) / np.float32(RANGES.get(view.dtype.newbyteorder("="), 1))
    channels = torch.from_numpy(view.copy()).permute(2, 0, 1)[None]  # torch wants to own what it may write to
    # With antialias, which changes nothing where pictures grow, torch takes the usual cubic (a = -0.5).
    larger = F.interpolate(channels, (height, width), mode="bicubic", antialias=True)
    if view.dtype != np.uint8:
        larger.clamp_(0, 1)
    return larger[0].permute(1, 2, 0).numpy()
