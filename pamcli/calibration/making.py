"""A calibration made from pictures of boards: which of them are good, the fit, what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.boards import Board, Found, aligned
from pamcli.calibration.fitting import Problem, Solution, View, both_cameras, rms, without
from pamcli.calibration.rectified import Floats
from pamcli.calibration.rig import Rig
from pamcli.calibration.uncertainty import Uncertainty, rig_of_shared, uncertainty
from pamcli.errors import InputError

FEWEST_PAIRS = 5
"""Pairs in which both cameras see the board."""
BLURRED, SHARP = 2.2, 3.5
"""A board is blurred whose edges are so many times as wide as most boards', and wider than so many pixels."""
FAR_OFF = 5.0
"""Standard deviations from which on a corner is left out."""
WRONG = 3.0
"""Ratio from which on a board is left out: its corners' median distance to that of most boards."""
NEGLIGIBLE = 0.1
"""Pixels below which no board and no corner is left out."""
POOR, MANY, MUCH_BETTER = 0.3, 0.01, 0.6
"""The other model of lenses is tried above so many pixels of reprojection error, or where more than such a
share of the corners does not fit; so many times as large its own figure must be."""
LEAST_KEPT = 0.6
"""Share of a board's corners that must be kept, or it goes as a whole."""


@dataclass(frozen=True)
class Sighting:
    """A moment at which at least one camera saw the board."""

    name: str
    """Name of the pair, for people."""
    left: Found | None
    right: Found | None

    @property
    def both(self) -> bool:
        return self.left is not None and self.right is not None


@dataclass(frozen=True)
class LeftOut:
    """A pair that the calibration does not use."""

    name: str
    reason: str


@dataclass(frozen=True)
class Rows:
    """Pixels by which corners lie above or below each other in the rectified pictures."""

    rms: float
    p95: float
    """95 % are off by less."""
    worst: float


@dataclass(frozen=True)
class Made:
    """A calibration, and what it is worth."""

    rig: Rig
    """Metres."""
    used: Sequence[Sighting]
    left_out: Sequence[LeftOut]
    corners_left_out: int
    """Single ones, of boards that are used."""
    misfits: int
    """Corners left out, and those of boards that do not fit."""
    solution: Solution
    problem: Problem
    rows: Rows
    uncertainty: Uncertainty
    other_model: str | None = None
    """Sentence about the other model of lenses, where that is much better."""

    @property
    def error(self) -> float:
        """Reprojection error: root of the mean square distance of corners, pixels."""
        return self.solution.rms()

    @property
    def corners(self) -> int:
        """Number of corners of both cameras that are used."""
        return sum(len(corners) for view in self.problem.views for corners in view if corners is not None)

    @property
    def pairs(self) -> int:
        """Number of used pairs in which both cameras see the board."""
        return sum(sighting.both for sighting in self.used)


def make(
    sightings: Sequence[Sighting], board: Board, size: tuple[int, int], *, fisheye: bool = False
) -> Made:
    """Calibrate two cameras, see `_made`; where the fit is poor, the other model of lenses is tried, too.

    size: (width, height) of the pictures. Raises InputError: too few boards, cameras exchanged, nothing that
    fits.
    """
    try:
        made = _made(sightings, board, size, fisheye)
    except InputError as error:
        other = _other(sightings, board, size, fisheye)
        if other is None or "LEFT" in (error.hint or ""):
            raise
        raise InputError(error.message, other) from error
    if made.error <= POOR and made.misfits <= MANY * made.corners:
        return made
    other = _other(sightings, board, size, fisheye, made)
    return replace(made, other_model=other)


def _other(
    sightings: Sequence[Sighting],
    board: Board,
    size: tuple[int, int],
    fisheye: bool,
    made: Made | None = None,
) -> str | None:
    """Sentence about the other model of lenses; None: it is not much better, or not usable."""
    try:
        other = _made(sightings, board, size, not fisheye)
    except InputError:
        return None
    if made is not None and not (
        (other.error < MUCH_BETTER * made.error and other.misfits <= made.misfits)
        or (other.misfits < MUCH_BETTER * made.misfits and other.error < 1.2 * made.error)
    ):
        return None
    lens, do = ("pinhole", "leave out `fisheye`") if fisheye else ("fisheye", "take `fisheye`")
    return f"a {lens}'s lens fits to {other.error:.2f} px, {other.misfits} corners left out: {do}"


def _made(sightings: Sequence[Sighting], board: Board, size: tuple[int, int], fisheye: bool) -> Made:
    """A calibration by one model of lenses.

    Left out, with a reason each: blurred boards, boards whose corners do not fit (by robust weights first, so
    that they do not spoil what the others say), single corners that are far off. Raises InputError.
    """
    import cv2

    left_out: list[LeftOut] = []
    used = _sharp(sightings, left_out)
    views: list[View] = []
    for sighting in used:
        one, two = (None if found is None else found.corners for found in (sighting.left, sighting.right))
        if one is not None and two is not None:
            two = aligned(board, one, two)
        views.append((one, two))
    _enough(used, left_out)
    problem, solution = both_cameras(views, board.points, size, fisheye)
    dropped, misfits = 0, 0
    for _ in range(6):
        keep, wrong = _judged(solution)
        stays = [number for number in range(len(used)) if number not in wrong]
        seen = [each for number in stays for each in keep[number] if each is not None]
        lost = sum(int(np.count_nonzero(~each)) for each in seen)
        if not wrong and not lost:
            break
        dropped += lost
        misfits += lost + sum(len(each) for number in wrong for each in keep[number] if each is not None)
        for number in wrong:
            left_out.append(LeftOut(used[number].name, _reason(problem, solution, number)))
        used = [used[number] for number in stays]
        _enough(used, left_out)
        kept = without([problem.views[number] for number in stays], [keep[number] for number in stays])
        problem = Problem(kept, board.points, size, fisheye)
        solution = problem.solve(solution.shared, solution.poses[stays], robust=True)
    solution = problem.solve(solution.shared, solution.poses, robust=False)
    across, down, ahead = -cv2.Rodrigues(solution.shared[-6:-3])[0].T @ solution.shared[-3:]
    if across < -max(abs(down), abs(ahead)):
        raise InputError(
            f"the left pictures are of the right camera: the other one stands {-1000 * across:.0f} mm to its "
            "left",
            "exchange LEFT and RIGHT",
        )
    rig = rig_of_shared(solution.shared, problem)
    rows, sure = _rows(problem, rig), uncertainty(problem, solution)
    return Made(rig, used, left_out, dropped, misfits, solution, problem, rows, sure)


def _sharp(sightings: Sequence[Sighting], left_out: list[LeftOut]) -> list[Sighting]:
    """Sightings whose boards are not blurred; blurred ones are noted with the others that are left out."""
    widths = [found.blur for each in sightings for found in (each.left, each.right) if found is not None]
    if not widths:
        raise InputError("no picture shows the board")
    limit = max(SHARP, BLURRED * float(np.median(widths)))
    kept = []
    for each in sightings:
        widest = max(found.blur for found in (each.left, each.right) if found is not None)
        if widest <= limit:
            kept.append(each)
        else:
            reason = f"blurred: edges are {widest:.0f} px wide, most boards' {np.median(widths):.1f}"
            left_out.append(LeftOut(each.name, reason))
    return kept


def _enough(used: Sequence[Sighting], left_out: Sequence[LeftOut]) -> None:
    count = sum(each.both for each in used)
    if count < FEWEST_PAIRS:
        were = "was" if len(left_out) == 1 else "were"
        first = f"{left_out[0].name} ({left_out[0].reason})" if left_out else ""
        why = f"; {len(left_out)} {were} left out: {first}" if left_out else ""
        raise InputError(
            f"both cameras see the board in {count} {'pair' if count == 1 else 'pairs'}, "
            f"of {FEWEST_PAIRS} at least that are needed{why}",
            "take 20, with the board in all parts of both pictures",
        )


def _judged(solution: Solution) -> tuple[list[list[NDArray[np.bool_] | None]], list[int]]:
    """Judge the fit: which corners of each view are kept, and which views are wrong as a whole."""
    lengths = [
        [None if each is None else np.linalg.norm(each, axis=1) for each in view]
        for view in solution.residuals
    ]
    typical = [max(float(np.median(each)) for each in view if each is not None) for view in lengths]
    usual = float(np.median(typical))
    limit = max(NEGLIGIBLE, FAR_OFF * usual / 1.18)  # the median length is 1.18 deviations of an axis
    keep = [[None if each is None else each <= limit for each in view] for view in lengths]
    wrong = []
    for number, (median, view) in enumerate(zip(typical, keep, strict=True)):
        kept = min(float(each.mean()) for each in view if each is not None)
        if median > max(NEGLIGIBLE, WRONG * usual) or kept < LEAST_KEPT:
            wrong.append(number)
    return keep, wrong


def _reason(problem: Problem, solution: Solution, number: int) -> str:
    """Why a view does not fit: each camera's corners do by themselves, or not even those."""
    view, pose = problem.views[number], solution.poses[number]
    both = [rms([each]) for each in solution.residuals[number] if each is not None]
    if None not in view:
        alone = []
        for camera in (0, 1):
            lens = problem.lens(solution.shared, camera)
            one = Problem([(view[camera],)], problem.points, problem.size, problem.fisheye)
            start = pose if camera == 0 else _seen_from_right(pose, solution.shared)
            found = one.solve(lens, start[None], robust=False, fixed=True)
            alone.append(found.rms())
        if max(alone) < 0.5 * max(both) and max(alone) < max(NEGLIGIBLE, WRONG * _typical(solution)):
            return (
                f"the cameras disagree by {max(both):.1f} px, though each by itself fits to "
                f"{max(alone):.2f}: the board moved between the two exposures"
            )
    return f"corners are off by {max(both):.1f} px: the board was bent, moving or partly hidden"


def _typical(solution: Solution) -> float:
    """Root mean square length of the residuals of the view in the middle, pixels."""
    lengths = [
        np.sqrt(np.mean([np.mean((each**2).sum(axis=1)) for each in view if each is not None]))
        for view in solution.residuals
    ]
    return float(np.median(lengths))


def _seen_from_right(pose: Floats, shared: Floats) -> Floats:
    import cv2

    turn, there = cv2.composeRT(pose[:3], pose[3:], shared[-6:-3], shared[-3:])[:2]
    return np.concatenate([turn.ravel(), there.ravel()])


def _rows(problem: Problem, rig: Rig) -> Rows:
    rectification = rig.rectification()
    off = []
    for left, right in problem.views:
        if left is None or right is None:
            continue
        _, one, two = np.intersect1d(left.ids, right.ids, return_indices=True)
        assert rectification.left_points is not None
        assert rectification.right_points is not None
        there = rectification.left_points(left.pixels[one]), rectification.right_points(right.pixels[two])
        off.append(there[0][:, 1] - there[1][:, 1])
    found = np.abs(np.concatenate(off))
    found = found[np.isfinite(found)]
    return Rows(float(np.sqrt((found**2).mean())), float(np.percentile(found, 95)), float(found.max()))
