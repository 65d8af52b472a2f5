"""One pair of a data set with all that is known about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.rectified import Calibration


@dataclass(frozen=True)
class Sample:
    """A rectified pair. Masks and truths have the size of the pictures."""

    name: str
    """Unique within its source, without suffix; "/" separates folders. Predictions go by this name."""
    left: NDArray[np.generic]
    """(H, W, 3) RGB, uint8 or uint16."""
    right: NDArray[np.generic]
    disparity: NDArray[np.float32] | None = None
    """(H, W) truth of the left view, pixels, NaN = unknown; where the source has all pixels, all of them."""
    right_disparity: NDArray[np.float32] | None = None
    """(H, W) truth of the right view, pixels, positive too, NaN = unknown."""
    visible: NDArray[np.bool_] | None = None
    """(H, W) left pixels that the right view sees too (non-occluded); None = not known."""
    foreground: NDArray[np.bool_] | None = None
    """(H, W) KITTI's object map: pixels of cars; None = not known."""
    calibration: Calibration | None = None
    low_left: NDArray[np.uint8] | None = None
    """(H / s, W / s, 3) RGB: the left picture reduced by a whole number s, where the source stores it, as do
    sets of training patches; None = to be made. Both views have it, or none."""
    low_right: NDArray[np.uint8] | None = None
