"""From a pair to the training patches of PASSRnet's and iPASSR's authors (paper, section 5.4).

Both views are cut to a multiple of the scale, reduced by MATLAB's antialiased bicubic and rounded to 8 bits;
windows of 30 x 90 pixels with a stride of 20 are taken from the low resolution, and what they show from the
high one. The authors' loops begin at the third pixel and end before the last window that would fit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.data.preparation.pairs import Pair
from pamcli.errors import InputError
from pamcli.imaging.images import eight_bits
from pamcli.imaging.resize import imresize

HEIGHT, WIDTH = 30, 90
"""Of a patch, pixels of low resolution."""
STRIDE = 20
SCALES = (2, 4)

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Views:
    """Both views of a pair in both resolutions, side by side row by row."""

    high: Pixels
    """(H, 2, W, 3): [:, 0] is the left view, [:, 1] the right one."""
    low: Pixels
    """(H / scale, 2, W / scale, 3)."""


@dataclass(frozen=True)
class Patch:
    """What a training step sees. Left and right are (30, 90, 3), and (30 scale, 90 scale, 3)."""

    high_left: Pixels
    high_right: Pixels
    low_left: Pixels
    low_right: Pixels

    def checksum(self) -> str:
        """SHA-256 of the pixels: high left, high right, low left, low right."""
        digest = hashlib.sha256()
        for view in (self.high_left, self.high_right, self.low_left, self.low_right):
            digest.update(np.ascontiguousarray(view).data)
        return digest.hexdigest()


def boxes(height: int, width: int) -> list[tuple[int, int]]:
    """(row, column) of the top left pixel of every patch of a low-resolution picture, counted from 0."""
    # 3 : 20 : height - 33 in MATLAB, which counts from 1 and takes the end in.
    return [
        (row, column)
        for row in range(2, height - HEIGHT - 3, STRIDE)
        for column in range(2, width - WIDTH - 3, STRIDE)
    ]


def cut_size(width: int, height: int, scale: int, halved: bool) -> tuple[int, int]:
    """(width, height) of the high resolution that is left of a picture of this size."""
    if halved:
        width, height = -(-width // 2), -(-height // 2)
    return width - width % scale, height - height % scale


def read_views(pair: Pair, scale: int) -> Views:
    """Read a pair and make its low resolution.

    Pictures of 16 bits are rounded to 8. Raises InputError: a picture that cannot be read, or two sizes.
    """
    left, right = (eight_bits(location.read().pixels) for location in (pair.left, pair.right))
    if left.shape != right.shape:
        here, there = (f"{view.shape[1]} x {view.shape[0]}" for view in (right, left))
        raise InputError(f"{pair.right} is {here}, the left picture {pair.left} is {there}")
    if pair.halved:
        left, right = (imresize(view, 1 / 2).astype(np.uint8, copy=False) for view in (left, right))
    height, width = (side - side % scale for side in left.shape[:2])
    high = np.stack([left[:height, :width], right[:height, :width]], axis=1)
    low = np.stack([imresize(high[:, side], 1 / scale) for side in (0, 1)], axis=1)
    return Views(high, low.astype(np.uint8, copy=False))


def patch_at(views: Views, row: int, column: int) -> Patch:
    """The patch whose top left pixel is there in low resolution; arrays of its own, not views."""
    scale = views.high.shape[0] // views.low.shape[0]
    high = _window(views.high, row * scale, column * scale, HEIGHT * scale, WIDTH * scale)
    low = _window(views.low, row, column, HEIGHT, WIDTH)
    return Patch(high[0], high[1], low[0], low[1])


def _window(pixels: Pixels, row: int, column: int, height: int, width: int) -> Pixels:
    """(2, height, width, 3), copied."""
    both = pixels[row : row + height, :, column : column + width]
    return np.ascontiguousarray(both.transpose(1, 0, 2, 3))
