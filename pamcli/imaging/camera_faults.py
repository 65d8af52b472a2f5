"""What a picture shows of the camera that it comes from: strong compression, and noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pamcli.imaging.images import Picture

LEAST_QUALITY = 92
"""JPEG of a lower quality is enlarged better by the weights for cameras: at 90, but not at 95."""

LEAST_NOISE = 4.5
"""Levels from 0 to 255 from which those do better: at 5, but not at 3. KITTI 2012 has 2.7 at most."""

# Annex K of the JPEG standard, which libjpeg scales by the quality.
_LUMINANCE = (
    *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
)

_SQUARE = 8  # pixels on each side, of what deviations are taken of
_MOST_SQUARES = 64  # in each direction, evenly spread
_FLATTEST = 5  # percent of the squares: the others have texture
_SHARE = 0.72  # of white noise's deviation, that these squares have
_DARKEST, _BRIGHTEST = 2, 253  # levels; beyond them noise is cut off


def camera_fault(picture: Picture) -> str | None:
    """Say what a camera did to a picture that super-resolution has to undo; None: nothing that shows."""
    if picture.jpeg_quality is not None and picture.jpeg_quality < LEAST_QUALITY:
        return f"JPEG quality {picture.jpeg_quality}"
    noise = noise_level(picture.pixels)
    return f"noise of {noise:.0f} levels of 255" if noise >= LEAST_NOISE else None


def jpeg_quality(tables: Mapping[int, Sequence[int]]) -> int | None:
    """Find the quality (1 to 100, as libjpeg means it) whose luminance table is nearest to that of a file.

    tables: 64 divisors each by the number of the table, in any order; None: there is no table 0.
    """
    if 0 not in tables:
        return None
    given = sum(tables[0])
    return min(range(100, 0, -1), key=lambda quality: abs(_sum_of_table(quality) - given))


@cache
def _sum_of_table(quality: int) -> int:
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return sum(min(max((each * percent + 50) // 100, 1), 255) for each in _LUMINANCE)


def noise_level(pixels: np.ndarray) -> float:
    """Estimate the standard deviation of white noise, levels from 0 to 255, of a picture (H, W, 3).

    It is that of green's second differences in the flattest squares, uint8 or uint16; 0 where all of it is
    too dark, too bright, or too small to tell.
    """
    green = pixels[..., 1]
    down, across = (side // _SQUARE for side in green.shape)
    if not down or not across:
        return 0.0
    cut = green[: down * _SQUARE, : across * _SQUARE].reshape(down, _SQUARE, across, _SQUARE).swapaxes(1, 2)
    steps = (-(-count // _MOST_SQUARES) for count in (down, across))
    squares = cut[:: next(steps), :: next(steps)].reshape(-1, _SQUARE, _SQUARE)
    squares = squares.astype(np.float32) * np.float32(255 / np.iinfo(pixels.dtype).max)
    squares = squares[(squares.min((1, 2)) > _DARKEST) & (squares.max((1, 2)) < _BRIGHTEST)]
    if not len(squares):
        return 0.0
    curved = np.diff(np.diff(squares, 2, axis=1), 2, axis=2) / 6  # white noise keeps its deviation
    deviations = np.sqrt((curved**2).mean((1, 2)))
    return float(np.percentile(deviations, _FLATTEST)) / _SHARE
