"""Measurements on a rectified pair: row offsets, the ground, and known lengths."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from pamcli.calibration.geometry import Calibration, Floats, Pixels
from pamcli.imaging.dense_matching import match_densely
from pamcli.imaging.images import choose_downscaling, downscale_to_uint8, to_grey
from pamcli.imaging.preflight import ENOUGH_MATCHES, Matches, interpolate_peak

ENOUGH = 20  # matches that a rotation and a scale require
FEW = 3  # a ninth of the image needs more matches to be compared with the others
VISIBLE = 0.3  # px between two edges of the image from which a rotation or scale is reported

AREA = 120_000  # px, to which images are downscaled for dense matching
HALF = 9  # px, half a side of the patch around a point
ALIKE = 0.75  # smallest correlation of a matching patch
MATCHING_ERROR = 0.3  # px
TRIES = 400
TOLERANCE = 0.6  # px of disparity in downscaled images between a plane and its points
GROUND = 0.35  # smallest share of the lower half of the image that the ground fills
UPRIGHT = 0.6  # smallest cosine between the ground's normal and the image columns


@dataclass(frozen=True)
class RowOffsets:
    """Row offsets of matches between two rectified images: right y - left y, px."""

    matches: Matches
    median: float  # px, median distance
    p90: float  # px, 90 % of the distances are smaller
    shift: float  # px by which the right image is lower in its middle
    angle: float  # degrees by which it is rotated clockwise
    stretch: float  # relative vertical scale, minus 1
    worst: tuple[str, float] | None  # ninth of the image with the largest median, and that median

    @property
    def pattern(self) -> str:
        """Words for shift, rotation and scale, the largest first; "" if nothing stands out."""
        parts = {}
        if abs(self.shift) > VISIBLE / 2:
            parts[f"{abs(self.shift):.1f} px {'lower' if self.shift > 0 else 'higher'}"] = abs(self.shift)
        if (across := abs(math.radians(self.angle)) * float(np.ptp(self.matches.x))) > VISIBLE:
            way = "clockwise" if self.angle > 0 else "counter-clockwise"
            parts[f"rotated by {abs(self.angle):.2f} degrees {way}"] = across / 2
        if (down := abs(self.stretch) * float(np.ptp(self.matches.y))) > VISIBLE:
            word = "larger" if self.stretch > 0 else "smaller"
            parts[f"{100 * abs(self.stretch):.2f} % {word} from top to bottom"] = down / 2
        return ", ".join(sorted(parts, key=lambda part: -parts[part]))


def summarize_row_offsets(matches: Matches, width: int, height: int) -> RowOffsets | None:
    """Summarize matches between images of this size (px); return None for too few matches."""
    if len(matches) < ENOUGH_MATCHES:
        return None
    x, y = matches.x - (width - 1) / 2, matches.y - (height - 1) / 2
    terms = np.column_stack([np.ones(len(matches)), x, y])
    if len(matches) < ENOUGH:
        terms[:, 1:] = 0.0
    keep = np.abs(matches.dy - np.median(matches.dy)) < max(3.0, 6 * _measure_spread(matches.dy))
    fit = np.zeros(3)
    for _ in range(4):  # rejects wrong matches
        fit[:] = np.linalg.lstsq(terms[keep], matches.dy[keep], rcond=None)[0]
        off = matches.dy - terms @ fit
        keep = np.abs(off) < max(0.5, 3.5 * _measure_spread(off[keep]))
    good = matches[keep]
    median, p90 = np.percentile(np.abs(good.dy), (50, 90)).tolist()
    shift, slope, stretch = fit.tolist()
    ninths = itertools.product(("upper", "", "lower"), ("left", "", "right"))
    places = 3 * (good.y // (height / 3)) + good.x // (width / 3)
    parts = [
        (" ".join(filter(None, name)) or "middle", good.dy[places == at]) for at, name in enumerate(ninths)
    ]
    medians = [(name, float(np.median(each))) for name, each in parts if len(each) > FEW]
    worst = max(medians, key=lambda each: abs(each[1])) if len(medians) > 1 else None
    return RowOffsets(good, median, p90, shift, math.degrees(math.atan(slope)), stretch, worst)


def _measure_spread(values: Floats) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def find_ground(left: Pixels, right: Pixels, calibration: Calibration) -> tuple[float, float] | None:
    """Return the distance (m) of the largest plane below the camera, and its share of the lower half."""
    factor = choose_downscaling(left.shape, AREA, 420)
    one, two = (to_grey(downscale_to_uint8(view, factor)) for view in (left, right))
    reach = int(0.35 * one.shape[1])
    found = match_densely(one, two, -reach // 4, reach)
    height, width = found.first.shape
    rows, columns = np.nonzero(found.first_seen)
    disparity = found.first[rows, columns].astype(np.float64)
    terms = np.column_stack([columns, rows, np.ones(len(disparity))]).astype(np.float64)
    lower = (rows > height / 2) & (disparity > 0)
    disparity, terms = disparity[lower], terms[lower]
    count = width * (height // 2)
    if len(disparity) < GROUND * count:
        return None
    random = np.random.default_rng(0)
    some = random.permutation(len(disparity))[:4000]
    best, plane = 0, np.zeros(3)
    for _ in range(TRIES):  # RANSAC
        three = random.choice(some, 3, replace=False)
        if abs(np.linalg.det(terms[three])) < 1:
            continue
        candidate = np.linalg.solve(terms[three], disparity[three])
        hits = int(np.count_nonzero(np.abs(terms[some] @ candidate - disparity[some]) < TOLERANCE))
        if hits > best and _is_ground(_compute_normal(candidate, factor, calibration)):
            best, plane = hits, candidate
    for _ in range(4):  # a slice of a wall resembles a floor until the whole wall is fitted
        inside = np.abs(terms @ plane - disparity) < TOLERANCE
        if not best or np.count_nonzero(inside) < GROUND * count:
            return None
        fit = plane
        plane = np.linalg.lstsq(terms[inside], disparity[inside], rcond=None)[0]
    normal = _compute_normal(fit, factor, calibration)
    if not _is_ground(normal):
        return None
    return 1 / float(np.linalg.norm(normal)), float(np.count_nonzero(inside)) / count


def _is_ground(normal: Floats) -> bool:
    return bool(normal[1] >= UPRIGHT * np.linalg.norm(normal))


def _compute_normal(plane: Floats, factor: int, calibration: Calibration) -> Floats:
    """Return n / h (3,) of the plane n . X = h, given its disparities plane . (x, y, 1) in downscaled images.

    Disparities of a plane are (d + doffs) h = B (n_x (x - cx) + n_y (y - cy) f / fy + n_z f).
    """
    across, down, rest = map(float, plane)
    x, y = calibration.principal or (0.0, 0.0)
    focal, focal_y = calibration.focal_length, calibration.vertical_focal_length
    # Slopes are the same at full size; the centre of the first pixel moves by (factor - 1) / 2.
    middle = across * x + down * y + factor * rest - (across + down) * (factor - 1) / 2 + calibration.offset
    return np.array([across, down * focal_y / focal, middle / focal]) / calibration.baseline


def measure_length(
    left: Pixels, right: Pixels, calibration: Calibration, points: Floats
) -> tuple[float, float] | int:
    """Measure between two points (2, 2) of the left image of a rectified pair (H, W, 3).

    Returns the length (m), and its error (m) if the matches are off by `MATCHING_ERROR`; or the number of a
    point that has no match in the right image.
    """
    ends = []
    for number, (x, y) in enumerate(points):
        if (disparity := _match_point(left, right, points[number], calibration)) is None:
            return number
        off = disparity + calibration.offset + np.array([0, MATCHING_ERROR, -MATCHING_ERROR])
        z = calibration.focal_length * calibration.baseline / np.maximum(off, 1e-6)
        ends.append(np.column_stack([*calibration.locate(x, y, z), z]))
    one, two = ends
    length = math.dist(one[0], two[0])
    return length, math.hypot(math.dist(one[1], two[0]) - length, math.dist(one[0], two[1]) - length)


def _match_point(left: Pixels, right: Pixels, point: Floats, calibration: Calibration) -> float | None:
    import cv2

    height, width = left.shape[:2]
    half = max(HALF, width // 100)
    if not ((point >= half) & (point < (width - half - 0.5, height - half - 0.5))).all():  # also for NaN
        return None
    x, y = np.rint(point).astype(int).tolist()
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
    return float(x - column - half - (interpolate_peak(score[row, column - 1 : column + 2]) if inside else 0))
