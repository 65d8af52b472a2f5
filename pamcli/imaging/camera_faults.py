"""Detect strong compression, noise and blur in images from cameras, and sharpen blurred images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.jpeg import find_nearest_quality

if TYPE_CHECKING:
    from pamcli.imaging.images import RgbImage

LEAST_QUALITY = 93  # below this JPEG quality, the weights for cameras are better: at 92, but not at 95

LEAST_NOISE = 3.7  # levels of 255: those weights are better at 4, but not at 3; KITTI 2012 has at most 2.7

WEAK_DETAIL, WEAK_COMPRESSED_DETAIL = 1.6, 2.5
"""Contrast of details relative to grain (see `measure_detail`), of other images and of JPEG images, below
which images are not upscaled before matching, as grain would look like texture. The limits of matching were
chosen on rooms and streets with ten kinds of faults (guide page benchmarks)."""
BLURRED, SOFT, COMPRESSED, NOISY = 0.3, 0.36, 85, 2.2
"""Sharpness (0.25 to 0.29 for a blur of 2 px, 0.31 to 0.33 for 1 px, 0.41 and more if sharp) below which
images are sharpened strongly and not upscaled, and below which they are sharpened; largest JPEG quality and
smallest noise (levels of 255) that count as faults in matching."""
FAULTY_MOST = 1.41  # factor up to which other images with faults are upscaled

_SQUARE = 8  # px, side of JPEG's transform and of the squares for deviations
_MOST_SQUARES = 32  # in each direction, evenly spaced
_FLATTEST = 5  # percentile of the squares; the rest has texture
_STRONGEST = 99  # percentile of the pixels, whose details show the sharpness
_SHARE = 0.72  # deviation of these squares relative to that of white noise
_DARKEST, _BRIGHTEST = 2, 253  # levels; noise is clipped beyond them

_LOW = np.array([(0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (0, 3), (3, 0)]).T
"""Frequencies of the transform, down and across, whose divisors are estimated from the pixels."""
_STEPS = np.arange(2, 61, dtype=np.float32)  # divisors; 1 leaves no trace, as pixels are rounded
_FINENESS = 8  # parts of a level that coefficients are rounded to
_LEAST_FOUND = 5  # frequencies
_LEAST_REGULAR = 0.3  # mean cosine; 1: all values are multiples of the divisor, 0: values are random
_BY_CHANCE = 4 / np.sqrt(2)  # 4 deviations of such a mean over N random values, times the root of N
_LINES = 256  # rows, and columns, used to locate the grid of squares
_SHARP_LINES = 64  # rows, and columns, used to measure the sharpness


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
    waves = np.cos(np.arange(1, 16, 2) * np.arange(4)[:, None] * np.pi / 16).astype(np.float32) / 2
    waves[0] /= np.sqrt(2)
    for first in dict.fromkeys(((0, 0), grid)):
        squares = _cut_squares(pixels[first[0] :, first[1] :])
        if not len(squares):
            continue
        brightness = squares @ np.array([0.299, 0.587, 0.114], np.float32)
        values = (waves @ brightness @ waves.T)[:, *_LOW]
        # The divisor of each frequency is that of which its values are multiples, except for rounding.
        counted, cosines = _make_tables()
        sizes, count = len(counted), len(_LOW[0])
        bins = np.rint(_FINENESS * np.abs(values)).astype(int).clip(max=sizes - 1) + sizes * np.arange(count)
        counts = np.bincount(bins.ravel(), minlength=sizes * count).reshape(count, sizes).astype(np.float32)
        summed = np.maximum(counts @ counted, 1)
        regular = counts @ cosines / summed
        regular[regular < np.maximum(_LEAST_REGULAR, _BY_CHANCE / np.sqrt(summed))] = 0
        found = regular.any(axis=1)
        if np.count_nonzero(found) >= _LEAST_FOUND:
            rows, columns = _LOW[:, found]
            steps = _STEPS[regular[found].argmax(axis=1)]
            return find_nearest_quality(int(steps.sum()), _SQUARE * rows + columns)
    return None


def _find_grid(pixels: np.ndarray) -> int:
    """Return the number of rows (0 to 7) above the first square of the most visible grid."""
    green = pixels[:, :: -(-pixels.shape[1] // _LINES), 1].astype(np.float32)
    if len(green) < 4 * _SQUARE:
        return 0
    steps = np.abs(np.diff(green, axis=0)).mean(1)  # between each row and the next
    jumps = steps[1:-1] - (steps[:-2] + steps[2:]) / 2
    phases = np.arange(len(jumps)) % _SQUARE
    return (int(np.argmax(np.bincount(phases, jumps) / np.bincount(phases))) + 2) % _SQUARE


@cache
def _make_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return for each size of a coefficient and each divisor whether it counts, and its cosine; (B, D)."""
    sizes = np.arange(1025 * _FINENESS, dtype=np.float32)[:, None] / _FINENESS
    counted = (sizes > _STEPS / 2).astype(np.float32)  # smaller values are multiples of any divisor: 0
    return counted, counted * np.cos(np.float32(2 * np.pi) / _STEPS * sizes)


def measure_noise(pixels: np.ndarray) -> float:
    """Return the standard deviation of white noise (levels of 255), from green in the flattest squares."""
    squares = _cut_squares(pixels)[..., 1]
    if not len(squares):
        return 0.0
    curved = np.diff(np.diff(squares, 2, axis=1), 2, axis=2) / 6  # white noise keeps its deviation
    deviations = np.sqrt((curved**2).mean((1, 2)))
    return float(np.percentile(deviations, _FLATTEST)) / _SHARE


@dataclass(frozen=True)
class UnsharpMask:
    """A filter that adds to an image its difference from a blurred copy."""

    radius: float  # standard deviation of the blur, px
    amount: float  # factor of the difference

    def __call__(self, view: NDArray[np.uint8 | np.float32]) -> NDArray[np.uint8 | np.float32]:
        """Sharpen an image (H, W, 3): uint8, or float32 in [0, 1]."""
        import cv2

        blurred = cv2.GaussianBlur(view, (0, 0), self.radius)
        sharp = cv2.addWeighted(view, 1 + self.amount, blurred, -self.amount, 0)
        return np.asarray(np.clip(sharp, 0, 1 if view.dtype == np.float32 else 255))


SHARPENING, STRONG_SHARPENING = UnsharpMask(1.5, 1), UnsharpMask(2, 3)
"""Filters for soft and for blurred images, chosen on the same rooms and streets."""


@dataclass(frozen=True)
class MatchingFault:
    """A fault of a pair that changes how it is matched."""

    text: str  # such as "noise (3.1 levels of 255)"
    most: float = math.inf  # factor by which the images are upscaled at most
    sharpening: tuple[UnsharpMask | None, ...] = (None, None)  # of the left and the right image


def find_matching_fault(*views: np.ndarray, are_upscaled: bool = True) -> MatchingFault | None:
    """Return the fault of images (H, W, 3) uint8 that limits their matching resolution most, if any.

    Of images that are not upscaled before matching, only blur is a fault.
    """
    worst, sharpening = None, []
    for view in views:
        fault = _find_fault(view, is_upscaled=are_upscaled)
        sharpening.append(None if fault is None else fault.sharpening[0])
        if fault is not None and (worst is None or fault.most < worst.most):
            worst = fault
    return None if worst is None else replace(worst, sharpening=tuple(sharpening))


def _find_fault(pixels: np.ndarray, *, is_upscaled: bool) -> MatchingFault | None:
    sharpness = measure_sharpness(pixels)
    if sharpness >= SOFT and not is_upscaled:
        return None
    blur = f"blur (sharpness {sharpness:.2f})"
    if sharpness < BLURRED:
        return MatchingFault(blur, 1 if is_upscaled else math.inf, (STRONG_SHARPENING,))
    detail, noise = measure_detail(pixels), measure_noise(pixels)
    if noise >= NOISY or detail < WEAK_DETAIL:
        most = 1 if detail < WEAK_DETAIL else FAULTY_MOST
        return MatchingFault(f"noise ({noise:.1f} levels of 255)", most) if is_upscaled else None
    quality = detect_jpeg_quality(pixels)
    if quality is None or quality > COMPRESSED:
        return MatchingFault(blur, sharpening=(SHARPENING,)) if sharpness < SOFT else None
    most = 1 if detail < WEAK_COMPRESSED_DETAIL else FAULTY_MOST
    return MatchingFault(f"JPEG artefacts (quality {quality})", most) if is_upscaled else None


def measure_detail(pixels: np.ndarray) -> float:
    """Measure the details of an image (H, W, 3), of about 2 px.

    Returns:
        Their contrast in the median square relative to the flattest squares, which show only grain: noise,
        or what denoising and compression left of it. inf without grain.
    """
    import cv2

    green = pixels[..., 1].astype(np.float32)
    fine = green - cv2.pyrUp(cv2.pyrDown(green), dstsize=green.shape[::-1])
    squares = _cut_squares(np.dstack([fine, green]))
    deviations = np.sqrt((squares[..., 0] ** 2).mean((1, 2)))
    flattest, median = np.percentile(deviations, (_FLATTEST, 50)) if len(deviations) else (0, 0)
    return float(median / flattest) if flattest else np.inf


def measure_sharpness(pixels: np.ndarray) -> float:
    """Return the contrast of details of 2 px relative to those of 4 px, along the blurrier direction."""
    green = pixels[..., 1]
    sharpness = np.inf
    down, across = -(-green.shape[0] // _SHARP_LINES), -(-green.shape[1] // _SHARP_LINES)
    for lines in (green[:, ::across], green[::down].T):
        lines = lines.astype(np.float32)
        near = np.abs(2 * lines[2:-2] - lines[1:-3] - lines[3:-1])
        far = float(np.percentile(np.abs(2 * lines[2:-2] - lines[:-4] - lines[4:]), _STRONGEST))
        if far:
            sharpness = min(sharpness, float(np.percentile(near, _STRONGEST)) / far)
    return sharpness


def _cut_squares(pixels: np.ndarray) -> np.ndarray:
    """Return the squares (N, 8, 8, C), 0 to 255, of an image (H, W, C) that are neither dark nor bright.

    The second channel decides; floating-point images have 255 levels, too.
    """
    height, width, channels = pixels.shape
    down, across = height // _SQUARE, width // _SQUARE
    cut = pixels[: down * _SQUARE, : across * _SQUARE].reshape(down, _SQUARE, across, _SQUARE, channels)
    by, beside = -(-down // _MOST_SQUARES), -(-across // _MOST_SQUARES)
    squares = cut.swapaxes(1, 2)[:: max(1, by), :: max(1, beside)].reshape(-1, _SQUARE, _SQUARE, channels)
    levels = np.iinfo(pixels.dtype).max if pixels.dtype.kind == "u" else 255
    squares = squares.astype(np.float32) * np.float32(255 / levels)
    green = squares[..., 1]
    within = (green.min((1, 2)) > _DARKEST) & (green.max((1, 2)) < _BRIGHTEST)
    return np.asarray(squares[within])
