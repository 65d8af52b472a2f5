"""Calibration of two cameras from sightings of a board: selection, fit and quality."""

from __future__ import annotations

from collections.abc import Sequence
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
    fit_rig,
    root_mean_square,
)
from pamcli.calibration.rig import Rig
from pamcli.calibration.sightings import Rejection, Sighting
from pamcli.calibration.uncertainty import Uncertainty, build_rig, estimate_uncertainty
from pamcli.errors import InputError

FEWEST_PAIRS = 5  # in which both cameras see the board
BLURRED, SHARP = (
    2.2,
    3.5,
)  # a board is blurred above this factor of the median width and this width (px)
FAR_OFF = 5.0  # standard deviations from which a corner is rejected
WRONG = 3.0  # a board is rejected if its median residual exceeds the usual one by this factor
NEGLIGIBLE = 0.1  # px, residual below which no board and no corner is rejected
LEAST_KEPT = 0.6  # share of a board's corners that must remain, else the board is rejected
POOR, MANY = 0.3, 0.01  # px of error, or share of rejected corners, above which the other lens model is tried
MUCH_BETTER = 0.6  # factor by which the other model must be better to be suggested


@dataclass(frozen=True)
class RowErrors:
    """Distances (px) of corners from their rows after rectification."""

    rms: float
    p95: float
    worst: float


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
    rows: RowErrors
    uncertainty: Uncertainty
    other_model: str | None = None  # advice to use the other lens model

    @property
    def error(self) -> float:
        """Reprojection error (root mean square distance of corners), px."""
        return self.solution.rms

    @property
    def corners(self) -> int:
        """Number of used corners of both cameras."""
        return sum(len(corners) for view in self.problem.views for corners in view if corners is not None)

    @property
    def pairs(self) -> int:
        """Number of used pairs in which both cameras see the board."""
        return sum(sighting.both for sighting in self.sightings)

    def camera_corners(self, camera: int) -> list[Corners]:
        """Return the used corners of each board that a camera (0 or 1) sees."""
        return [corners for view in self.problem.views if (corners := view[camera]) is not None]


def calibrate_rig(
    sightings: Sequence[Sighting], board: Board, size: tuple[int, int], *, fisheye: bool = False
) -> BoardCalibration:
    """Calibrate two cameras; if the fit is poor, the other lens model is tried for advice.

    Args:
        sightings: Sightings of the board.
        board: The board.
        size: (width, height) of the images.
        fisheye: Fit fisheye lenses instead of pinhole ones.

    Raises:
        InputError: If there are too few boards, the cameras are swapped, or nothing fits.
    """
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
    """Return advice to use the other lens model, or None if it is not much better."""
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
    """Calibrate with one lens model, rejecting blurred boards, boards that do not fit, and single corners.

    Robust weights keep wrong boards from spoiling the fit before they are rejected. Raises InputError.
    """
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
        lost = sum(
            int(np.count_nonzero(~each)) for number in stays for each in keep[number] if each is not None
        )
        if not wrong and not lost:
            break
        left_out += lost
        misfits += lost + sum(len(each) for number in wrong for each in keep[number] if each is not None)
        rejections += [Rejection(used[number].name, _explain(problem, solution, number)) for number in wrong]
        used = [used[number] for number in stays]
        _require_pairs(used, rejections)
        problem = problem.with_views(
            [
                tuple(
                    None
                    if corners is None or kept is None or not kept.any()
                    else Corners(corners.ids[kept], corners.pixels[kept])
                    for corners, kept in zip(problem.views[number], keep[number], strict=True)
                )
                for number in stays
            ]
        )
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


def _reject_blurred(sightings: Sequence[Sighting]) -> tuple[list[Sighting], list[Rejection]]:
    """Split sightings into sharp ones and rejections of blurred ones."""
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
    count = sum(each.both for each in used)
    if count < FEWEST_PAIRS:
        why = ""
        if rejections:
            first = f"{rejections[0].name} ({rejections[0].reason})"
            why = f"; rejected: {first}{f' and {len(rejections) - 1} more' if rejections[1:] else ''}"
        raise InputError(
            f"both cameras see the board in {count} image pairs, at least {FEWEST_PAIRS} are required{why}",
            "take 20 pairs, with the board in all parts of both images",
        )


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
    """Return why a view does not fit: whether each camera's corners fit on their own."""
    view, pose = problem.views[number], solution.poses[number]
    worst = max(root_mean_square([each]) for each in solution.residuals[number] if each is not None)
    if None not in view:
        poses = pose, compose_poses(pose, solution.shared[-6:])
        alone = max(
            problem.with_views([(view[camera],)])
            .solve(problem.lens(solution.shared, camera), poses[camera][None], robust=False, fixed=True)
            .rms
            for camera in (0, 1)
        )
        means = [
            [(each**2).sum(axis=1).mean() for each in other if each is not None]
            for other in solution.residuals
        ]
        usual = float(np.median([np.sqrt(np.mean(each)) for each in means]))
        if alone < 0.5 * worst and alone < max(NEGLIGIBLE, WRONG * usual):
            return (
                f"the cameras disagree by {worst:.1f} px, but each alone fits to {alone:.2f} px: "
                "the board moved between the two exposures"
            )
    return f"corners are off by {worst:.1f} px: the board was bent, moving or partly hidden"


def _measure_rows(problem: Problem, rig: Rig) -> RowErrors:
    off = []
    for left, right in problem.views:
        if left is not None and right is not None:
            _, one, two = np.intersect1d(left.ids, right.ids, return_indices=True)
            there = rig.rectify_points(left.pixels[one], right.pixels[two])
            off.append(there[0][:, 1] - there[1][:, 1])
    found = np.abs(np.concatenate(off))
    found = found[np.isfinite(found)]
    return RowErrors(float(np.sqrt((found**2).mean())), float(np.percentile(found, 95)), float(found.max()))
