"""Pictures in another size: bicubic as MATLAB's `imresize`, in every value, nearest neighbours, and means.

The low-resolution pictures of the super-resolution literature are made with `imresize`, so figures compare
only where it is followed to the last grey level. What it does, confirmed by its results on small matrices:

- the cubic kernel with a = -0.5 (Keys 1981), stretched by 1 / scale where a side shrinks (antialiasing);
- pixel centres aligned, the picture mirrored about its edges (the edge pixel repeated), weights normalised;
- one side after the other, the one that shrinks more first, rows before columns when both scale equally;
- integers are rounded (half up) and clipped to their range after each of the two passes, not once.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
_SUPPORT = 4  # pixels that the kernel covers where it is not stretched
_AT_ONCE = 4_000_000  # numbers of a result that are computed at a time: float64 takes eight times a byte


def imresize(picture: Array, scale: float) -> Array:
    """MATLAB's `imresize(picture, scale, 'bicubic')`.

    picture: (H, W) or (H, W, C), uint8, uint16, float32 or float64. scale: above 0; below 1 shrinks.
    Returns (ceil(scale * H), ceil(scale * W)[, C]) of the same type; integers within their range, floats as
    they come (they may overshoot). Raises ValueError: another scale.
    """
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"scale must be above 0, not {scale}")
    height, width = (math.ceil(scale * side) for side in picture.shape[:2])
    return _resized(picture, (height, width), (scale, scale))


def imresize_to(picture: Array, width: int, height: int) -> Array:
    """MATLAB's `imresize(picture, [height width], 'bicubic')`: as `imresize`, with a scale for each side.

    Raises ValueError: a side below 1.
    """
    _check_size(width, height)
    return _resized(picture, (height, width), (height / picture.shape[0], width / picture.shape[1]))


def nearest(array: Array, width: int, height: int) -> Array:
    """The nearest pixel of `array` for each pixel of the new size, centres aligned, the right one on a tie.

    array: (H, W) or (H, W, C), of any type. Returns (height, width[, C]). Raises ValueError: a side below 1.
    """
    _check_size(width, height)
    rows, columns = (
        (2 * np.arange(new) + 1) * old // (2 * new)
        for new, old in zip((height, width), array.shape[:2], strict=True)
    )
    return np.asarray(array[rows[:, None], columns])


def area_mean(picture: Array, width: int, height: int) -> Array:
    """A smaller picture, each pixel the mean of the area that it covers.

    picture: (H, W, C), uint8, uint16 or float32. Returns (height, width, C) of its type, integers rounded.
    Raises ValueError: a side below 1, or above the picture's.
    """
    import cv2

    _check_size(width, height)
    if height > picture.shape[0] or width > picture.shape[1]:
        raise ValueError(f"{width} x {height} pixels are no smaller picture")
    whole = np.ascontiguousarray(picture)
    return np.asarray(cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA))


def _check_size(width: int, height: int) -> None:
    if min(width, height) < 1:
        raise ValueError(f"a picture cannot become {width} x {height} pixels")


def _resized(picture: Array, sizes: tuple[int, int], scales: tuple[float, float]) -> Array:
    order = (0, 1) if scales[0] <= scales[1] else (1, 0)
    passes = [(axis, *_contributions(picture.shape[axis], sizes[axis], scales[axis])) for axis in order]
    exact = picture.dtype if picture.dtype.kind == "u" else np.dtype(np.float64)
    result = np.empty((*sizes, *picture.shape[2:]), picture.dtype)
    for channel in np.ndindex(picture.shape[2:]):
        values: Array = picture[:, :, *channel]
        for axis, sources, weights in passes:
            values = _along(values, axis, sources, weights, exact)
        result[:, :, *channel] = values
    return result


def _contributions(length: int, new: int, scale: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Which pixels of a line of `length` make each of `new` pixels, and with which weights: both (new, N)."""
    # Positions are counted from 1 and terms ordered as in MATLAB: where a sum is half a grey level but for
    # the rounding of float64, the order decides.
    shrink = min(scale, 1.0)
    width = _SUPPORT / shrink
    centres = np.arange(1, new + 1) / scale + 0.5 * (1 - 1 / scale)
    first = np.floor(centres - width / 2).astype(np.intp)
    positions = first[:, None] + np.arange(math.ceil(width) + 2)
    weights = shrink * _kernel(shrink * (centres[:, None] - positions))
    weights /= weights.sum(axis=1, keepdims=True)
    used = weights.any(axis=0)
    positions, weights = positions[:, used], weights[:, used]
    around = (positions - 1) % (2 * length)  # the line and its mirror image, over and over
    return np.where(around < length, around, 2 * length - 1 - around), weights


def _kernel(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.abs(distance)
    near = 1.5 * x**3 - 2.5 * x**2 + 1
    far = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return np.where(x <= 1, near, np.where(x <= 2, far, 0.0))


def _along(
    values: Array,
    axis: int,
    sources: NDArray[np.intp],
    weights: NDArray[np.float64],
    dtype: np.dtype[np.generic],
) -> Array:
    """One side of a channel (H, W) resized; integers of the result's type are rounded and clipped."""
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
