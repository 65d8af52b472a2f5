"""Calibration of two cameras from sightings of a board: selection, fit, quality and uncertainty.

The uncertainty is a jackknife over boards, because corners of one board err together, for example if it is
bent: the standard deviation of any figure g is sqrt((n - 1) / n * sum of (g without board i - g)^2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.boards import Board, align_corners
from pamcli.calibration.bundle_adjustment import (
    Corners,
    Problem,
    Solution,
    View,
    compose_poses,
    eliminate_pose,
    fit_rig,
    root_mean_square,
)
from pamcli.calibration.camera import Camera, make_rotation, pinhole_matrix
from pamcli.calibration.geometry import Floats
from pamcli.calibration.rig import Rig
from pamcli.calibration.sightings import Rejection, Sighting
from pamcli.errors import InputError

FAR = 20  # baselines, distance at which the uncertainty of depth is stated
FEWEST_PAIRS = 5  # in which both cameras see the board
BLURRED, SHARP = 2.2, 3.5  # a board is blurred above this factor of the median width and this width (px)
FAR_OFF = 5.0  # standard deviations from which a corner is rejected
WRONG = 3.0  # a board is rejected if its median residual exceeds the usual one by this factor
NEGLIGIBLE = 0.1  # px, residual below which no board and no corner is rejected
LEAST_KEPT = 0.6  # share of a board's corners that must remain, else the board is rejected
POOR, MANY = 0.3, 0.01  # px of error, or share of rejected corners, above which the other lens model is tried
MUCH_BETTER = 0.6  # factor by which the other model must be better to be suggested


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviation of each figure of a calibration."""

    focal: list[list[float]]  # px, fx and fy of the left and the right camera
    baseline: float  # m
    depth_middle: float  # relative error of the depth straight ahead, `FAR` baselines away
    depth_corners: float  # largest relative error of the depth at nine places of the image
    rows: float  # px, largest disagreement of rows at these places
    left_out_error: float  # px, reprojection error of boards that were left out of the fit


@dataclass(frozen=True)
class BoardCalibration:
    """A calibration from boards, and its quality."""

    rig: Rig
    sightings: Sequence[Sighting]  # those that were used
    rejections: Sequence[Rejection]
    corners_left_out: int  # single corners, rejected from boards that are used
    misfits: int  # rejected corners, including those of rejected boards
    solution: Solution
    problem: Problem
    rows: Mapping[str, float]  # rms, p95 and worst distance of corners from their rows, px
    uncertainty: Uncertainty
    other_model: str | None = None  # advice to use the other lens model

    @property
    def error(self) -> float:
        return self.solution.rms  # px

    @property
    def corners(self) -> int:
        return sum(len(corners) for view in self.problem.views for corners in view if corners is not None)

    @property
    def pairs(self) -> int:
        return sum(sighting.both for sighting in self.sightings)

    def camera_corners(self, camera: int) -> list[Corners]:
        """Return the used corners of each board that a camera (0 or 1) sees."""
        return [corners for view in self.problem.views if (corners := view[camera]) is not None]


def calibrate_rig(
    sightings: Sequence[Sighting], board: Board, size: tuple[int, int], *, fisheye: bool = False
) -> BoardCalibration:
    """Calibrate two cameras; if the fit is poor, the other lens model is tried for advice."""
    try:
        made = _calibrate(sightings, board, size, fisheye)
    except InputError as error:
        advice = _try_other_model(sightings, board, size, fisheye)
        if advice is None or "LEFT" in (error.hint or ""):
            raise
        raise InputError(error.message, advice) from error
    if made.error <= POOR and made.misfits <= MANY * made.corners:
        return made
    return replace(made, other_model=_try_other_model(sightings, board, size, fisheye, made))


def _try_other_model(
    sightings: Sequence[Sighting],
    board: Board,
    size: tuple[int, int],
    fisheye: bool,
    made: BoardCalibration | None = None,
) -> str | None:
    try:
        other = _calibrate(sightings, board, size, not fisheye)
    except InputError:
        return None
    if made is not None and not (
        (other.error < MUCH_BETTER * made.error and other.misfits <= made.misfits)
        or (other.misfits < MUCH_BETTER * made.misfits and other.error < 1.2 * made.error)
    ):
        return None
    lens, do = ("pinhole", "leave out `fisheye`") if fisheye else ("fisheye", "use `fisheye`")
    return f"a {lens} lens fits to {other.error:.2f} px with {other.misfits} corners rejected: {do}"


def _calibrate(
    sightings: Sequence[Sighting], board: Board, size: tuple[int, int], fisheye: bool
) -> BoardCalibration:
    """Calibrate with one lens model; reject boards that are blurred or do not fit. Raises InputError."""
    used, rejections = _reject_blurred(sightings)
    _require_pairs(used, rejections)
    views: list[View] = []
    for sighting in used:
        one, two = (None if found is None else found.corners for found in (sighting.left, sighting.right))
        views.append((one, two if one is None or two is None else align_corners(board, one, two)))
    problem = Problem(views, board.points, size, fisheye)
    solution = fit_rig(problem)
    left_out, misfits = 0, 0
    for _ in range(6):
        keep, wrong = _judge(solution)
        stays = [number for number in range(len(used)) if number not in wrong]
        lost = sum(int((~each).sum()) for at in stays for each in keep[at] if each is not None)
        if not wrong and not lost:
            break
        left_out += lost
        misfits += lost + sum(len(each) for number in wrong for each in keep[number] if each is not None)
        rejections += [Rejection(used[number].name, _explain(problem, solution, number)) for number in wrong]
        used = [used[number] for number in stays]
        _require_pairs(used, rejections)
        problem = replace(problem, views=[_select(problem.views[at], keep[at]) for at in stays])
        solution = problem.solve(solution.shared, solution.poses[stays], robust=True)
    solution = problem.solve(solution.shared, solution.poses, robust=False)
    try:
        rig = build_rig(solution.shared, problem)
    except InputError as error:
        if "left of" not in error.message:
            raise
        raise InputError(f"the images are swapped: {error.message}", "swap LEFT and RIGHT") from error
    rows, uncertainty = _measure_rows(problem, rig), estimate_uncertainty(problem, solution)
    return BoardCalibration(rig, used, rejections, left_out, misfits, solution, problem, rows, uncertainty)


def _select(view: View, keep: Sequence[NDArray[np.bool_] | None]) -> View:
    return tuple(
        None if corners is None or kept is None or not kept.any() else corners.take(kept)
        for corners, kept in zip(view, keep, strict=True)
    )


def _reject_blurred(sightings: Sequence[Sighting]) -> tuple[list[Sighting], list[Rejection]]:
    if not sightings:
        raise InputError("no image shows the board")
    usual = float(np.median([found.blur for each in sightings for found in each.detections]))
    kept, rejections = [], []
    for each in sightings:
        widest = max(found.blur for found in each.detections)
        if widest <= max(SHARP, BLURRED * usual):
            kept.append(each)
        else:
            reason = f"blurred: edges are {widest:.0f} px wide, those of most boards {usual:.1f} px"
            rejections.append(Rejection(each.name, reason))
    return kept, rejections


def _require_pairs(used: Sequence[Sighting], rejections: Sequence[Rejection]) -> None:
    if (count := sum(each.both for each in used)) >= FEWEST_PAIRS:
        return
    message = f"both cameras see the board in {count} image pairs, at least {FEWEST_PAIRS} are required"
    left, right = (sum(getattr(each, side) is not None for each in used) for side in ("left", "right"))
    message += f"; the left one sees it in {left}, the right one in {right}"
    if rejections:
        message += f"; rejected: {rejections[0].name} ({rejections[0].reason})"
        message += f" and {len(rejections) - 1} more" if rejections[1:] else ""
    raise InputError(message, "take 20 pairs, with the board in all parts of both images")


def _judge(solution: Solution) -> tuple[list[list[NDArray[np.bool_] | None]], list[int]]:
    """Return masks of the corners to keep of each view, and the numbers of views to reject."""
    lengths = [
        [None if each is None else np.linalg.norm(each, axis=1) for each in view]
        for view in solution.residuals
    ]
    typical = [max(float(np.median(each)) for each in view if each is not None) for view in lengths]
    usual = float(np.median(typical))
    limit = max(NEGLIGIBLE, FAR_OFF * usual / 1.18)  # the median length is 1.18 deviations of an axis
    keep = [[None if each is None else each <= limit for each in view] for view in lengths]
    least = [min(float(each.mean()) for each in view if each is not None) for view in keep]
    largest = max(NEGLIGIBLE, WRONG * usual)
    return keep, [at for at in range(len(keep)) if typical[at] > largest or least[at] < LEAST_KEPT]


def _explain(problem: Problem, solution: Solution, number: int) -> str:
    view, pose = problem.views[number], solution.poses[number]
    worst = max(root_mean_square([each]) for each in solution.residuals[number] if each is not None)
    if None not in view:
        poses = pose, compose_poses(pose, solution.shared[-6:])
        alone = max(
            replace(problem, views=[(view[camera],)])
            .solve(problem.lens(solution.shared, camera), poses[camera][None], robust=False, fixed=True)
            .rms
            for camera in (0, 1)
        )
        usual = float(np.median([root_mean_square(each) for each in solution.residuals]))
        if alone < 0.5 * worst and alone < max(NEGLIGIBLE, WRONG * usual):
            fits = f"the cameras disagree by {worst:.1f} px, but each alone fits to {alone:.2f} px"
            return f"{fits}: the board moved between the two exposures"
    return f"corners are off by {worst:.1f} px: the board was bent, moving or partly hidden"


def _measure_rows(problem: Problem, rig: Rig) -> dict[str, float]:
    off = []
    for left, right in problem.views:
        if left is not None and right is not None:
            _, one, two = np.intersect1d(left.ids, right.ids, return_indices=True)
            there = rig.rectify_points(left.pixels[one], right.pixels[two])
            off.append(there[0][:, 1] - there[1][:, 1])
    found = np.abs(np.concatenate(off))
    found = found[np.isfinite(found)]
    p95, worst = np.percentile(found, (95, 100)).tolist()
    return {"rms": float(np.sqrt((found**2).mean())), "p95": p95, "worst": worst}


def build_rig(shared: Floats, problem: Problem) -> Rig:
    """Return the rig (metres) of a solution's shared parameters. Raises InputError, as `Rig` does."""
    lenses = [problem.lens(shared, number) for number in (0, 1)]
    left, right = (Camera(pinhole_matrix(*lens[:4]), lens[4:].copy(), problem.fisheye) for lens in lenses)
    return Rig(left, right, make_rotation(shared[-6:-3]), shared[-3:].copy(), problem.size)


def leave_out_each(solution: Solution) -> list[Floats]:
    """Return the shared parameters without each view, to first order from the normal equations."""
    parts = [eliminate_pose(each)[0] for each in solution.normals]
    others = np.sum(parts, axis=0) - parts
    steps = [np.linalg.lstsq(each[:-1, :-1], each[:-1, -1], rcond=None)[0] for each in others]
    return [solution.shared + step for step in steps]


def estimate_uncertainty(problem: Problem, solution: Solution) -> Uncertainty:
    """Jackknife a solution for two cameras without robust weights and with at least three views."""
    without = leave_out_each(solution)
    rigs = [build_rig(each, problem) for each in (solution.shared, *without)]
    # Nine points at one distance, within 80 degrees of the axis.
    distance, places = FAR * rigs[0].baseline, np.meshgrid([0.08, 0.5, 0.92], [0.08, 0.5, 0.92])
    rays = rigs[0].left.rays(np.column_stack([each.ravel() for each in places]) * problem.size)
    rays = rays[rays[:, 2] > 0.17]
    points = rays / rays[:, 2:] * distance
    left = rigs[0].left.project(points)
    right = rigs[0].right.project(points @ rigs[0].rotation.T + rigs[0].translation)
    figures = np.array([_compute_figures(rig, left, right, distance) for rig in rigs])
    count = len(without)
    deviation = np.sqrt((count - 1) / count * np.sum((figures[1:] - figures[0]) ** 2, axis=0))
    depths, rows = np.split(deviation[5:], 2)
    residuals: list[Floats | None] = []  # of each view, with its pose fitted to cameras that do not know it
    for number, shared in enumerate(without):
        alone = replace(problem, views=[problem.views[number]])
        fit = alone.solve(shared, solution.poses[number : number + 1], robust=False, fixed=True)
        residuals += fit.residuals[0]
    return Uncertainty(
        focal=deviation[:4].reshape(2, 2).tolist(),
        baseline=float(deviation[4]),
        depth_middle=float(depths[len(depths) // 2]),
        depth_corners=float(depths.max()),
        rows=float(rows.max()),
        left_out_error=root_mean_square(residuals),
    )


def _compute_figures(rig: Rig, left: Floats, right: Floats, distance: float) -> Floats:
    """Return focal lengths, baseline, relative depths of the probe, and row offsets (px)."""
    one, two = rig.left.rays(left), rig.right.rays(right) @ rig.rotation
    center = rig.center
    cross = (one * two).sum(axis=1)  # the rays pass each other nearest at `along` on the left one
    along = ((one @ center) - cross * (two @ center)) / (1 - cross**2)
    depth = along * one[:, 2] / distance
    normal = np.cross(center / np.linalg.norm(center), one)
    apart = (normal / np.linalg.norm(normal, axis=1, keepdims=True) * two).sum(axis=1) * rig.left.matrix[1, 1]
    focal = [camera.matrix[at] for camera in (rig.left, rig.right) for at in ((0, 0), (1, 1))]
    return np.concatenate([focal, [rig.baseline], depth, apart])
