"""Detect strong compression and noise in images from cameras."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pamcli.imaging.images import find_nearest_quality

if TYPE_CHECKING:
    from pamcli.imaging.images import RgbImage

LEAST_QUALITY = 93  # below this JPEG quality, the weights for cameras are better: at 92, but not at 95

LEAST_NOISE = 3.7  # levels of 255: those weights are better at 4, but not at 3; KITTI 2012 has at most 2.7

_SQUARE = 8  # px, side of JPEG's transform and of the squares for deviations
_MOST_SQUARES = 64  # in each direction, evenly spaced
_FLATTEST = 5  # percentile of the squares; the rest has texture
_SHARE = 0.72  # deviation of these squares relative to that of white noise
_DARKEST, _BRIGHTEST = 2, 253  # levels; noise is clipped beyond them

_LOW = ((0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (0, 3), (3, 0))
"""Frequencies of the transform, down and across, whose divisors are estimated from the pixels."""
_STEPS = np.arange(2, 61)  # divisors; 1 leaves no trace, as pixels are rounded
_LEAST_FOUND = 5  # frequencies
_LEAST_REGULAR = 0.3  # mean cosine; 1: all values are multiples of the divisor, 0: values are random
_BY_CHANCE = 4 / np.sqrt(2)  # 4 deviations of such a mean over N random values, times the root of N
_LINES = 256  # rows, and columns, used to locate the grid of squares


def detect_camera_fault(image: RgbImage) -> str | None:
    """Return the camera fault that super-resolution has to undo, or None if nothing is detected."""
    if image.jpeg_quality is not None and image.jpeg_quality < LEAST_QUALITY:
        return f"JPEG quality {image.jpeg_quality}"
    before = detect_jpeg_quality(image.pixels)
    if before is not None and before < LEAST_QUALITY:
        return f"traces of JPEG quality {before}"
    noise = measure_noise(image.pixels)
    return f"noise of {noise:.0f} levels of 255" if noise >= LEAST_NOISE else None


def detect_jpeg_quality(pixels: np.ndarray) -> int | None:
    """Return the JPEG quality (1 to 90) with which pixels (H, W, 3) were once saved, if they show it."""
    grid = _find_grid(pixels), _find_grid(pixels.swapaxes(0, 1))
    for first in dict.fromkeys(((0, 0), grid)):
        squares = _cut_squares(pixels[first[0] :, first[1] :])
        if not len(squares):
            continue
        brightness = squares @ np.array([0.299, 0.587, 0.114], np.float32)
        waves = np.cos(np.arange(1, 16, 2) * np.arange(4)[:, None] * np.pi / 16) / 2
        waves[0] /= np.sqrt(2)
        steps = {
            (down, across): _find_divisor(np.einsum("nij,i,j->n", brightness, waves[down], waves[across]))
            for down, across in _LOW
        }
        found = {place: step for place, step in steps.items() if step is not None}
        if len(found) >= _LEAST_FOUND:
            places = [_SQUARE * down + across for down, across in found]
            return find_nearest_quality(sum(found.values()), places)
    return None


def _find_grid(pixels: np.ndarray) -> int:
    """Return the number of rows (0 to 7) above the first square of the most visible grid."""
    green = pixels[:, :: -(-pixels.shape[1] // _LINES), 1].astype(np.float32)
    if len(green) < 4 * _SQUARE:
        return 0
    steps = np.abs(np.diff(green, axis=0)).mean(1)  # between each row and the next
    jumps = steps[1:-1] - (steps[:-2] + steps[2:]) / 2
    by_phase = [jumps[phase::_SQUARE].mean() for phase in range(_SQUARE)]
    return (int(np.argmax(by_phase)) + 2) % _SQUARE


def _find_divisor(values: np.ndarray) -> int | None:
    """Return the divisor of coefficients (N,), except for rounding, or None if there is none above 1."""
    sizes = np.abs(values)[:, None]
    counted = sizes > _STEPS / 2  # smaller values are multiples of any divisor: 0
    counts = np.maximum(counted.sum(0), 1)
    regular = np.cos(2 * np.pi / _STEPS * sizes).sum(0, where=counted) / counts
    regular[regular < np.maximum(_LEAST_REGULAR, _BY_CHANCE / np.sqrt(counts))] = 0
    best = int(regular.argmax())
    return int(_STEPS[best]) if regular[best] > 0 else None


def measure_noise(pixels: np.ndarray) -> float:
    """Return the standard deviation of white noise (levels of 255), from green in the flattest squares."""
    squares = _cut_squares(pixels)[..., 1]
    if not len(squares):
        return 0.0
    curved = np.diff(np.diff(squares, 2, axis=1), 2, axis=2) / 6  # white noise keeps its deviation
    deviations = np.sqrt((curved**2).mean((1, 2)))
    return float(np.percentile(deviations, _FLATTEST)) / _SHARE


def _cut_squares(pixels: np.ndarray) -> np.ndarray:
    """Return the squares (N, 8, 8, 3), 0 to 255, of an image (H, W, 3) that are neither dark nor bright."""
    down, across = (side // _SQUARE for side in pixels.shape[:2])
    cut = pixels[: down * _SQUARE, : across * _SQUARE].reshape(down, _SQUARE, across, _SQUARE, 3)
    by, beside = (max(1, -(-count // _MOST_SQUARES)) for count in (down, across))
    squares = cut.swapaxes(1, 2)[::by, ::beside].reshape(-1, _SQUARE, _SQUARE, 3)
    squares = squares.astype(np.float32) * np.float32(255 / np.iinfo(pixels.dtype).max)
    green = squares[..., 1]
    within = (green.min((1, 2)) > _DARKEST) & (green.max((1, 2)) < _BRIGHTEST)
    return np.asarray(squares[within])
