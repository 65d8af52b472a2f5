"""Bundle adjustment of one or two cameras: least squares over lenses and board poses.

OpenCV projects points and supplies derivatives. This module adds what it lacks: robust weights, boards that
only one camera sees, missing corners, and the contribution of each board, which `uncertainty` needs. On clean
corners the result equals that of cv2.stereoCalibrate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.geometry import Floats
from pamcli.errors import InputError

COEFFICIENTS = {
    False: 5,
    True: 4,
}  # distortion of a pinhole (k1 k2 p1 p2 k3) and a fisheye (k1 ... k4)
FOCAL_LENGTHS = 0.2 * 1.25 ** np.arange(14)  # initial values, in image widths
ROUNDS = 60
TAIL = 3.0  # standard deviations from which residuals count little in a robust fit
NOT_FOUND = "no cameras fit the detected corners of the boards"


@dataclass(frozen=True)
class Corners:
    """Corners of a board that one camera sees: which ones (N,), and their positions (N, 2) in px."""

    ids: NDArray[np.intp]
    pixels: Floats

    def __len__(self) -> int:
        return len(self.ids)


View = tuple[Corners | None, ...]
"""Corners that each camera sees at one moment; None: no board."""


@dataclass(frozen=True)
class Blocks:
    """Normal equations J'J and J'r of one view in the S shared parameters and the 6 of its pose."""

    shared: Floats  # (S, S)
    mixed: Floats  # (S, 6)
    own: Floats  # (6, 6)
    shared_slope: Floats  # (S,)
    own_slope: Floats  # (6,)

    def eliminate_pose(self, damping: float = 0.0) -> tuple[Floats, Floats, Floats]:
        """Return the equations (S, S) and (S,) of the shared parameters, and the inverse of `own` (6, 6)."""
        own = self.own + damping * np.diag(np.diag(self.own))
        inverse: Floats = np.asarray(np.linalg.pinv(own, hermitian=True), np.float64)
        lifted = self.mixed @ inverse
        return self.shared - lifted @ self.mixed.T, self.shared_slope - lifted @ self.own_slope, inverse


@dataclass(frozen=True)
class Solution:
    """Lenses and poses, and how well they fit."""

    shared: Floats
    """(S,): fx fy cx cy and the distortion of each camera; for two cameras also the rotation vector and
    translation from the left to the right one."""
    poses: Floats  # (V, 6): rotation vector and translation of each board in left camera coordinates
    blocks: Sequence[Blocks]
    residuals: Sequence[Sequence[Floats | None]]  # px (N, 2) of each view and camera: detected - projected

    @property
    def rms(self) -> float:
        """Reprojection error, px."""
        return root_mean_square(each for view in self.residuals for each in view)


def root_mean_square(residuals: Iterable[Floats | None]) -> float:
    """Return the root mean square length of residuals (N, 2); None entries are ignored."""
    found = np.concatenate([each for each in residuals if each is not None])
    return float(np.sqrt((found**2).sum(axis=1).mean()))


@dataclass(frozen=True)
class Problem:
    """Views of boards by one or two cameras."""

    views: Sequence[View]
    points: Floats  # (N, 3), corners of the board in metres
    size: tuple[int, int]  # (width, height) of the images
    fisheye: bool

    @property
    def width(self) -> int:
        """Number of parameters of a lens."""
        return 4 + COEFFICIENTS[self.fisheye]

    def lens(self, shared: Floats, camera: int) -> Floats:
        return shared[camera * self.width : (camera + 1) * self.width]

    def with_views(self, views: Sequence[View]) -> Problem:
        return Problem(views, self.points, self.size, self.fisheye)

    def project(self, lens: Floats, pose: Floats, ids: NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
        """Return pixels (N, 2) and their derivatives by lens (2 N, L) and pose (2 N, 6)."""
        import cv2

        module: Any = cv2.fisheye if self.fisheye else cv2
        points = self.points[ids].reshape(-1, 1, 3)
        pixels, slope = module.projectPoints(
            points, pose[:3].copy(), pose[3:].copy(), lens_matrix(lens), lens[4:].copy()
        )
        if self.fisheye:
            return pixels.reshape(-1, 2), slope[:, :8], slope[:, 8:14]
        return pixels.reshape(-1, 2), slope[:, 6:], slope[:, :6]

    def linearize(
        self, shared: Floats, pose: Floats, view: View, weights: float | None
    ) -> tuple[Blocks, list[Floats | None], float]:
        """Return blocks, residuals and cost of a view. weights: scale of the robust weights, px."""
        import cv2

        size = len(shared)
        blocks = Blocks(*(np.zeros(shape) for shape in ((size, size), (size, 6), (6, 6), size, 6)))
        residuals: list[Floats | None] = []
        cost = 0.0
        for camera, corners in enumerate(view):
            if corners is None:
                residuals.append(None)
                continue
            index = np.arange(size)[camera * self.width : (camera + 1) * self.width]
            if camera:
                r, t, *slopes = cv2.composeRT(pose[:3], pose[3:], shared[-6:-3], shared[-3:])
                there = np.concatenate([r.ravel(), t.ravel()])
                pixels, jacobian, by_pose = self.project(shared[index], there, corners.ids)
                by_rig = np.block([[slopes[2], slopes[3]], [slopes[6], slopes[7]]])
                jacobian = np.hstack([jacobian, by_pose @ by_rig])
                index = np.concatenate([index, np.arange(size)[-6:]])
                by_pose = by_pose @ np.block([[slopes[0], slopes[1]], [slopes[4], slopes[5]]])
            else:
                pixels, jacobian, by_pose = self.project(shared[index], pose, corners.ids)
            residual = corners.pixels - pixels
            residuals.append(residual)
            squares = (residual**2).sum(axis=1)
            weight = np.ones((2 * len(residual), 1))
            if weights is None:
                cost += float(squares.sum())
            else:
                weight = np.repeat(1 / (1 + squares / weights**2), 2)[:, None]
                cost += float(weights**2 * np.log1p(squares / weights**2).sum())
            weighted, mine = jacobian * weight, by_pose * weight
            blocks.shared[np.ix_(index, index)] += weighted.T @ jacobian
            blocks.mixed[index] += weighted.T @ by_pose
            blocks.own[:] += mine.T @ by_pose
            blocks.shared_slope[index] += weighted.T @ residual.ravel()
            blocks.own_slope[:] += mine.T @ residual.ravel()
        return blocks, residuals, cost

    def evaluate(self, shared: Floats, poses: Floats, weights: float | None) -> tuple[Solution, float]:
        """Return the solution with these parameters, and its cost."""
        found = [self.linearize(shared, *each, weights) for each in zip(poses, self.views, strict=True)]
        blocks, residuals, costs = zip(*found, strict=True)
        return Solution(shared, poses, blocks, residuals), sum(costs)

    def solve(self, shared: Floats, poses: Floats, *, robust: bool, fixed: bool = False) -> Solution:
        """Minimize by Levenberg-Marquardt from initial values, only over the poses if `fixed`.

        Raises InputError if nothing finite is found.
        """
        weights = None
        now, cost = self.evaluate(shared, poses, weights)
        if robust:
            weights = TAIL * _measure_scale(now)
            now, cost = self.evaluate(shared, poses, weights)
        damping = 1e-3
        for round_ in range(ROUNDS):
            step = _solve_step(now.blocks, damping, fixed)
            then, there = self.evaluate(now.shared + step[0], now.poses + step[1], weights)
            if np.isfinite(there) and there < cost:
                gain = (cost - there) / max(cost, 1e-12)
                now, cost, damping = then, there, max(damping / 10, 1e-12)
                if robust and round_ < ROUNDS // 2:
                    weights = TAIL * _measure_scale(now)
                    now, cost = self.evaluate(now.shared, now.poses, weights)
                if gain < 1e-9:
                    break
            else:
                damping *= 10
                if damping > 1e10:
                    break
        if not np.isfinite(cost):
            raise InputError(NOT_FOUND)
        return now


def lens_matrix(lens: Floats) -> Floats:
    """Return the camera matrix (3, 3) of fx fy cx cy."""
    return np.array([[lens[0], 0, lens[2]], [0, lens[1], lens[3]], [0, 0, 1]])


def _measure_scale(solution: Solution) -> float:
    """Return a robust standard deviation (px) of the residuals along an axis, at least 0.02."""
    found = np.concatenate([each.ravel() for view in solution.residuals for each in view if each is not None])
    return max(0.02, 1.4826 * float(np.median(np.abs(found))))


def _solve_step(blocks: Sequence[Blocks], damping: float, fixed: bool) -> tuple[Floats, Floats]:
    parts = [each.eliminate_pose(damping) for each in blocks]
    shared = np.zeros(len(blocks[0].shared_slope))
    if not fixed:
        normal = np.sum([part[0] for part in parts], axis=0)
        slope = np.sum([part[1] for part in parts], axis=0)
        diagonal = np.sum([np.diag(each.shared) for each in blocks], axis=0)
        shared = np.asarray(np.linalg.lstsq(normal + damping * np.diag(diagonal), slope, rcond=None)[0])
    pairs = zip(parts, blocks, strict=True)
    return shared, np.array([part[2] @ (each.own_slope - each.mixed.T @ shared) for part, each in pairs])


def fit_camera(problem: Problem) -> Solution:
    """Fit one camera, starting from the best of several focal lengths. Raises InputError."""
    width, height = problem.size
    best: tuple[float, Floats, Floats] | None = None
    for focal in FOCAL_LENGTHS * width:
        lens = np.zeros(problem.width)
        lens[:4] = focal, focal, (width - 1) / 2, (height - 1) / 2
        poses = [
            pose for view in problem.views if (pose := _estimate_pose(problem, lens, view[0])) is not None
        ]
        if len(poses) < len(problem.views):
            continue
        solution, _ = problem.evaluate(lens, np.array(poses), None)
        error = float(np.median([np.median(np.abs(each)) for (each,) in solution.residuals]))  # type: ignore[arg-type]
        if best is None or error < best[0]:
            best = error, lens, solution.poses
    if best is None:
        raise InputError(NOT_FOUND)
    return problem.solve(best[1], best[2], robust=True)


def _estimate_pose(problem: Problem, lens: Floats, corners: Corners | None) -> Floats | None:
    """Return the pose (6,) of a board without distortion, or None if corners are not ahead of the lens."""
    import cv2

    assert corners is not None
    seen = (corners.pixels - lens[2:4]) / lens[:2]
    if problem.fisheye:
        angle = np.linalg.norm(seen, axis=1, keepdims=True)
        if angle.max() > 1.5:
            return None
        seen = seen * np.tan(angle) / np.maximum(angle, 1e-12)
    points = problem.points[corners.ids]
    good, turn, there = cv2.solvePnP(points, seen, np.eye(3), None, flags=cv2.SOLVEPNP_IPPE)
    return np.concatenate([turn.ravel(), there.ravel()]) if good else None


def compose_poses(first: Floats, then: Floats) -> Floats:
    """Return the pose (6,) that applies one pose after another."""
    import cv2

    turn, there = cv2.composeRT(first[:3], first[3:], then[:3], then[3:])[:2]
    return np.concatenate([turn.ravel(), there.ravel()])


def invert_pose(pose: Floats) -> Floats:
    """Return the inverse of a pose (6,)."""
    import cv2

    return np.concatenate([-pose[:3], -cv2.Rodrigues(pose[:3])[0].T @ pose[3:]])


def fit_rig(problem: Problem) -> Solution:
    """Fit two cameras with robust weights, starting from fits of each camera.

    Raises:
        InputError: If no pair shows the board in both images, or nothing fits.
    """
    lenses, poses = [], []
    for camera, side in enumerate(("left", "right")):
        numbers = [number for number, view in enumerate(problem.views) if view[camera] is not None]
        if not numbers:
            raise InputError(f"no image of the {side} camera shows the board")
        solution = fit_camera(problem.with_views([(problem.views[number][camera],) for number in numbers]))
        lenses.append(solution.shared)
        poses.append(dict(zip(numbers, solution.poses, strict=True)))
    left, right = poses
    relative = [compose_poses(invert_pose(left[number]), right[number]) for number in left if number in right]
    if not relative:
        raise InputError("no pair shows the board in both images")
    rig = np.median(relative, axis=0)
    start = [
        left[number] if number in left else compose_poses(right[number], invert_pose(rig))
        for number in range(len(problem.views))
    ]
    return problem.solve(np.concatenate([*lenses, rig]), np.array(start), robust=True)
