"""Figures of a calibration that was made: for programs, for people, and in its file."""

from collections.abc import Mapping, Sequence
from typing import Any

from pamcli.calibration.advice import boards_by_region, coverage, seen, tilt
from pamcli.calibration.boards import Board
from pamcli.calibration.making import LeftOut, Made
from pamcli.calibration.stored import known
from pamcli.calibration.uncertainty import FAR


def calibration_facts(
    made: Made, board: Board, left_out: Sequence[LeftOut], tips: Sequence[str]
) -> dict[str, Any]:
    """Figures that tell what a calibration is worth, in pixels, metres and shares."""
    sure, rig, size = made.uncertainty, made.rig, made.problem.size
    sides = ("left", "right")
    cameras = dict(zip(sides, (rig.left, rig.right), strict=True))
    return {
        "board": board.kind,
        "model": "fisheye" if rig.left.fisheye else "pinhole",
        "size_px": list(size),
        "boards_used": len(made.used),
        "pairs_used": made.pairs,
        "corners_left_out": made.corners_left_out,
        "reprojection_error_px": made.error,
        "left_out_reprojection_error_px": sure.left_out_error,
        "row_error_px": {"rms": made.rows.rms, "p95": made.rows.p95, "worst": made.rows.worst},
        "row_deviation_px": sure.rows,
        "focal_length_px": {
            side: [float(each.matrix[i, i]) for i in (0, 1)] for side, each in cameras.items()
        },
        "focal_length_deviation_px": dict(zip(sides, map(list, sure.focal), strict=True)),
        "baseline_m": rig.baseline,
        "baseline_deviation_m": sure.baseline,
        "right_camera_turned_degrees": rig.angle,
        "field_of_view_degrees": known(rig.left.field_of_view(size)),
        "far_m": FAR * rig.baseline,
        "depth_deviation": {"middle": sure.depth_middle, "corners": sure.depth_corners},
        "coverage": {side: coverage(seen(made, i), size) for i, side in enumerate(sides)},
        "boards_by_region": {side: boards_by_region(seen(made, i), size) for i, side in enumerate(sides)},
        "boards_tilted_degrees": tilt(made),
        "left_out": [{"name": each.name, "reason": each.reason} for each in left_out],
        "to_improve": list(tips),
    }


def report_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts for people, a name and a text each; deviations are one standard deviation."""
    rows, depth, far = facts["row_error_px"], facts["depth_deviation"], facts["far_m"]
    focal, sure = facts["focal_length_px"], facts["focal_length_deviation_px"]
    cover = facts["coverage"]
    lines = {
        "boards": f"{facts['boards_used']}, {facts['pairs_used']} of them in both pictures "
        f"({facts['board']})",
        "reprojection error": f"{facts['reprojection_error_px']:.3f} px, of boards left out of the fit "
        f"{facts['left_out_reprojection_error_px']:.3f} px",
        "rows": f"agree to {rows['rms']:.3f} px, 95 % of the corners to {rows['p95']:.2f}, all to "
        f"{rows['worst']:.2f} px",
    }
    for side in ("left", "right"):
        parts = [f"{f:.2f} +- {s:.2f}" for f, s in zip(focal[side], sure[side], strict=True)]
        lines[f"focal length {side}"] = f"{' and '.join(parts)} px across and down"
    lines |= {
        "baseline": f"{1000 * facts['baseline_m']:.3f} +- {1000 * facts['baseline_deviation_m']:.3f} mm",
        f"depth at {far:.3g} m": f"+- {100 * depth['middle']:.2f} % in the middle, "
        f"{100 * depth['corners']:.2f} % in the corners by the calibration",
        "coverage": f"left {100 * cover['left']:.0f} %, right {100 * cover['right']:.0f} % of the picture",
    }
    if facts["corners_left_out"]:
        lines["corners left out"] = str(facts["corners_left_out"])
    return list(lines.items())


def stored_facts(made: Made, board: Board) -> dict[str, int | float | str]:
    """Figures that the calibration's file holds beside the cameras, lengths in millimetres."""
    sure = made.uncertainty
    return {
        "board": f"{board.kind}, squares of {1000 * board.square:g} mm",
        "boards": len(made.used),
        "pairs": made.pairs,
        "reprojection_error": made.error,
        "row_error": made.rows.rms,
        "focal_length_deviation": max(*sure.focal[0], *sure.focal[1]),
        "baseline_deviation": 1000 * sure.baseline,
    }
