"""Where the two views of a side-by-side picture lie: the margins around and between them are cut off.

A margin or frame is a run of lines of one colour, whatever the colour; frames may lie within frames, and be
of unequal width on every side of either view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.data.stereograms.result import SetAside

_SAME = 18
"""Grey levels of 8 bits by which a margin's pixels may differ: JPEG rings beside the picture."""
_EXCEPTIONS = 0.01
"""Share of a margin line's pixels that may differ by more."""
_SAMPLES = 300
"""Pixels of a line that are looked at, at least where it has as many."""
_FRAMES = 4
"""Frames within frames that are looked for."""
_BLENDED = 2
"""Lines cut beside a margin, and at a seam without one: they are a blend of both sides."""
_MIDDLE = 0.1
"""How far from the middle the gap between the views may lie, as a share of the width."""
_SEAM = 0.02
"""The same of a seam: without a gap the views meet in the very middle, but for a few columns."""
_SHARP_SEAM = 2.5
"""How much stronger than the usual difference of neighbouring columns a seam is."""
_UNLIKE_SIZES = 0.75
"""The smaller view may be this share of the larger one in each direction, not less."""
SMALLEST_SIDE = 120
"""Pixels a view must have in each direction."""


_Value = TypeVar("_Value", bound=np.generic)


@dataclass(frozen=True)
class Box:
    """Rows top .. bottom - 1 and columns left .. right - 1."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def width(self) -> int:
        return self.right - self.left

    def of(self, picture: NDArray[_Value]) -> NDArray[_Value]:
        return picture[self.top : self.bottom, self.left : self.right]


def find_views(picture: NDArray[np.generic]) -> tuple[Box, Box] | SetAside:
    """The boxes of the view on the left and of that on the right, of one size.

    picture: (H, W, 3) uint8 or uint16. SetAside: no two views of about one size, or too small ones.
    """
    levels = (picture >> 8 if picture.dtype == np.uint16 else picture).astype(np.int16)  # type: ignore[operator]
    whole = _without_margins(levels, Box(0, levels.shape[0], 0, levels.shape[1]))
    if whole.width < 2 or whole.height < 2:
        return SetAside("it is of one colour")
    parted = [
        tuple(
            _without_margins(levels, Box(whole.top, whole.bottom, left, right))
            for left, right in ((whole.left, end), (start, whole.right))
        )
        for end, start in _splits(levels, whole)
    ]
    first, second = max(parted, key=lambda halves: _likeness(*halves))
    if _likeness(first, second) < _UNLIKE_SIZES:
        return SetAside(
            f"it is no side-by-side picture: its halves are {first.width} x {first.height} and "
            f"{second.width} x {second.height} pixels without their margins"
        )
    sizes = np.array([[first.height, first.width], [second.height, second.width]])
    height, width = (int(side) for side in sizes.min(axis=0))
    if min(height, width) < SMALLEST_SIDE:
        return SetAside(f"its views are too small: {width} x {height} pixels, {SMALLEST_SIDE} are needed")
    return tuple(  # type: ignore[return-value]
        Box(box.top, box.top + height, box.left, box.left + width) for box in (first, second)
    )


def _without_margins(levels: NDArray[np.int16], box: Box) -> Box:
    """The box less all lines of one colour at its four sides, and less the blended lines beside them."""
    for _ in range(_FRAMES):
        before = box
        top, bottom = _margins(box.of(levels))
        box = Box(box.top + top, box.bottom - bottom, box.left, box.right)
        left, right = _margins(box.of(levels).swapaxes(0, 1))
        box = Box(box.top, box.bottom, box.left + left, box.right - right)
        if box == before or box.width < 2 or box.height < 2:
            break
    return box


def _margins(lines: NDArray[np.int16]) -> tuple[int, int]:
    """How many lines of (N, M, 3) belong to the margin at the beginning and at the end."""
    return _margin(lines), _margin(lines[::-1])


def _margin(lines: NDArray[np.int16]) -> int:
    if not lines.size:
        return 0
    lines = lines[:, :: max(1, lines.shape[1] // _SAMPLES)]
    colour = np.median(lines[0], axis=0)
    for start in range(0, len(lines), 32):  # most pictures have none: no need to look at all lines
        other = (np.abs(lines[start : start + 32] - colour).max(axis=2) > _SAME).mean(axis=1) > _EXCEPTIONS
        if other.any():
            found = start + int(other.argmax())
            return found + _BLENDED if found else 0
    return len(lines)


def _likeness(first: Box, second: Box) -> float:
    """The smaller of two boxes as a share of the larger one, in the direction where they differ more."""
    heights, widths = sorted((first.height, second.height)), sorted((first.width, second.width))
    return 0.0 if min(heights[0], widths[0]) < 2 else min(heights[0] / heights[1], widths[0] / widths[1])


def _splits(levels: NDArray[np.int16], whole: Box) -> list[tuple[int, int]]:
    """Where the views may be parted: the column after the first view's last, and the second view's first.

    In a gap, if there are columns of one colour near the middle (they may be part of a view: a lamp post,
    the white sky between two houses), and at the seam.
    """
    middle = (whole.left + whole.right) // 2
    reach = int(_MIDDLE * whole.width)
    step = max(1, whole.height // _SAMPLES)
    columns = whole.of(levels)[::step, middle - reach - whole.left : middle + reach - whole.left]
    colours = np.median(columns, axis=0)
    plain = np.flatnonzero((np.abs(columns - colours).max(axis=2) > _SAME).mean(axis=0) <= _EXCEPTIONS)
    splits = []
    if len(plain):
        # What belongs to the gap besides this column is cut as a margin of the views.
        splits = [(middle - reach + int(plain[np.abs(plain - reach).argmin()]),) * 2]
    reach = max(2, int(_SEAM * whole.width))
    columns = whole.of(levels)[:, middle - reach - whole.left : middle + reach - whole.left]
    steps = np.abs(np.diff(columns, axis=1)).mean(axis=(0, 2))
    seam = middle
    if steps.max() > _SHARP_SEAM * np.median(steps):
        seam = middle - reach + int(steps.argmax()) + 1
    return [*splits, (seam - _BLENDED, seam + _BLENDED)]


def margins_of(
    boxes: tuple[Box, Box], width: int, height: int
) -> tuple[tuple[int, int, int, int], tuple[int, int, int, int]]:
    """Top, bottom, left and right margin of either view; the gap between them is parted in the middle."""
    first, second = boxes
    gap = second.left - first.right
    return (
        (first.top, height - first.bottom, first.left, gap // 2),
        (second.top, height - second.bottom, gap - gap // 2, width - second.right),
    )
