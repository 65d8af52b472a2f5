"""Disparities of both views, of either sign, by semi-global matching of census codes (numpy alone).

A place x of the first view and x - disparity of the second show the same thing. Neither view is taken for the
left one: nothing here knows what is near.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Grey = NDArray[np.float32]

_RADIUS = 2
"""A census code compares a pixel with the others of a square of 2 * 2 + 1 pixels."""
BITS = (2 * _RADIUS + 1) ** 2 - 1
"""Of a census code."""
_SMALL_STEP, _LARGE_STEP = 8, 40
"""Cost of a disparity step of one pixel and of a larger one between neighbours; a code has 24 bits."""
_OUTSIDE = 11
"""Cost of a match outside the other view: about that of two unrelated codes."""
_CONSISTENT = 1.0
"""Pixels by which the disparities of both views may differ."""


@dataclass(frozen=True)
class DenseMatch:
    """Disparities of two views, first x - second x, in pixels."""

    first: NDArray[np.float32]
    """(H, W), of every pixel, also where they cannot be right."""
    second: NDArray[np.float32]
    """(H, W): of the second view's pixels; x + disparity is the place in the first one."""
    first_seen: NDArray[np.bool_]
    """(H, W): the second view leads back to the same place."""
    second_seen: NDArray[np.bool_]


def match_densely(first: Grey, second: Grey, low: int, high: int) -> DenseMatch:
    """Match two views (H, W) of one size with disparities low .. high, both included."""
    volume = _costs(first, second, low, high)
    total = _aggregated(volume)
    best = total.argmin(axis=0)
    disparity = (best + _parabola(total, best) + low).astype(np.float32)
    other, sub = _of_second(total, low)
    other_disparity = (other + sub + low).astype(np.float32)
    return DenseMatch(
        disparity,
        other_disparity,
        _consistent(disparity, other_disparity, -1),
        _consistent(other_disparity, disparity, 1),
    )


def census(grey: Grey) -> NDArray[np.uint32]:
    """(H, W): a bit for each neighbour of the pixel that is darker than it."""
    height, width = grey.shape
    padded = np.pad(grey, _RADIUS, mode="edge")
    codes = np.zeros(grey.shape, np.uint32)
    for y in range(2 * _RADIUS + 1):
        for x in range(2 * _RADIUS + 1):
            if (y, x) != (_RADIUS, _RADIUS):
                codes <<= 1
                codes |= padded[y : y + height, x : x + width] < grey
    return codes


def _costs(first: Grey, second: Grey, low: int, high: int) -> NDArray[np.uint8]:
    """(D, H, W): differing bits of pixel x of the first view and x - disparity of the second."""
    one, two = census(first), census(second)
    width = one.shape[1]
    volume = np.full((high - low + 1, *one.shape), _OUTSIDE, np.uint8)
    for plane, disparity in zip(volume, range(low, high + 1), strict=True):
        start, end = max(0, disparity), min(width, width + disparity)
        if start < end:
            plane[:, start:end] = np.bitwise_count(
                one[:, start:end] ^ two[:, start - disparity : end - disparity]
            )
    return volume


def _aggregated(volume: NDArray[np.uint8]) -> NDArray[np.int16]:
    """(D, H, W): the costs of the best paths from the left, right, top and bottom to each pixel, added up."""
    depth, height, width = volume.shape
    total = np.zeros((height, depth, width), np.int16)
    down = np.ascontiguousarray(volume.transpose(1, 0, 2))
    _add_paths(down, total)
    _add_paths(down[::-1], total[::-1])
    across = np.ascontiguousarray(volume.transpose(2, 0, 1))
    sideways = np.zeros(across.shape, np.int16)
    _add_paths(across, sideways)
    _add_paths(across[::-1], sideways[::-1])
    total += sideways.transpose(2, 1, 0)
    return np.ascontiguousarray(total.transpose(1, 0, 2))


def _add_paths(costs: NDArray[np.uint8], total: NDArray[np.int16]) -> None:
    """Add to `total` the paths that run along the first axis of (N, D, M)."""
    depth, lines = costs.shape[1:]
    before = np.full((depth + 2, lines), np.iinfo(np.int16).max // 2, np.int16)
    before[1:-1] = costs[0]
    total[0] += before[1:-1]
    step = np.empty((depth, lines), np.int16)
    for index in range(1, len(costs)):
        floor = before.min(axis=0)
        np.minimum(before[:-2], before[2:], out=step)
        step += _SMALL_STEP
        np.minimum(step, before[1:-1], out=step)
        np.minimum(step, floor + np.int16(_LARGE_STEP), out=step)
        step -= floor
        step += costs[index]
        before[1:-1] = step
        total[index] += step


def _of_second(total: NDArray[np.int16], low: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The best index of each pixel of the second view, and the fraction to add."""
    depth, _, width = total.shape
    moved = np.full(total.shape, np.iinfo(np.int16).max // 2, np.int16)
    for index in range(depth):
        disparity = index + low
        start, end = max(0, disparity), min(width, width + disparity)
        if start < end:
            moved[index, :, start - disparity : end - disparity] = total[index, :, start:end]
    best = moved.argmin(axis=0)
    return best, _parabola(moved, best)


def _parabola(total: NDArray[np.int16], best: NDArray[np.intp]) -> NDArray[np.float32]:
    """Where between -0.5 and 0.5 of the best index the parabola through it and its neighbours is lowest."""
    inner = np.clip(best, 1, len(total) - 2)
    before, at, after = (
        np.take_along_axis(total, (inner + step)[None], axis=0)[0].astype(np.float32) for step in (-1, 0, 1)
    )
    curve = before - 2 * at + after
    fraction = np.clip(0.5 * (before - after) / np.maximum(curve, 1), -0.5, 0.5)
    return np.where((inner == best) & (curve > 0), fraction, 0).astype(np.float32)


def _consistent(disparity: NDArray[np.float32], other: NDArray[np.float32], sign: int) -> NDArray[np.bool_]:
    height, width = disparity.shape
    places = np.rint(np.arange(width) + sign * disparity).astype(np.intp)
    inside = (places >= 0) & (places < width)
    there = other[np.arange(height)[:, None], np.clip(places, 0, width - 1)]
    consistent: NDArray[np.bool_] = inside & (np.abs(there - disparity) <= _CONSISTENT)
    return consistent
