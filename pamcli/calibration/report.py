"""Report on a calibration from boards: figures for programs and people, coverage, and advice."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.board_calibration import FAR, BoardCalibration
from pamcli.calibration.boards import Board
from pamcli.calibration.bundle_adjustment import Corners
from pamcli.calibration.camera import make_rotation
from pamcli.calibration.description import replace_nan
from pamcli.calibration.sightings import Rejection

ENOUGH_PAIRS = 15
ENOUGH_BOARDS = 3  # in each region of an image
EDGE = 0.27  # part of the width and height of regions at the edges; a whole board leaves a margin
TILTED = 15.0  # degrees by which most boards should be tilted
BLACK = 20  # grey level; a region is dark if 75 % of it is below
GOOD_ERROR = 0.5  # px of reprojection error
GOOD_DEPTH = 0.01  # relative error of the depth `FAR` baselines away, one standard deviation
SIDES = "left", "right"


def _iterate_regions() -> Iterator[tuple[str, tuple[float, float], tuple[float, float]]]:
    """Yield name, upper left and lower right corner of nine regions, as parts of width and height."""
    parts = (0.0, EDGE), (EDGE, 1 - EDGE), (1 - EDGE, 1.0)
    for down, (top, bottom) in zip(("upper", "", "lower"), parts, strict=True):
        for across, (left, right) in zip(("left", "", "right"), parts, strict=True):
            kind = "corner" if down and across else "edge" if down or across else "middle"
            yield " ".join(part for part in (down, across, kind) if part), (left, top), (right, bottom)


def count_boards(boards: Sequence[Corners], size: tuple[int, int]) -> dict[str, int]:
    """Count the boards with corners in each of nine regions of an image of (width, height)."""
    counts = {}
    for name, start, end in _iterate_regions():
        low, high = np.array(start) * size, np.array(end) * size
        inside = [((each.pixels >= low) & (each.pixels < high)).all(axis=1).any() for each in boards]
        counts[name] = int(np.count_nonzero(inside))
    return counts


def measure_coverage(boards: Sequence[Corners], size: tuple[int, int]) -> float:
    """Return the share of an image of (width, height) that boards covered at least once."""
    import cv2

    scale = 200 / max(size)
    width, height = (max(1, round(side * scale)) for side in size)
    mask = np.zeros((height, width), np.uint8)
    for each in boards:
        outline = cv2.convexHull((each.pixels * scale).astype(np.float32))
        cv2.fillConvexPoly(mask, np.rint(outline).astype(np.int32), 1)
    return float(mask.mean())


def measure_tilt(made: BoardCalibration) -> float:
    """Return the tilt (degrees) to the left image that three quarters of the boards stay below."""
    cosines = [min(1.0, abs(float(make_rotation(pose[:3])[2, 2]))) for pose in made.solution.poses]
    return float(np.percentile(np.degrees(np.arccos(cosines)), 75))


def find_dark_regions(brightest: NDArray[np.uint8]) -> set[str]:
    """Return the regions that are black in a map (H, W) of largest levels, as beside a fisheye's circle."""
    height, width = brightest.shape
    found = set()
    for name, (left, top), (right, bottom) in _iterate_regions():
        rows = slice(int(top * height), max(1, round(bottom * height)))
        columns = slice(int(left * width), max(1, round(right * width)))
        if np.percentile(brightest[rows, columns], 75) < BLACK:
            found.add(name)
    return found


def list_advice(made: BoardCalibration, dark: Sequence[set[str]] = (set(), set())) -> list[str]:
    lines = []
    if made.other_model is not None:
        lines.append(made.other_model)
    elif made.error > GOOD_ERROR:
        error = f"the reprojection error of {made.error:.2f} px is high (good: below {GOOD_ERROR:g} px)"
        do = "mount the board on a stiff, flat plate, and check that `board` is as printed"
        lines.append(f"{error}: {do}")
    moved = sum("moved between" in each.reason for each in made.rejections)
    if moved > 1:
        do = "put the board down for each image, or trigger both cameras at once"
        lines.append(f"in {moved} pairs the board moved between the two exposures: {do}")
    blurred = sum(each.reason.startswith("blurred") for each in made.rejections)
    if blurred > 0.2 * (blurred + len(made.sightings)):
        lines.append(f"{blurred} boards are blurred: use more light, or hold the board still")
    if made.pairs < ENOUGH_PAIRS:
        lines.append(f"both cameras see the board in {made.pairs} pairs: take at least {ENOUGH_PAIRS}")
    for camera, side in enumerate(SIDES):
        counts = count_boards(made.camera_corners(camera), made.problem.size)
        for region, count in sorted(counts.items(), key=lambda each: each[1]):
            if count < ENOUGH_BOARDS and region not in dark[camera]:
                place = f"{'at' if region.endswith('edge') else 'in'} the {region} of the {side} image"
                lines.append(f"boards {place}: {count}, take {ENOUGH_BOARDS - count} more there")
    if (tilt := measure_tilt(made)) < TILTED:
        do = "tilt them by 30 to 45 degrees, to all sides"
        lines.append(f"three of four boards are tilted by less than {tilt:.0f} degrees: {do}")
    if made.uncertainty.depth_middle > GOOD_DEPTH:
        share = f"{100 * made.uncertainty.depth_middle:.1f} %"
        do = "take more boards that are near and large in the image"
        lines.append(f"depth at {FAR} baselines is uncertain by {share}: {do}")
    return lines


def collect_facts(
    made: BoardCalibration, board: Board, rejections: Sequence[Rejection], advice: Sequence[str]
) -> dict[str, Any]:
    deviation, rig, size = made.uncertainty, made.rig, made.problem.size
    focal = [[float(each.matrix[i, i]) for i in (0, 1)] for each in (rig.left, rig.right)]
    boards = [made.camera_corners(camera) for camera in (0, 1)]
    return {
        "board": board.kind,
        "model": "fisheye" if rig.left.fisheye else "pinhole",
        "size_px": list(size),
        "boards_used": len(made.sightings),
        "pairs_used": made.pairs,
        "corners_left_out": made.corners_left_out,
        "reprojection_error_px": made.error,
        "left_out_reprojection_error_px": deviation.left_out_error,
        "row_error_px": made.rows,
        "row_deviation_px": deviation.rows,
        "focal_length_px": dict(zip(SIDES, focal, strict=True)),
        "focal_length_deviation_px": dict(zip(SIDES, deviation.focal, strict=True)),
        "baseline_m": rig.baseline,
        "baseline_deviation_m": deviation.baseline,
        "right_camera_turned_degrees": rig.angle,
        "field_of_view_degrees": replace_nan(rig.left.field_of_view(size)),
        "far_m": FAR * rig.baseline,
        "depth_deviation": {"middle": deviation.depth_middle, "corners": deviation.depth_corners},
        "coverage": {side: measure_coverage(boards[i], size) for i, side in enumerate(SIDES)},
        "count_boards": {side: count_boards(boards[i], size) for i, side in enumerate(SIDES)},
        "boards_tilted_degrees": measure_tilt(made),
        "left_out": [vars(each) for each in rejections],
        "to_improve": list(advice),
    }


def format_facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of the figures for people; deviations are one standard deviation."""
    rows, depth, cover = facts["row_error_px"], facts["depth_deviation"], facts["coverage"]
    lines = {
        "boards": "{boards_used}, {pairs_used} of them in both images ({board})".format(**facts),
        "reprojection error": "{reprojection_error_px:.3f} px ({left_out_reprojection_error_px:.3f} px for "
        "boards left out of the fit)".format(**facts),
        "row error": "{rms:.3f} px rms, 95 % of the corners below {p95:.2f} px, "
        "largest {worst:.2f} px".format(**rows),
    }
    for side in SIDES:
        values = zip(facts["focal_length_px"][side], facts["focal_length_deviation_px"][side], strict=True)
        parts = [f"{focal:.2f} +- {deviation:.2f} px" for focal, deviation in values]
        lines[f"focal length {side}"] = f"{parts[0]} (x), {parts[1]} (y)"
    lines |= {
        "baseline": f"{1000 * facts['baseline_m']:.3f} +- {1000 * facts['baseline_deviation_m']:.3f} mm",
        f"depth at {facts['far_m']:.3g} m": f"+- {100 * depth['middle']:.2f} % in the middle, "
        f"+- {100 * depth['corners']:.2f} % in the corners",
        "coverage": ", ".join(f"{100 * cover[side]:.0f} % of the {side} image" for side in SIDES),
    }
    if facts["corners_left_out"]:
        lines["rejected corners"] = str(facts["corners_left_out"])
    return list(lines.items())


def select_file_facts(made: BoardCalibration, board: Board) -> dict[str, int | float | str]:
    """Return the figures that are written into the calibration file, lengths in mm."""
    return {
        "board": f"{board.kind}, squares of {1000 * board.square:g} mm",
        "boards": len(made.sightings),
        "pairs": made.pairs,
        "reprojection_error": made.error,
        "row_error": made.rows["rms"],
        "focal_length_deviation": max(max(each) for each in made.uncertainty.focal),
        "baseline_deviation": 1000 * made.uncertainty.baseline,
    }
