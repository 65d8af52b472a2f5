"""Resize images (bicubic exactly as MATLAB's `imresize`, nearest neighbours, area means) and disparity maps.

The literature on super-resolution makes its low-resolution images with `imresize`, so results are comparable
only if it is reproduced to the last grey level. Its method, confirmed by its results on small matrices:

- the cubic kernel with a = -0.5 (Keys 1981), stretched by 1 / scale when downscaling (antialiasing);
- pixel centres aligned, the image mirrored at its edges (the edge pixel repeated), weights normalised;
- one side after the other, the stronger downscaling first, rows before columns at equal scales;
- integers are rounded (half up) and clipped to their range after each of the two passes.
"""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Kind = TypeVar("Kind", bound=np.generic)
STEP = 4.0  # px, difference of neighbouring disparities from which on they lie on different surfaces
_SUPPORT = 4  # px covered by the kernel without stretching
_AT_ONCE = 4_000_000  # values computed at a time: float64 needs eight times the memory of a byte


def imresize(image: Array, scale: float) -> Array:
    """Resize as MATLAB's `imresize(image, scale, 'bicubic')`; sides are rounded up.

    The image is (H, W) or (H, W, C), uint8, uint16, float32 or float64; floats may overshoot.
    """
    height, width = (math.ceil(scale * side) for side in image.shape[:2])
    return _resize(image, (height, width), (scale, scale))


def imresize_to(image: Array, width: int, height: int) -> Array:
    """Resize an image as MATLAB's `imresize(image, [height width], 'bicubic')`; see `imresize`."""
    return _resize(image, (height, width), (height / image.shape[0], width / image.shape[1]))


def resize_nearest(array: NDArray[Kind], width: int, height: int) -> NDArray[Kind]:
    """Return the nearest pixel of (H, W[, C]) for each new pixel, with centres aligned; right on a tie."""
    rows = (2 * np.arange(height) + 1) * array.shape[0] // (2 * height)
    columns = (2 * np.arange(width) + 1) * array.shape[1] // (2 * width)
    return np.asarray(array[rows[:, None], columns])


def downscale_disparity(disparity: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    """Downscale a disparity map (H, W), in pixels of its size, to one in pixels of the new size.

    Disparities are interpolated linearly within a surface. Near a step each is that of the nearest pixel,
    because an average across an edge lies on neither side.
    """
    import cv2

    around = np.ones((3, 3), np.uint8)
    steps = cv2.dilate(disparity, around) - cv2.erode(disparity, around)
    smooth = cv2.resize(disparity, (width, height), interpolation=cv2.INTER_LINEAR)
    is_surface = (resize_nearest(steps, width, height) < STEP) & np.isfinite(smooth)
    result = np.where(is_surface, smooth, resize_nearest(disparity, width, height))
    return np.asarray(result * np.float32(width / disparity.shape[1]))


def resize_area(image: Array, width: int, height: int) -> Array:
    """Downscale an image (H, W, C), uint8, uint16 or float32, by area means; integers are rounded."""
    import cv2

    whole = np.ascontiguousarray(image)
    return np.asarray(cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA))


def _resize(image: Array, sizes: tuple[int, int], scales: tuple[float, float]) -> Array:
    order = (0, 1) if scales[0] <= scales[1] else (1, 0)
    passes = [(axis, *_compute_weights(image.shape[axis], sizes[axis], scales[axis])) for axis in order]
    exact = image.dtype if image.dtype.kind == "u" else np.dtype(np.float64)
    result = np.empty((*sizes, *image.shape[2:]), image.dtype)
    for channel in np.ndindex(image.shape[2:]):
        values: Array = image[:, :, *channel]
        for axis, sources, weights in passes:
            values = _resize_axis(values, axis, sources, weights, exact)
        result[:, :, *channel] = values
    return result


def _compute_weights(length: int, new: int, scale: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the source pixels and weights of each of `new` pixels of a line, both (new, N)."""
    # Positions count from 1 and terms are ordered as in MATLAB: if a sum is half a grey level up to float64
    # rounding, the order decides.
    shrink = min(scale, 1.0)
    width = _SUPPORT / shrink
    centres = np.arange(1, new + 1) / scale + 0.5 * (1 - 1 / scale)
    first = np.floor(centres - width / 2).astype(np.intp)
    positions = first[:, None] + np.arange(math.ceil(width) + 2)
    x = np.abs(shrink * (centres[:, None] - positions))
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weights = shrink * np.where(x <= 1, near, np.where(x <= 2, far, 0.0))
    weights /= weights.sum(axis=1, keepdims=True)
    used = weights.any(axis=0)
    positions, weights = positions[:, used], weights[:, used]
    around = (positions - 1) % (2 * length)  # the line and its mirror image, repeated
    return np.where(around < length, around, 2 * length - 1 - around), weights


def _resize_axis(
    values: Array,
    axis: int,
    sources: NDArray[np.intp],
    weights: NDArray[np.float64],
    dtype: np.dtype[np.generic],
) -> Array:
    """Resize one side of a channel (H, W); integers are rounded and clipped."""
    shape = list(values.shape)
    shape[axis] = len(sources)
    result: Array = np.empty(shape, dtype)
    step = max(1, _AT_ONCE // values.shape[1 - axis])
    for first in range(0, len(sources), step):
        part = slice(first, first + step)
        taken, counted = sources[part], weights[part]
        total = np.zeros((len(taken), shape[1]) if axis == 0 else (shape[0], len(taken)))
        for source, weight in zip(taken.T, counted.T, strict=True):
            total += np.take(values, source, axis=axis) * np.expand_dims(weight, 1 - axis)
        if dtype.kind == "u":
            total = np.clip(np.floor(total + 0.5), 0, np.iinfo(dtype.name).max)
        result[part if axis == 0 else (slice(None), part)] = total
    return result
