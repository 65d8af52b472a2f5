"""Find the two views of a side-by-side image by cutting off the margins around and between them.

A margin or frame is a run of lines of a single colour. Frames may be nested, and may differ in width on every
side of either view.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_SAME, _EXCEPTIONS = 18, 0.01  # grey levels by which a margin may differ (JPEG), share of larger ones
_SAMPLES = 300  # approximate number of pixels checked per line
_FRAMES = 4
_BLENDED = 2  # lines cut beside a margin or seam, as they blend both sides
_GAP, _SEAM = 0.1, 0.02  # largest distance of a gap, and of a seam, from the middle / width
_SHARP_SEAM = 2.5  # strength of a seam relative to the median difference of neighbouring columns
_UNLIKE_SIZES = 0.75  # smallest size of the smaller view relative to the larger one, in each direction
TINY = 16  # px, images with a smaller side are not searched
SMALLEST_SIDE = 120  # px, smallest side of a view

_Value = TypeVar("_Value", bound=np.generic)


class StereogramError(Exception):
    """An image that cannot be used; the message is the reason, a line without the name of the image."""


@dataclass(frozen=True)
class Box:
    """Rows top .. bottom - 1 and columns left .. right - 1."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width (px)."""
        return self.bottom - self.top, self.right - self.left

    def of(self, image: NDArray[_Value]) -> NDArray[_Value]:
        return image[self.top : self.bottom, self.left : self.right]


def find_views(image: NDArray[np.generic]) -> tuple[Box, Box]:
    """Return the boxes of the two views of an image (H, W, 3), of one size. Raises StereogramError."""
    levels = (image >> 8 if image.dtype == np.uint16 else image).astype(np.int16)  # type: ignore[operator]
    whole = _trim_margins(levels, Box(0, levels.shape[0], 0, levels.shape[1]))
    if min(whole.size) < 2:
        raise StereogramError("the image has a single colour")
    if min(whole.size) < TINY:
        raise StereogramError("the image is too small for two views")
    candidates = [
        [_trim_margins(levels, replace(whole, right=end)), _trim_margins(levels, replace(whole, left=start))]
        for end, start in _find_splits(levels, whole)
    ]
    boxes = max(candidates, key=_compare_sizes)
    if _compare_sizes(boxes) < _UNLIKE_SIZES:
        sizes = " and ".join(f"{width}x{height}" for height, width in (box.size for box in boxes))
        raise StereogramError(
            f"the image does not hold two views side by side: without margins, its halves are {sizes}"
        )
    height, width = (min(sides) for sides in zip(*(box.size for box in boxes), strict=True))
    if min(height, width) < SMALLEST_SIDE:
        raise StereogramError(f"the views are {width}x{height}, too small: {SMALLEST_SIDE} px are needed")
    first, second = (Box(box.top, box.top + height, box.left, box.left + width) for box in boxes)
    return first, second


def _trim_margins(levels: NDArray[np.int16], box: Box) -> Box:
    """Return the box without single-coloured lines at its sides and the blended lines beside them."""
    for _ in range(_FRAMES):
        before, lines = box, box.of(levels)
        top, bottom = _count_margin(lines), _count_margin(lines[::-1])
        box = replace(box, top=box.top + top, bottom=box.bottom - bottom)
        lines = box.of(levels).swapaxes(0, 1)
        left, right = _count_margin(lines), _count_margin(lines[::-1])
        box = replace(box, left=box.left + left, right=box.right - right)
        if box == before or min(box.size) < 2:
            break
    return box


def _count_margin(lines: NDArray[np.int16]) -> int:
    """Return the number of leading lines of (N, M, 3) that belong to a margin."""
    if not lines.size:
        return 0
    lines = lines[:, :: max(1, lines.shape[1] // _SAMPLES)]
    colour = np.median(lines[0], axis=0)
    for start in range(0, len(lines), 32):  # stops early, as most images have no margin
        other = (np.abs(lines[start : start + 32] - colour).max(axis=2) > _SAME).mean(axis=1) > _EXCEPTIONS
        if other.any():
            found = start + int(other.argmax())
            return found + _BLENDED if found else 0
    return len(lines)


def _compare_sizes(boxes: list[Box]) -> float:
    """Return the smaller box as a part of the larger one, in the direction with the larger difference."""
    sizes = np.sort([box.size for box in boxes], axis=0)
    return 0.0 if sizes.min() < 2 else float((sizes[0] / sizes[1]).min())


def _find_splits(levels: NDArray[np.int16], whole: Box) -> list[tuple[int, int]]:
    """Return candidate splits: the end column of the first view, and the start column of the second.

    One is in a gap, if a single-coloured column lies near the middle; the other is at the seam.
    """
    middle, (height, width) = (whole.left + whole.right) // 2, whole.size
    splits = []
    reach = int(_GAP * width)
    columns = levels[whole.top : whole.bottom : max(1, height // _SAMPLES), middle - reach : middle + reach]
    other = np.abs(columns - np.median(columns, axis=0)).max(axis=2) > _SAME
    plain = np.flatnonzero(other.mean(axis=0) <= _EXCEPTIONS)
    if len(plain):  # the rest of the gap is later cut as a margin
        splits.append((middle - reach + int(plain[np.abs(plain - reach).argmin()]),) * 2)
    reach = max(2, int(_SEAM * width))
    columns = levels[whole.top : whole.bottom, middle - reach : middle + reach]
    steps = np.abs(np.diff(columns, axis=1)).mean(axis=(0, 2))
    sharp = steps.max() > _SHARP_SEAM * np.median(steps)
    seam = middle - reach + int(steps.argmax()) + 1 if sharp else middle
    return [*splits, (seam - _BLENDED, seam + _BLENDED)]
