"""How the rows of two views lie against each other: a few hundred places measured to a fraction of a pixel,
a robust fit, and the two rotations and the offset that undo it.

With first (x, y) and second (x - disparity, y + dy), coordinates about the middle of the view, small angles
a1 and a2 by which the views are turned (positive: clockwise, the right side lower), the second one magnified
by 1 + zoom and moved down by `offset`, a rectified pair shows

    dy = offset + (a2 - a1) x + zoom y - a2 disparity.

The last term tells the two rotations apart: where both views are turned by one angle, the line between the
two cameras is, and nearer things are moved up or down by more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pamcli.data.stereograms.matching import Grey

Floats = NDArray[np.float64]
_Value = TypeVar("_Value", bound=np.generic)

_HALF = 6
"""Patches have 2 * 6 + 1 pixels a side."""
_POINTS = 500
"""Places measured, at most about."""
_GOOD = 0.75
"""Normalised cross-correlation that a match must have."""
_NOISE = 0.3
"""Pixels by which a good match is off; what is 4 times as far off counts as wrong."""
_PRIOR = np.array([100.0, 0.03, 0.001, 0.006])
"""Standard deviations expected of offset (pixels), difference of the rotations, zoom and second rotation."""
_ROUNDS = 12
_BAND = 32
"""Rows resampled at a time."""


@dataclass(frozen=True)
class Points:
    """N places that both views show; pixels from the top left pixel's centre."""

    x: Floats
    y: Floats
    disparity: Floats
    """First x - second x."""
    dy: Floats
    """Second y - first y."""

    def __len__(self) -> int:
        return len(self.x)

    def take(self, keep: NDArray[np.bool_]) -> Points:
        return Points(self.x[keep], self.y[keep], self.disparity[keep], self.dy[keep])

    def scaled(self, factor: float) -> Points:
        """The same places in pictures `factor` times as large."""
        move = (factor - 1) / 2
        return Points(
            self.x * factor + move, self.y * factor + move, self.disparity * factor, self.dy * factor
        )


@dataclass(frozen=True)
class Alignment:
    """The fit of the module's equation."""

    offset: float
    rotation: float
    """Radians, second less first."""
    zoom: float
    second_rotation: float
    inliers: NDArray[np.bool_]
    """(N,): the points that the fit explains."""
    residual: float
    """Median of the inliers' |dy| that is left, pixels."""

    def dy(self, x: Floats | float, y: Floats | float, disparity: Floats | float) -> Floats | float:
        """Expected second y - first y at places about the middle of the view."""
        return self.offset + self.rotation * x + self.zoom * y - self.second_rotation * disparity


def corners(grey: Grey, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(y, x) of the best textured allowed place of every cell of a grid."""
    dy, dx = (np.gradient(grey, axis=axis).astype(np.float32) for axis in (0, 1))
    xx, yy, xy = (box_mean(product) for product in (dx * dx, dy * dy, dx * dy))
    strength = (xx + yy) / 2 - np.sqrt(((xx - yy) / 2) ** 2 + xy**2)
    strength[~allowed] = 0
    height, width = grey.shape
    cell = max(4, int(np.sqrt(height * width / _POINTS)))
    rows, columns = -(-height // cell), -(-width // cell)
    padded = np.zeros((rows * cell, columns * cell), strength.dtype)
    padded[:height, :width] = strength
    cells = padded.reshape(rows, cell, columns, cell).swapaxes(1, 2).reshape(rows * columns, -1)
    best = cells.argmax(axis=1)
    row, column = np.divmod(np.arange(rows * columns), columns)
    y, x = row * cell + best // cell, column * cell + best % cell
    found = cells.max(axis=1)
    good = found > 0.05 * np.median(found[found > 0]) if (found > 0).any() else found > 0
    return y[good], x[good]


def box_mean(values: Grey) -> Grey:
    """Mean over 5 x 5 pixels."""
    height, width = values.shape
    padded = np.pad(values, 2, mode="edge")
    rows: Grey = sum(padded[i : i + height] for i in range(5))  # type: ignore[assignment]
    columns: Grey = sum(rows[:, i : i + width] for i in range(5))  # type: ignore[assignment]
    return columns / np.float32(25)


def measured(first: Grey, second: Grey, guess: Points, reach_x: int, reach_y: int) -> Points:
    """The guessed places, looked for `reach` pixels around in the second view; those found, to a fraction."""
    x, y = (np.rint(values).astype(np.intp) for values in (guess.x, guess.y))
    there_x, there_y = (
        np.rint(values).astype(np.intp) for values in (guess.x - guess.disparity, guess.y + guess.dy)
    )
    height, width = first.shape
    inside = (
        (np.minimum(x, y) >= _HALF)
        & (x < width - _HALF)
        & (y < height - _HALF)
        & (there_x >= _HALF + reach_x)
        & (there_x < width - _HALF - reach_x)
        & (there_y >= _HALF + reach_y)
        & (there_y < height - _HALF - reach_y)
    )
    x, y, there_x, there_y = x[inside], y[inside], there_x[inside], there_y[inside]
    empty = np.zeros(0)
    if not len(x):
        return Points(empty, empty, empty, empty)
    scores = _correlations(first, second, (x, y), (there_x, there_y), reach_x, reach_y)
    number = np.arange(len(x))
    best = scores.reshape(len(x), -1).argmax(axis=1)
    row, column = np.divmod(best, 2 * reach_x + 1)
    good = (scores.reshape(len(x), -1)[number, best] >= _GOOD) & (row > 0) & (row < 2 * reach_y)
    good &= (column > 0) & (column < 2 * reach_x)
    number, row, column = number[good], row[good], column[good]
    around = {
        (i, j): scores[number, row + i, column + j] for i, j in ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
    }
    up_down = _peak(around[-1, 0], around[0, 0], around[1, 0])
    left_right = _peak(around[0, -1], around[0, 0], around[0, 1])
    x, y, there_x, there_y = x[good], y[good], there_x[good], there_y[good]
    return Points(
        x.astype(np.float64),
        y.astype(np.float64),
        x - (there_x + column - reach_x + left_right),
        there_y + row - reach_y + up_down - y,
    )


def _correlations(
    first: Grey,
    second: Grey,
    here: tuple[NDArray[np.intp], NDArray[np.intp]],
    there: tuple[NDArray[np.intp], NDArray[np.intp]],
    reach_x: int,
    reach_y: int,
) -> Floats:
    """(N, 2 reach_y + 1, 2 reach_x + 1): normalised cross-correlation of N patches with those around."""
    side = 2 * _HALF + 1
    patches = sliding_window_view(first, (side, side))[here[1] - _HALF, here[0] - _HALF]
    patches = patches - patches.mean(axis=(1, 2), keepdims=True)
    patches /= np.maximum(np.sqrt((patches**2).sum(axis=(1, 2), keepdims=True)), 1e-3)
    area = (side + 2 * reach_y, side + 2 * reach_x)
    places = sliding_window_view(second, area)[there[1] - _HALF - reach_y, there[0] - _HALF - reach_x]
    windows = sliding_window_view(places, (side, side), axis=(1, 2))
    products = np.einsum("nijkl,nkl->nij", windows, patches, optimize=True)
    sums, squares = (_window_sums(values, side) for values in (places, places.astype(np.float64) ** 2))
    spread = np.sqrt(np.maximum(squares - sums**2 / side**2, 1e-3))
    scores: Floats = products / spread
    return scores


def _window_sums(values: NDArray[np.generic], side: int) -> Floats:
    """(N, H, W) -> (N, H - side + 1, W - side + 1)."""
    sums = np.pad(values.astype(np.float64), ((0, 0), (1, 0), (1, 0))).cumsum(axis=1).cumsum(axis=2)
    windows: Floats = sums[:, side:, side:] - sums[:, :-side, side:]
    windows -= sums[:, side:, :-side] - sums[:, :-side, :-side]
    return windows


def _peak(before: Floats, at: Floats, after: Floats) -> Floats:
    curve = np.minimum(before - 2 * at + after, -1e-6)
    return np.clip(0.5 * (before - after) / curve, -0.5, 0.5)


def fit_rows(points: Points, size: tuple[int, int]) -> Alignment:
    """Reweighted least squares (Geman-McClure weights, their width shrinking to the noise) with weak priors.

    size: height and width of the views.
    """
    x, y = points.x - (size[1] - 1) / 2, points.y - (size[0] - 1) / 2
    terms = np.stack([np.ones(len(points)), x, y, -points.disparity], axis=1)
    found = np.array([np.median(points.dy), 0.0, 0.0, 0.0])
    prior = np.diag((_NOISE / _PRIOR) ** 2)
    width = max(4 * _NOISE, 1.5 * float(np.median(np.abs(points.dy - found[0]))))
    for _ in range(_ROUNDS):
        left = points.dy - terms @ found
        weights = 1 / (1 + (left / width) ** 2) ** 2
        weighted = terms * weights[:, None]
        found = np.linalg.solve(terms.T @ weighted + prior, weighted.T @ points.dy)
        width = max(2 * _NOISE, 0.7 * width)
    left = np.abs(points.dy - terms @ found)
    inliers = left <= 4 * _NOISE
    residual = float(np.median(left[inliers])) if inliers.any() else float(np.median(left))
    offset, rotation, zoom, second_rotation = (float(value) for value in found)
    return Alignment(offset, rotation, zoom, second_rotation, inliers, residual)


def turned(size: tuple[int, int], angle: float, zoom: float = 0.0, offset: float = 0.0) -> Floats:
    """(2, 3): where in a view each pixel (x, y, 1) of the rectified view lies. Angle in radians."""
    middle = np.array([(size[1] - 1) / 2, (size[0] - 1) / 2])
    turn = (1 + zoom) * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.concatenate([turn, (middle - turn @ middle + [0, offset])[:, None]], axis=1)


def resampled(picture: NDArray[_Value], places: Floats, size: tuple[int, int]) -> NDArray[_Value]:
    """The picture at places @ (x, y, 1) for each pixel of a new one of `size` (height, width), bicubic.

    picture: (H, W, C) uint8 or uint16; beyond its edges it is continued by the pixels there. Moves by whole
    pixels are copied, not resampled. (Pillow's own bicubic transform is a tenth of a pixel off.)
    """
    height, width = size
    if np.array_equal(places[:, :2], np.eye(2)) and np.array_equal(places[:, 2], np.rint(places[:, 2])):
        left, top = (int(value) for value in places[:, 2])
        if min(left, top) >= 0 and top + height <= picture.shape[0] and left + width <= picture.shape[1]:
            return picture[top : top + height, left : left + width].copy()
    result = np.empty((height, width, picture.shape[2]), picture.dtype)
    for start in range(0, height, _BAND):  # what is worked on at a time fits into the cache
        y, x = np.mgrid[start : min(start + _BAND, height), :width]
        at_x, at_y = (row[0] * x + row[1] * y + row[2] for row in places)
        result[start : start + _BAND] = _bicubic(picture, at_x, at_y)
    return result


def _bicubic(picture: NDArray[_Value], at_x: Floats, at_y: Floats) -> Floats:
    """(H, W, C): the picture at places between its pixels, rounded and within its range."""
    rows, columns = picture.shape[:2]
    x, y = np.floor(at_x).astype(np.intp), np.floor(at_y).astype(np.intp)
    across, along = (_weights((at - whole).astype(np.float32)) for at, whole in ((at_x, x), (at_y, y)))
    total = np.zeros((*at_x.shape, picture.shape[2]), np.float32)
    for row in range(4):
        line = np.zeros_like(total)
        from_row = np.clip(y + row - 1, 0, rows - 1) * columns
        for column in range(4):
            index = from_row + np.clip(x + column - 1, 0, columns - 1)
            line += picture.reshape(-1, picture.shape[2])[index] * across[column][..., None]
        total += line * along[row][..., None]
    return np.clip(np.rint(total), 0, np.iinfo(picture.dtype.name).max)


def _weights(part: Grey) -> list[Grey]:
    """Of the four pixels around a place `part` pixels after the second: the kernel of Keys, a = -0.5."""
    square, cube = part**2, part**3
    return [
        -0.5 * part + square - 0.5 * cube,
        1 - 2.5 * square + 1.5 * cube,
        0.5 * part + 2 * square - 1.5 * cube,
        0.5 * cube - 0.5 * square,
    ]
