"""What comes of a stereogram: a rectified pair, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Layout = Literal["cross", "parallel"]
"""cross: the view on the left is the right eye's. parallel: it is the left eye's."""
Rule = Literal["infinity", "close"]
"""infinity: the farthest thing is infinitely far, zero disparity. close: it is near, and gets 40 px."""


@dataclass(frozen=True)
class RectifiedPair:
    """The two views of a stereogram in the right order, row by row, without margins; pixels everywhere."""

    left: NDArray[np.generic]
    """(H, W, 3), of the type of the stereogram; both sides multiples of 12."""
    right: NDArray[np.generic]
    layout: Layout
    certainty: float
    """0.5 .. 1: how sure it is that the views are not exchanged; 1 where the layout was given."""
    vertical_offset: float
    """By how many pixels the right view showed the middle of the picture lower than the left one."""
    rotation: float
    """Degrees by which the right view was turned against the left one; positive: its right side was lower."""
    shift: int
    """Added to all disparities: how many columns further to the left the right view lies now."""
    rule: Rule
    """What the shift was chosen for."""
    smallest_disparity: float
    """Of the pair as it is now, left x - right x, without outliers."""
    largest_disparity: float
    margins: tuple[tuple[int, int, int, int], tuple[int, int, int, int]]
    """Cut off the halves of the picture, that on the left first: pixels at top, bottom, left and right."""
    left_map: NDArray[np.float64]
    """(2, 3): the pixel (x, y) of `left` shows the stereogram's place left_map @ (x, y, 1)."""
    right_map: NDArray[np.float64]


@dataclass(frozen=True)
class SetAside:
    """A picture that cannot be used, and why: one line without the name of the picture."""

    reason: str
