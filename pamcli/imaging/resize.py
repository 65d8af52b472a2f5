"""Resize images (bicubic exactly as MATLAB's `imresize`, nearest neighbours, area means) and disparity maps.

The literature on super-resolution makes its low-resolution images with `imresize`, so results are comparable
only if it is reproduced to the last grey level. Its method, confirmed by its results on small matrices:

- the cubic kernel with a = -0.5 (Keys 1981), stretched by 1 / scale when downscaling (antialiasing);
- pixel centres aligned, the image mirrored at its edges (the edge pixel repeated), weights normalised;
- one side after the other, the stronger downscaling first, rows before columns at equal scales;
- integers are rounded (half up) and clipped to their range after each of the two passes.

Maps of a downscaled image are upsampled along the edges of the full-size image. Values are interpolated
linearly within a surface. Near a disparity step, each full-size pixel uses the downscaled pixels around it:
the median of their disparities, weighted by distance and colour, selects one surface, and the values are
averaged over that surface alone. So no disparity between foreground and background is invented.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Kind = TypeVar("Kind", bound=np.generic)
STEP = 4.0  # px, difference of neighbouring disparities from which on they lie on different surfaces
_SUPPORT = 4  # px covered by the kernel without stretching
_AT_ONCE = 4_000_000  # values computed at a time: float64 needs eight times the memory of a byte

Floats = NDArray[np.float32]
Levels = NDArray[np.int16]
Pixels = NDArray[np.generic]  # an image (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]

REACH = 2  # downscaled pixels used on each side
SURFACE_STEP = 1.0  # largest disparity difference (downscaled px) between neighbours on one surface
NEAR = 2.5  # standard deviation (downscaled px) of the weights by distance ...
ALIKE = 12.0  # and by colour (mean channel difference of 255), chosen on procedural scenes
ALWAYS = 1e-6  # smallest weight by colour: without similar colours, the nearest pixels decide

PIXELS_AT_ONCE = 200_000
EDGE_PIXELS_AT_ONCE = 16_000  # edge pixels processed together, so that their 25 neighbours stay in the cache


def imresize(image: Array, scale: float) -> Array:
    """Resize as MATLAB's `imresize(image, scale, 'bicubic')`; sides are rounded up.

    The image is (H, W) or (H, W, C), uint8, uint16, float32 or float64; floats may overshoot.
    """
    height, width = math.ceil(scale * image.shape[0]), math.ceil(scale * image.shape[1])
    return imresize_to(image, width, height, (scale, scale))


def imresize_to(image: Array, width: int, height: int, scales: tuple[float, float] | None = None) -> Array:
    """Resize an image as MATLAB's `imresize(image, [height width], 'bicubic')`; see `imresize`."""
    down, across = scales or (height / image.shape[0], width / image.shape[1])
    rows = _compute_weights(image.shape[0], height, down)
    columns = _compute_weights(image.shape[1], width, across)
    result = np.empty((height, width, *image.shape[2:]), image.dtype)
    for channel in np.ndindex(image.shape[2:]):
        values: Array = image[:, :, *channel]
        if down <= across:
            values = _resize_rows(_resize_rows(values, *rows).T, *columns).T
        else:
            values = _resize_rows(_resize_rows(values.T, *columns).T, *rows)
        result[:, :, *channel] = values
    return result


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


def _resize_rows(values: Array, sources: NDArray[np.intp], weights: NDArray[np.float64]) -> Array:
    """Resize the columns of a channel (H, W); integers are rounded and clipped."""
    is_exact = values.dtype.kind == "u"
    result: Array = np.empty((len(sources), values.shape[1]), values.dtype if is_exact else np.float64)
    step = max(1, _AT_ONCE // values.shape[1])
    for first in range(0, len(sources), step):
        part = slice(first, first + step)
        total = np.zeros(result[part].shape)
        for source, weight in zip(sources[part].T, weights[part].T, strict=True):
            total += values[source] * weight[:, None]
        if is_exact:
            total = np.clip(np.floor(total + 0.5), 0, np.iinfo(values.dtype.name).max)
        result[part] = total
    return result


def upsample_along_edges(
    disparity: Floats,
    others: Sequence[Floats],
    reduced: Pixels,
    view: Pixels,
    *,
    done: Callable[[int], None] = lambda row: None,
) -> list[Floats]:
    """Upsample the maps of a downscaled image (h, w, 3) to the size of the full image (H, W, 3).

    `disparity` (h, w) is finite, in px of the downscaled image; `done` is called with the finished rows.
    """
    import cv2

    height, width = view.shape[:2]
    maps = [disparity, *others]
    results = [cv2.resize(values, (width, height), interpolation=cv2.INTER_LINEAR) for values in maps]
    down, across = _find_positions(height, disparity.shape[0]), _find_positions(width, disparity.shape[1])
    nearest = np.rint(across).astype(np.intp)
    edges = _find_steps(disparity)
    colours = _to_int16(reduced).reshape(-1, 3)
    rows = max(1, PIXELS_AT_ONCE // width)
    for first in range(0, height, rows):
        last = min(first + rows, height)
        strip = slice(first, last)
        mixed = edges[np.rint(down[strip]).astype(np.intp)][:, nearest].reshape(-1).nonzero()[0]
        for begin in range(0, len(mixed), EDGE_PIXELS_AT_ONCE):
            y, x = np.divmod(mixed[begin : begin + EDGE_PIXELS_AT_ONCE], width)
            own = _to_int16(view[strip][y, x])
            found = _select_surface(maps, colours, own, down[y + first], across[x])
            for result, values in zip(results, found, strict=True):
                result[strip][y, x] = values
        done(last)
    return results


def _find_positions(long: int, short: int) -> Floats:
    """Return the positions of the pixels of a full-size side on the downscaled side."""
    return ((np.arange(long) + 0.5) * (short / long) - 0.5).clip(0, short - 1).astype(np.float32)


def _find_neighbours(positions: Floats, count: int) -> tuple[NDArray[np.intp], Floats]:
    """Return the pixels (5, N) around positions on a side of `count` pixels, and squared distances."""
    there = (np.rint(positions).astype(np.intp) + np.arange(-REACH, REACH + 1)[:, None]).clip(0, count - 1)
    return there, (there - positions).astype(np.float32) ** 2


def _find_steps(disparity: Floats) -> NDArray[np.bool_]:
    """Return the mask (h, w) of pixels with a disparity step within their reach."""
    import cv2

    step = np.zeros(disparity.shape, np.uint8)
    beside, below = (np.abs(np.diff(disparity, axis=axis)) > SURFACE_STEP for axis in (1, 0))
    for part in (step[:, 1:], step[:, :-1]):
        part |= beside
    for part in (step[1:], step[:-1]):
        part |= below
    side = 2 * REACH - 1
    return np.asarray(cv2.dilate(step, np.ones((side, side), np.uint8)), bool)


def _select_surface(
    maps: Sequence[Floats], colours: Levels, own: Levels, down: Floats, across: Floats
) -> list[Floats]:
    """Return the values of each map at N positions of colours `own` (N, 3), each of one surface."""
    rows, from_rows = _find_neighbours(down, maps[0].shape[0])
    columns, from_columns = _find_neighbours(across, maps[0].shape[1])
    places = (rows[:, None] * maps[0].shape[1] + columns[None]).reshape(-1, len(own))
    distance = (from_rows[:, None] + from_columns[None]).reshape(-1, len(own))
    order = maps[0].reshape(-1)[places].argsort(axis=0, kind="stable")
    places, distance = np.take_along_axis(places, order, 0), np.take_along_axis(distance, order, 0)
    disparity = maps[0].reshape(-1)[places]
    near = np.exp(distance * np.float32(-0.5 / NEAR**2))
    unlike = np.abs(colours[places] - own).sum(-1).astype(np.float32)
    alike = np.exp(unlike**2 * np.float32(-0.5 / (3 * ALIKE) ** 2)) + np.float32(ALWAYS)
    below = np.cumsum(near * alike, axis=0)
    middle = (below < below[-1] / 2).sum(0)
    chosen = disparity[middle, np.arange(len(own))]
    near *= np.abs(disparity - chosen) <= SURFACE_STEP
    total = near.cumsum(0)[-1]  # cumsum adds in a fixed order for any number of pixels
    return [(near * values.reshape(-1)[places]).cumsum(0)[-1] / total for values in maps]


def _to_int16(pixels: Pixels) -> Levels:
    if pixels.dtype == np.uint8:
        return pixels.astype(np.int16)
    largest = 65535 if pixels.dtype.kind == "u" else 1
    return np.asarray(np.rint(pixels.astype(np.float32) * np.float32(255 / largest)), np.int16)
