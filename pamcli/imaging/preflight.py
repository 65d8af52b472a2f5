"""A quick look at a pair before the network sees it: exchanged, not rectified, or twice the same picture?

The best textured patch of every cell of a grid is looked for in the other view, on a reduced picture, in
a band of rows and to BOTH sides; what comes back to where it started and has no rival is a match. Some of
the matches are then measured at full size, to a fraction of a pixel. This only yields warnings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

_Grey = NDArray[np.float32]
_Ints = NDArray[np.intp]
_Floats = NDArray[np.float64]

REDUCED_WIDTH = 500
REDUCED_AREA = 190_000
PATCH = 9
"""Side of a patch on the reduced picture, in pixels (odd)."""
CELLS = 160
"""Patches tried, at most about."""
REACH_X = 0.4
"""How far to either side a match is looked for, as a share of the width."""
REACH_Y = 0.05
"""How far up and down, as a share of the longer side."""
GOOD = 0.8
"""Normalised cross-correlation below which two patches are not the same thing."""
RIVAL = 0.05
"""By how much the best place must beat every other one."""
ONE_THREAD = 250_000
"""Multiplications below which OpenBLAS keeps to one thread: beside a busy network waiting for a second one
costs far more than it brings."""
REFINED = 48
"""Matches measured at full size, at most."""

ENOUGH_MATCHES = 10
"""Fewer matches give no verdict."""
RIGHT_SIDE = 0.1
"""Views count as exchanged while less than this share of the matches that take a side take the right one."""
MAX_VERTICAL_ERROR = 1.0
"""Pixels by which matches of a rectified pair may lie above or below each other."""


@dataclass(frozen=True)
class PairCheck:
    """What a quick look found; pixels are those of the full-size pictures."""

    matches: int
    """Trustworthy matches found; with fewer than `ENOUGH_MATCHES` nothing is said about order and rows."""
    median_disparity: float
    """Median of left x - right x over the matches, >= 0 for a pair in the right order; 0 without matches."""
    exchanged: bool
    """Nearly all matches lie on the wrong side: the left picture is probably the right view."""
    vertical_offset: float
    """Median of right y - left y: positive where the right view shows things lower; 0 without a verdict."""
    vertical_error: float
    """Median of |right y - left y|: also large where the offsets cancel out, as in a rotated view."""
    identical: bool
    """Both pictures have the same pixels; nothing else was looked at then."""

    def warnings(self) -> list[str]:
        """One line for each thing that looks wrong, with its remedy; empty for a usable pair."""
        if self.identical:
            return [
                "both pictures are identical, so there is no disparity to find: give the two views of a scene"
            ]
        lines = []
        if self.exchanged:
            lines.append(
                f"the views look exchanged (median disparity {self.median_disparity:.1f} px): swap the two "
                "arguments; for a packed picture take --packed rl instead of lr, or bt instead of tb"
            )
        if self.vertical_error > MAX_VERTICAL_ERROR:
            if abs(self.vertical_offset) > 0.5 * self.vertical_error:
                side = "lower" if self.vertical_offset > 0 else "higher"
                found = f"matches sit {abs(self.vertical_offset):.1f} px {side} in the right view"
            else:
                found = f"matches sit about {self.vertical_error:.1f} px above or below each other"
            lines.append(
                f"{found}: the pair is not rectified (more than {MAX_VERTICAL_ERROR:g} px), rectify it first"
            )
        return lines


@dataclass(frozen=True)
class _Matches:
    """Centres of N matching patches, in pixels of one size of the pictures."""

    left_y: _Ints
    left_x: _Ints
    right_y: _Ints
    right_x: _Ints

    def __len__(self) -> int:
        return len(self.left_y)

    def take(self, keep: _Ints | NDArray[np.bool_]) -> _Matches:
        return _Matches(self.left_y[keep], self.left_x[keep], self.right_y[keep], self.right_x[keep])


def check_pair(left: NDArray[np.generic], right: NDArray[np.generic]) -> PairCheck:
    """Look at two views, (H, W, 3) uint8 or uint16 of one size; any H and W, small ones yield no verdict.

    Raises ValueError where the shapes differ or are not (H, W, 3).
    """
    if left.shape != right.shape or left.ndim != 3 or left.shape[2] != 3:
        raise ValueError(f"two pictures (H, W, 3) of one size are needed, not {left.shape} and {right.shape}")
    if _identical(left, right):
        return PairCheck(0, 0.0, False, 0.0, 0.0, True)

    height, width = left.shape[:2]
    factor = max(1, -(-width // REDUCED_WIDTH), int(np.ceil(np.sqrt(height * width / REDUCED_AREA))))
    matches = _match(_reduced(left, factor), _reduced(right, factor))
    if not len(matches):
        return PairCheck(0, 0.0, False, 0.0, 0.0, False)

    disparity = (matches.left_x - matches.right_x) * float(factor)
    offsets, disparity_fine = _measure(left, right, matches, factor)
    median = float(np.median(disparity_fine if len(disparity_fine) >= ENOUGH_MATCHES else disparity))
    # What is far away has hardly any disparity and takes no side; one reduced pixel counts `factor`.
    right_side = np.count_nonzero(disparity > factor)
    wrong_side = np.count_nonzero(disparity < -factor)
    exchanged = bool(
        wrong_side >= max(ENOUGH_MATCHES, len(matches) / 2)
        and right_side < RIGHT_SIDE * (right_side + wrong_side)
    )
    if len(offsets) < ENOUGH_MATCHES:
        return PairCheck(len(matches), median, exchanged, 0.0, 0.0, False)
    return PairCheck(
        len(matches), median, exchanged, float(np.median(offsets)), float(np.median(np.abs(offsets))), False
    )


def _identical(left: NDArray[np.generic], right: NDArray[np.generic]) -> bool:
    """Equal pixel by pixel; stops at the first band of rows that differs."""
    return left.dtype == right.dtype and all(
        np.array_equal(left[row : row + 64], right[row : row + 64]) for row in range(0, len(left), 64)
    )


def _reduced(image: NDArray[np.generic], factor: int) -> _Grey:
    """(H // factor, W // factor) float32: the green channel, each pixel the mean of a block."""
    height, width = image.shape[0] // factor, image.shape[1] // factor
    # At most about four samples a side of a block: the rest of a large picture is not worth its time.
    step = -(-factor // 4)
    total = np.zeros((height, width), dtype=np.float32)
    for y in range(0, factor, step):
        for x in range(0, factor, step):
            total += image[y : height * factor : factor, x : width * factor : factor, 1]
    total -= total.mean() if total.size else 0
    return total


def _match(left: _Grey, right: _Grey) -> _Matches:
    """Patches of the left that are found in the right, and from there back at the same place."""
    nothing = np.zeros(0, dtype=np.intp)
    if min(left.shape) < PATCH + 2:
        return _Matches(nothing, nothing, nothing, nothing)
    reach = max(3, round(REACH_Y * max(left.shape))), max(8, round(REACH_X * left.shape[1]))
    y, x = _textured(left)
    there_y, there_x, good = _find(left, right, y, x, reach)
    y, x, there_y, there_x = y[good], x[good], there_y[good], there_x[good]
    back_y, back_x, good = _find(right, left, there_y, there_x, reach)
    good &= (np.abs(back_y - y) <= 1) & (np.abs(back_x - x) <= 1)
    half = PATCH // 2
    return _Matches(y[good] + half, x[good] + half, there_y[good] + half, there_x[good] + half)


def _textured(image: _Grey) -> tuple[_Ints, _Ints]:
    """Top left corners of the patches with most texture in both directions, one of each cell of a grid."""
    dy: _Grey = np.gradient(image, axis=0)
    dx: _Grey = np.gradient(image, axis=1)
    xx, yy, xy = _window_sums(dx * dx), _window_sums(dy * dy), _window_sums(dx * dy)
    # The smaller eigenvalue of the structure tensor: an edge alone can slide along itself.
    strength = (xx + yy) / 2 - np.sqrt(((xx - yy) / 2) ** 2 + xy**2)
    height, width = strength.shape
    cell = max(PATCH, int(np.sqrt(height * width / CELLS)))
    ys, xs = [], []
    for top in range(0, height, cell):
        for left in range(0, width, cell):
            part = strength[top : top + cell, left : left + cell]
            y, x = divmod(int(part.argmax()), part.shape[1])
            ys.append(top + y)
            xs.append(left + x)
    y_all, x_all = np.array(ys, dtype=np.intp), np.array(xs, dtype=np.intp)
    found = strength[y_all, x_all]
    keep = found > 0.02 * np.median(strength) + 1e-6
    return y_all[keep], x_all[keep]


def _window_sums(image: _Grey) -> _Floats:
    """Sum over every PATCH x PATCH window, (H - PATCH + 1, W - PATCH + 1)."""
    total = np.zeros((image.shape[0] + 1, image.shape[1] + 1), dtype=np.float64)
    total[1:, 1:] = image.cumsum(0, dtype=np.float64).cumsum(1)
    return total[PATCH:, PATCH:] - total[:-PATCH, PATCH:] - total[PATCH:, :-PATCH] + total[:-PATCH, :-PATCH]


def _find(
    source: _Grey, target: _Grey, ys: _Ints, xs: _Ints, reach: tuple[int, int]
) -> tuple[_Ints, _Ints, NDArray[np.bool_]]:
    """Where the patches of `source` at (ys, xs) sit in `target`, and whether that can be trusted."""
    area = PATCH * PATCH
    sums = _window_sums(target)
    spread = np.sqrt(np.maximum(_window_sums(target * target) - sums * sums / area, 0))
    inverse = np.where(spread > 1e-3, 1 / np.maximum(spread, 1e-3), 0).astype(np.float32)
    height, width = inverse.shape
    patches = sliding_window_view(source, (PATCH, PATCH))[ys, xs].reshape(-1, area)
    patches = patches - patches.mean(1, keepdims=True)
    patches /= np.maximum(np.linalg.norm(patches, axis=1, keepdims=True), 1e-3)

    # Row by row of the target: what is unrolled stays small, and no row is unrolled twice.
    order = np.argsort(ys, kind="stable")
    first = np.searchsorted(ys[order], np.arange(height) - reach[0], side="left")
    last = np.searchsorted(ys[order], np.arange(height) + reach[0], side="right")
    windows = sliding_window_view(target, (PATCH, PATCH))
    scores = np.full((len(ys), 2 * reach[0] + 1, width), -1, dtype=np.float32)
    few = max(1, ONE_THREAD // (width * area))
    for row in range(height):
        unrolled = windows[row].reshape(width, area).T
        for start in range(first[row], last[row], few):
            some = order[start : min(start + few, last[row])]
            scores[some, row - ys[some] + reach[0]] = (patches[some] @ unrolled) * inverse[row]

    found_y, found_x = np.zeros_like(ys), np.zeros_like(xs)
    good = np.zeros(len(ys), dtype=bool)
    for index, score in enumerate(scores):
        x0 = max(0, xs[index] - reach[1])
        near = score[:, x0 : xs[index] + reach[1] + 1]
        y, x = divmod(int(near.argmax()), near.shape[1])
        best = float(near[y, x])
        near[max(0, y - 2) : y + 3, max(0, x - 2) : x + 3] = -1
        found_y[index], found_x[index] = ys[index] + y - reach[0], x0 + x
        good[index] = best >= GOOD and best - float(near.max()) >= RIVAL
    return found_y, found_x, good


def _measure(
    left: NDArray[np.generic], right: NDArray[np.generic], matches: _Matches, factor: int
) -> tuple[_Floats, _Floats]:
    """Vertical offsets and disparities of some of the matches, in full-size pixels, to a fraction of one."""
    chosen = np.unique(np.linspace(0, len(matches) - 1, min(REFINED, len(matches))).astype(np.intp))
    half, reach = 6 + factor, factor + 1
    offsets, disparities = [], []
    part = matches.take(chosen)
    for ly, lx, ry, rx in zip(part.left_y, part.left_x, part.right_y, part.right_x, strict=True):
        # centre of a block of `factor` pixels
        ly, lx, ry, rx = (int(v) * factor + factor // 2 for v in (ly, lx, ry, rx))
        patch = _cut(left, ly, lx, half)
        place = _cut(right, ry, rx, half + reach)
        if patch is None or place is None:
            continue
        score = _correlation(patch, place)
        y, x = divmod(int(score.argmax()), score.shape[1])
        if score[y, x] < GOOD or not 0 < y < 2 * reach or not 0 < x < 2 * reach:
            continue
        dy = y - reach + _peak(score[y - 1, x], score[y, x], score[y + 1, x])
        dx = x - reach + _peak(score[y, x - 1], score[y, x], score[y, x + 1])
        offsets.append(ry + dy - ly)
        disparities.append(lx - rx - dx)
    return np.array(offsets), np.array(disparities)


def _cut(image: NDArray[np.generic], y: int, x: int, half: int) -> _Grey | None:
    """The green channel around (y, x), (2 half + 1, 2 half + 1) float32; None where it leaves the picture."""
    if y < half or x < half or y + half >= image.shape[0] or x + half >= image.shape[1]:
        return None
    return image[y - half : y + half + 1, x - half : x + half + 1, 1].astype(np.float32)


def _correlation(patch: _Grey, place: _Grey) -> _Floats:
    """Normalised cross-correlation of a patch with every window of its size in `place`."""
    windows = sliding_window_view(place, patch.shape)
    flat = windows.reshape(-1, patch.size)
    flat = flat - flat.mean(1, keepdims=True)
    wanted = (patch - patch.mean()).ravel()
    norm = np.sqrt(np.einsum("ij,ij->i", flat, flat)) * np.linalg.norm(wanted)
    score: _Floats = ((flat @ wanted) / np.maximum(norm, 1e-6)).astype(np.float64)
    return score.reshape(windows.shape[:2])


def _peak(before: float, at: float, after: float) -> float:
    """Where between -0.5 and 0.5 the parabola through three values has its top."""
    curve = before - 2 * at + after
    return 0.0 if curve >= 0 else float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5))
