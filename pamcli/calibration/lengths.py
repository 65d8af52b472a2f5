"""Lengths in a rectified pair whose truth somebody knows: between two points, and from camera to ground."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.rectified import Calibration, Floats, Pixels
from pamcli.imaging.matching import (
    DenseMatch,
    choose_downscaling,
    downscale_to_uint8,
    interpolate_peak,
    match_densely,
    to_grey,
)

AREA = 120_000
"""Pixels to which pictures are reduced where all of them is matched."""
HALF = 9
"""Half a side of the patch around a point that is looked for in the right picture."""
ALIKE = 0.75
"""Correlation that a match of it must have."""
MATCHING_ERROR = 0.3
"""Pixels by which such a match may be off."""
TRIES = 400
TOLERANCE = 0.6
"""Pixels of disparity, in the reduced pictures, within which a plane goes through a place."""
GROUND = 0.35
"""Share of the lower half of the picture that one plane must fill to be called the ground."""
UPRIGHT = 0.6
"""Cosine of the largest angle between the ground's normal and the picture's columns."""


@dataclass(frozen=True)
class Ground:
    """A plane below the camera."""

    height: float
    """Metres from the camera to it."""
    share: float
    """Share of the lower half of the picture that it fills."""


@dataclass(frozen=True)
class Measured:
    """Distance between two points."""

    metres: float
    error: float
    """Metres by which `MATCHING_ERROR` at either end changes it."""


def dense(left: Pixels, right: Pixels) -> tuple[DenseMatch, int]:
    """Match two rectified pictures (H, W, 3) as a whole, reduced by a factor, and return that factor, too."""
    factor = choose_downscaling(left.shape, AREA, 420)
    one, two = (to_grey(downscale_to_uint8(view, factor)) for view in (left, right))
    reach = int(0.35 * one.shape[1])
    return match_densely(one, two, -reach // 4, reach), factor


def ground(found: DenseMatch, factor: int, calibration: Calibration) -> Ground | None:
    """Find the largest plane below the camera in the lower half of the picture; None: there is none.

    found: disparities from `dense`, reduced by the factor; calibration: of the full-size pictures.
    """
    height, width = found.first.shape
    rows, columns = np.nonzero(found.first_seen)
    disparity = found.first[rows, columns].astype(np.float64)
    lower = (rows > height / 2) & (disparity > 0)
    rows, columns, disparity = rows[lower], columns[lower], disparity[lower]
    count = width * (height // 2)
    if len(rows) < GROUND * count:
        return None
    terms = np.column_stack([columns, rows, np.ones(len(rows))]).astype(np.float64)
    random = np.random.default_rng(0)
    some = random.permutation(len(rows))[:4000]
    best, inside = 0, np.zeros(len(rows), bool)
    for _ in range(TRIES):
        three = random.choice(some, 3, replace=False)
        if abs(np.linalg.det(terms[three])) < 1:
            continue
        plane = np.linalg.solve(terms[three], disparity[three])
        normal = _normal(plane, factor, calibration)
        if normal[1] < UPRIGHT * np.linalg.norm(normal):
            continue
        hits = int(np.count_nonzero(np.abs(terms[some] @ plane - disparity[some]) < TOLERANCE))
        if hits > best:
            best, inside = hits, np.abs(terms @ plane - disparity) < TOLERANCE
    if np.count_nonzero(inside) < GROUND * count:
        return None
    for _ in range(3):  # a slice of a wall can look like a floor until all of the wall has its say
        fit = np.linalg.lstsq(terms[inside], disparity[inside], rcond=None)[0]
        inside = np.abs(terms @ fit - disparity) < TOLERANCE
        if np.count_nonzero(inside) < GROUND * count:
            return None
    normal = _normal(fit, factor, calibration)
    length = float(np.linalg.norm(normal))
    if normal[1] < UPRIGHT * length:
        return None
    return Ground(1 / length, float(np.count_nonzero(inside)) / count)


def _normal(plane: NDArray[Any], factor: int, calibration: Calibration) -> Floats:
    """(3,): n / h of the plane n . X = h, whose disparities in pictures reduced by a factor are
    plane . (x, y, 1).

    A plane's disparities are (d + doffs) h = B (n_x (x - cx) + n_y (y - cy) f / fy + n_z f).
    """
    across, down, rest = (float(value) for value in plane)
    x, y = calibration.principal or (0.0, 0.0)
    focal, focal_y = calibration.focal_length, calibration.vertical_focal_length
    # Slopes stay what they are in the full-size picture; the first pixel's centre moves by (factor - 1) / 2.
    middle = across * x + down * y + factor * rest - (across + down) * (factor - 1) / 2 + calibration.offset
    return np.array([across, down * focal_y / focal, middle / focal]) / calibration.baseline


def measured(
    left: Pixels, right: Pixels, calibration: Calibration, points: Floats
) -> Measured | tuple[float, float]:
    """Measure between two points (2, 2), pixels of the left one of two rectified pictures (H, W, 3).

    Returns x and y of a point instead, where that is not found in the right picture.
    """
    places: list[list[Floats]] = []
    for point in points:
        disparity = _disparity(left, right, point, calibration)
        if disparity is None:
            return float(point[0]), float(point[1])
        places.append(
            [_place(calibration, point, disparity + off) for off in (0.0, MATCHING_ERROR, -MATCHING_ERROR)]
        )
    one, two = (np.stack(each) for each in places)
    length = float(np.linalg.norm(one[0] - two[0]))
    ends = [abs(float(np.linalg.norm(a - b)) - length) for a, b in ((one[1], two[0]), (one[0], two[1]))]
    return Measured(length, math.hypot(*ends))


def _place(calibration: Calibration, point: Floats, disparity: float) -> Floats:
    x, y = calibration.principal or (0.0, 0.0)
    z = calibration.focal_length * calibration.baseline / max(disparity + calibration.offset, 1e-6)
    across = (point[0] - x) / calibration.focal_length
    down = (point[1] - y) / calibration.vertical_focal_length
    return z * np.array([across, down, 1.0])


def _disparity(left: Pixels, right: Pixels, point: Floats, calibration: Calibration) -> float | None:
    """Disparity of the patch around a point, by its best match in the same row, to a fraction of a pixel."""
    import cv2

    height, width = left.shape[:2]
    if not np.isfinite(point).all():
        return None
    x, y = (round(float(value)) for value in point)
    half = max(HALF, width // 100)
    if not (half <= x < width - half and half <= y < height - half):
        return None
    patch = left[y - half : y + half + 1, x - half : x + half + 1].astype(np.float32)
    last = min(width - 1, int(x + calibration.offset) + half + 1)  # not behind infinity
    strip = right[y - half - 1 : y + half + 2, : last + 1].astype(np.float32)
    if min(strip.shape[0] - patch.shape[0], strip.shape[1] - patch.shape[1]) < 2:
        return None
    score = cv2.matchTemplate(strip, patch, cv2.TM_CCOEFF_NORMED)
    _, best, _, (column, row) = cv2.minMaxLoc(score)
    if best < ALIKE:
        return None
    inside = 0 < column < score.shape[1] - 1
    return float(
        x - (column + half + (interpolate_peak(score[row, column - 1 : column + 2]) if inside else 0.0))
    )
