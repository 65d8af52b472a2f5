"""Choose the matching resolution: upscale small images, downscale large ones.

The finest attention has a quarter of the image's rows and columns, so structures below four px can be lost to
the background. Upscaled images lose less, in time proportional to their pixels. Images much larger than those
in training give better results when downscaled.
"""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from pamcli.errors import UsageError
from pamcli.imaging.resize import resize_area
from pamcli.inference.images import RANGES, Pixels

MatchSize = float | Literal["auto"]
"""Matching resolution: up to `MOST` a factor of the image sides; from `NARROWEST` on a width in px; auto: see
`matched_size`."""

LEAST, MOST = 1 / 16, 4.0
NARROWEST = 64

AUTO_MOST = 2.0
AUTO_PIXELS = 850_000
"""Pixels to which `auto` upscales smaller images, at most twice per side. Chosen for the fewest errors on
KITTI and Middlebury (scripts/training/README.md); scripts/training/ship.py measures other sizes."""

AUTO_LARGEST = 3_000_000
"""Pixels to which `auto` downscales larger images (scripts/measure_match_size.py)."""

AUTO_LEAST = 1.1  # smaller factors, up or down, are not worth the interpolation

SMALLEST_SIDE = 16  # px, at matching resolution


def check_match_size(size: MatchSize) -> MatchSize:
    """Return a valid matching resolution; raise UsageError unless it is a factor, a width or auto."""
    if size != "auto" and not (LEAST <= size <= MOST or NARROWEST <= size <= 65535):  # rejects NaN too
        raise UsageError(
            f"pictures cannot be matched at {size:g}",
            f"auto, a factor from {LEAST:g} to {MOST:g}, or a width from {NARROWEST} px on",
        )
    return size


def matched_size(
    size: MatchSize, height: int, width: int, most: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Return rows and columns at which images of `height` x `width` px are matched.

    auto: upscale small images to `AUTO_PIXELS`, within `most` (rows, columns), and downscale large ones to
    `AUTO_LARGEST`. Raises UsageError: a width above `MOST` times the image's.
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
    """Resize an image (H, W, 3) to `height` x `width` px: bicubic for upscaling, else area average.

    uint8 is preserved, and uint16 when downscaling; other types become float32.
    """
    if height <= view.shape[0] and width <= view.shape[1]:
        given = view.dtype.newbyteorder("=")
        return resize_area(view.astype(given if given in RANGES else np.float32, copy=False), width, height)
    if view.dtype != np.uint8:
        view = view.astype(np.float32) / np.float32(RANGES.get(view.dtype.newbyteorder("="), 1))
    channels = torch.from_numpy(view.copy()).permute(2, 0, 1)[None]  # torch needs a writable copy
    # antialias selects the usual cubic (a = -0.5) and has no other effect when upscaling.
    larger = F.interpolate(channels, (height, width), mode="bicubic", antialias=True)
    if view.dtype != np.uint8:
        larger.clamp_(0, 1)
    return larger[0].permute(1, 2, 0).numpy()
