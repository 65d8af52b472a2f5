"""How the rows of two views lie against each other, and what undoes it.

With first (x, y) and second (x - disparity, y + dy), coordinates about the middle of the view, small angles
a1 and a2 by which the views are turned (positive: clockwise, the right side lower), the second one magnified
by 1 + zoom and moved down by `offset`, a rectified pair shows

    dy = offset + (a2 - a1) x + zoom y - a2 disparity.

The last term separates the two rotations: where both views are turned by one angle, the line between the
two cameras is, and nearer things are moved up or down by more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.matching import Floats, Matches

_NOISE = 0.3
"""Pixels by which a good match is off; what is 4 times as far off counts as wrong."""
_PRIOR = np.array([100.0, 0.03, 0.001, 0.006])
"""Standard deviations expected of offset (pixels), difference of the rotations, zoom and second rotation."""
_STRAIGHT = 0.25
"""Pixels; a rotation that moves no pixel by more is left alone, for resampling blurs."""


@dataclass(frozen=True)
class RowFit:
    """The fit of the module's equation."""

    offset: float
    rotation: float
    """Radians, second less first."""
    zoom: float
    second_rotation: float
    inliers: NDArray[np.bool_]
    """(N,): the matches that the fit explains."""
    residual: float
    """Median of the inliers' |dy| that is left, pixels."""

    @property
    def angles(self) -> tuple[float, float]:
        """By which either view is turned, radians."""
        return self.second_rotation - self.rotation, self.second_rotation

    def maps(self, size: tuple[int, int]) -> tuple[Floats, Floats]:
        """For each view, of height and width `size`, where the pixels of the straightened one lie in it."""
        angles = [angle if abs(angle) * max(size) / 2 > _STRAIGHT else 0.0 for angle in self.angles]
        zoom = self.zoom if abs(self.zoom) * size[0] / 2 > _STRAIGHT else 0.0
        whole = not any(angles) and not zoom and abs(self.offset - round(self.offset)) <= _STRAIGHT
        offset = round(self.offset) if whole else self.offset
        return turned(size, angles[0]), turned(size, angles[1], zoom, offset)


def fit_rows(matches: Matches, size: tuple[int, int]) -> RowFit:
    """Reweighted least squares (Geman-McClure weights, their width shrinking to the noise) with weak priors.

    size: height and width of the views.
    """
    x, y = matches.x - (size[1] - 1) / 2, matches.y - (size[0] - 1) / 2
    terms = np.stack([np.ones(len(matches)), x, y, -matches.disparity], axis=1)
    found = np.array([np.median(matches.dy), 0.0, 0.0, 0.0])
    prior = np.diag((_NOISE / _PRIOR) ** 2)
    width = max(4 * _NOISE, 1.5 * float(np.median(np.abs(matches.dy - found[0]))))
    for _ in range(12):
        weighted = terms * (1 / (1 + ((matches.dy - terms @ found) / width) ** 2) ** 2)[:, None]
        found = np.linalg.solve(terms.T @ weighted + prior, weighted.T @ matches.dy)
        width = max(2 * _NOISE, 0.7 * width)
    left = np.abs(matches.dy - terms @ found)
    inliers = left <= 4 * _NOISE
    offset, rotation, zoom, second_rotation = (float(value) for value in found)
    residual = float(np.median(left[inliers] if inliers.any() else left))
    return RowFit(offset, rotation, zoom, second_rotation, inliers, residual)


def turned(size: tuple[int, int], angle: float, zoom: float = 0.0, offset: float = 0.0) -> Floats:
    """(2, 3): where in a view each pixel (x, y, 1) of the rectified view lies. Angle in radians."""
    middle = np.array([(size[1] - 1) / 2, (size[0] - 1) / 2])
    turn = (1 + zoom) * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.concatenate([turn, (middle - turn @ middle + [0, offset])[:, None]], axis=1)


def resampled(view: NDArray[Any], places: Floats) -> NDArray[Any]:
    """The view (H, W, 3) at places @ (x, y, 1) for each pixel of a new one of its size, bicubic."""
    import cv2

    if np.array_equal(places, np.eye(2, 3)):
        return view
    size, flags = (view.shape[1], view.shape[0]), cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    result: NDArray[Any] = cv2.warpAffine(view, places, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return result
