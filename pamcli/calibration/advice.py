"""Advice that makes a calibration better, in words; the part of the pictures that the boards covered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.fitting import Corners
from pamcli.calibration.making import Made
from pamcli.calibration.uncertainty import FAR

ENOUGH_PAIRS = 15
ENOUGH_THERE = 3
"""Boards in each region of the picture."""
EDGE = 0.27
"""Share of the width and height that a region along an edge takes; a whole board leaves a margin."""
TILTED = 15.0
"""Degrees by which most boards should be turned away from the picture's plane."""
BLACK = 20
"""Grey level below which three quarters of a region lie that no light falls on."""
GOOD_ERROR = 0.5
"""Reprojection error in pixels above which something is wrong."""
GOOD_DEPTH = 0.01
"""Share of the depth `FAR` baselines away by which a good calibration leaves it open, one deviation."""

_ACROSS = (("left", 0.0, EDGE), ("", EDGE, 1 - EDGE), ("right", 1 - EDGE, 1.0))
_DOWN = (("upper", 0.0, EDGE), ("", EDGE, 1 - EDGE), ("lower", 1 - EDGE, 1.0))


def _name(down: str, across: str) -> str:
    if down and across:
        return f"{down} {across} corner"
    if not down and not across:
        return "middle"
    return f"{down or across} edge"


def seen(made: Made, camera: int) -> list[Corners]:
    """The corners of each board that a camera saw and that are used."""
    return [corners for view in made.problem.views if (corners := view[camera]) is not None]


def boards_by_region(boards: Sequence[Corners], size: tuple[int, int]) -> dict[str, int]:
    """Count the boards with corners in each of nine regions of a picture of (width, height)."""
    counts = {}
    for down, top, bottom in _DOWN:
        for across, left, right in _ACROSS:
            low, high = np.array([left, top]) * size, np.array([right, bottom]) * size
            inside = [((each.pixels >= low) & (each.pixels < high)).all(axis=1).any() for each in boards]
            counts[_name(down, across)] = int(np.count_nonzero(inside))
    return counts


def coverage(boards: Sequence[Corners], size: tuple[int, int]) -> float:
    """Share of a picture of (width, height) that lay within the outline of a board at least once."""
    import cv2

    scale = 200 / max(size)
    width, height = (max(1, round(side * scale)) for side in size)
    mask = np.zeros((height, width), np.uint8)
    for each in boards:
        outline = cv2.convexHull((each.pixels * scale).astype(np.float32))
        cv2.fillConvexPoly(mask, np.rint(outline).astype(np.int32), 1)
    return float(mask.mean())


def tilt(made: Made) -> float:
    """Degrees: three quarters of the boards are turned less than this from the left picture's plane."""
    import cv2

    angles = []
    for pose in made.solution.poses:
        normal = cv2.Rodrigues(pose[:3])[0][:, 2]
        angles.append(np.degrees(np.arccos(min(1.0, abs(float(normal[2]))))))
    return float(np.percentile(angles, 75))


def advice(made: Made, dark: Sequence[set[str]] = (set(), set())) -> list[str]:
    """List what to do for a better calibration, the most important first; empty where nothing is missing.

    dark: for each camera the regions that are black in all pictures, as outside a fisheye's circle.
    """
    size = made.problem.size
    lines = []
    if made.other_model is not None:
        lines.append(made.other_model)
    elif made.error > GOOD_ERROR:
        lines.append(
            f"the reprojection error of {made.error:.2f} px is high (below {GOOD_ERROR:g} is good): is the "
            "board flat and stiff, glued on glass or metal, and `board` as printed?"
        )
    moved = [each for each in made.left_out if "moved between" in each.reason]
    if len(moved) > 1:
        lines.append(
            f"in {len(moved)} pairs the board moved between the two exposures: put it down for each picture, "
            "or trigger both cameras at once"
        )
    blurred = [each for each in made.left_out if each.reason.startswith("blurred")]
    if len(blurred) > 0.2 * (len(blurred) + len(made.used)):
        lines.append(f"{len(blurred)} boards are blurred: more light, or hold the board still")
    if made.pairs < ENOUGH_PAIRS:
        lines.append(f"both cameras see the board in {made.pairs} pairs: take {ENOUGH_PAIRS} or more")
    for camera, side in enumerate(("left", "right")):
        counts = boards_by_region(seen(made, camera), size)
        for region, count in sorted(counts.items(), key=lambda each: each[1]):
            if count < ENOUGH_THERE and region not in dark[camera]:
                there = {0: "no board", 1: "one board"}.get(count, f"{count} boards")
                more = {3: "three", 2: "two", 1: "one more"}[ENOUGH_THERE - count]
                where = f"{'at' if region.endswith('edge') else 'in'} the {region}"
                lines.append(f"{there} {where} of the {side} picture: take {more} there")
    if (turned := tilt(made)) < TILTED:
        lines.append(
            f"three of four boards are turned by less than {turned:.0f} degrees: tilt them by 30 to 45, "
            "to either side, up and down"
        )
    if made.uncertainty.depth_middle > GOOD_DEPTH:
        lines.append(
            f"a depth of {FAR} baselines is known to {100 * made.uncertainty.depth_middle:.1f} % alone: take "
            "more boards, near and large in the picture"
        )
    return lines


def dark_regions(brightest: NDArray[np.uint8]) -> set[str]:
    """Regions of a small picture (H, W) of the brightest levels that are black, as outside a fisheye's
    circle."""
    height, width = brightest.shape
    found = set()
    for down, top, bottom in _DOWN:
        for across, left, right in _ACROSS:
            rows = slice(int(top * height), max(1, round(bottom * height)))
            columns = slice(int(left * width), max(1, round(right * width)))
            if np.percentile(brightest[rows, columns], 75) < BLACK:
                found.add(_name(down, across))
    return found
