"""Bundle adjustment of one or two cameras: least squares over lenses and board poses.

OpenCV projects points and supplies derivatives. This module adds what it lacks: robust weights, boards that
only one camera sees, missing corners, and the contribution of each board to the uncertainty. On clean corners
the result equals that of cv2.stereoCalibrate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.camera import pinhole_matrix
from pamcli.calibration.geometry import Floats
from pamcli.errors import InputError

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

    def take(self, mask: NDArray[np.bool_]) -> Corners:
        return Corners(self.ids[mask], self.pixels[mask])


View = tuple[Corners | None, ...]  # that each camera sees at one moment; None: no board


def eliminate_pose(normal: Floats, damping: float = 0.0) -> tuple[Floats, Floats]:
    """Eliminate the pose from the normal equations of a view; see `Solution.normals`.

    Returns the equations (S + 1, S + 1) of the S shared parameters, and the matrix (6, S + 1) whose product
    with (-step of the shared parameters, 1) is the step of the pose.
    """
    own = normal[:6, :6] + damping * np.diag(np.diag(normal[:6, :6]))
    solved: Floats = np.asarray(np.linalg.pinv(own, hermitian=True), np.float64) @ normal[:6, 6:]
    return normal[6:, 6:] - normal[6:, :6] @ solved, solved


@dataclass(frozen=True)
class Solution:
    """Lenses and poses, and how well they fit."""

    shared: Floats
    """(S,): fx fy cx cy and the distortion of each camera; for two cameras also the rotation vector and
    translation from the left to the right one."""
    poses: Floats  # (V, 6): rotation vector and translation of each board in left camera coordinates
    normals: Sequence[Floats]
    """(S + 7, S + 7): J'J of each view, where the columns of J are the derivatives by pose and shared
    parameters, and the residuals."""
    residuals: Sequence[Sequence[Floats | None]]  # px (N, 2) of each view and camera: detected - projected

    @property
    def rms(self) -> float:
        return root_mean_square([each for view in self.residuals for each in view])


def root_mean_square(residuals: Sequence[Floats | None]) -> float:
    """Return the root mean square length of residuals (N, 2); None entries are ignored."""
    found = np.concatenate([each for each in residuals if each is not None])
    return float(np.sqrt((found**2).sum(axis=1).mean()))


@dataclass(frozen=True)
class Problem:
    views: Sequence[View]
    points: Floats  # (N, 3), corners of the board in metres
    size: tuple[int, int]  # (width, height) of the images
    fisheye: bool

    @property
    def width(self) -> int:
        return 8 if self.fisheye else 9  # fx fy cx cy, then k1 ... k4 or k1 k2 p1 p2 k3

    def lens(self, shared: Floats, camera: int) -> Floats:
        return shared[camera * self.width : (camera + 1) * self.width]

    def project(self, lens: Floats, pose: Floats, ids: NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
        """Return pixels (N, 2) and their derivatives by lens (2 N, L) and pose (2 N, 6)."""
        import cv2

        module: Any = cv2.fisheye if self.fisheye else cv2
        points, matrix = self.points[ids].reshape(-1, 1, 3), pinhole_matrix(*lens[:4])
        pixels, slope = module.projectPoints(
            points, pose[:3].copy(), pose[3:].copy(), matrix, lens[4:].copy()
        )
        by_lens, by_pose = (slope[:, :8], slope[:, 8:14]) if self.fisheye else (slope[:, 6:], slope[:, :6])
        return pixels.reshape(-1, 2), by_lens, by_pose

    def linearize(
        self, shared: Floats, pose: Floats, view: View, weights: float | None
    ) -> tuple[Floats, list[Floats | None], float]:
        """Return normal equations, residuals and cost of a view. weights: scale of the robust weights, px."""
        import cv2

        normal = np.zeros((len(shared) + 7, len(shared) + 7))
        residuals: list[Floats | None] = []
        cost = 0.0
        for camera, corners in enumerate(view):
            if corners is None:
                residuals.append(None)
                continue
            there = compose_poses(pose, shared[-6:]) if camera else pose
            pixels, by_lens, by_pose = self.project(self.lens(shared, camera), there, corners.ids)
            rows = np.zeros((2 * len(corners), len(normal)))  # pose, shared parameters, residual
            start = 6 + camera * self.width
            rows[:, start : start + self.width] = by_lens
            if camera:
                slopes = cv2.composeRT(pose[:3], pose[3:], shared[-6:-3], shared[-3:])[2:]
                rows[:, -7:-1] = by_pose @ np.block([[slopes[2], slopes[3]], [slopes[6], slopes[7]]])
                by_pose = by_pose @ np.block([[slopes[0], slopes[1]], [slopes[4], slopes[5]]])
            rows[:, :6] = by_pose
            residual = corners.pixels - pixels
            rows[:, -1] = residual.ravel()
            residuals.append(residual)
            squares = (residual**2).sum(axis=1)
            weight = np.ones_like(squares)
            if weights is None:
                cost += float(squares.sum())
            else:
                weight = 1 / (1 + squares / weights**2)
                cost += float(weights**2 * np.log1p(squares / weights**2).sum())
            normal += (rows.T * np.repeat(weight, 2)) @ rows
        return normal, residuals, cost

    def evaluate(self, shared: Floats, poses: Floats, weights: float | None) -> tuple[Solution, float]:
        found = [self.linearize(shared, *each, weights) for each in zip(poses, self.views, strict=True)]
        normals, residuals, costs = zip(*found, strict=True)
        return Solution(shared, poses, normals, residuals), sum(costs)

    def solve(self, shared: Floats, poses: Floats, *, robust: bool, fixed: bool = False) -> Solution:
        """Minimize by Levenberg-Marquardt, only over the poses if `fixed`. Raises InputError."""
        weights, damping = None, 1e-3
        now, cost = self.evaluate(shared, poses, weights)
        if robust:
            weights = TAIL * _measure_scale(now)
            now, cost = self.evaluate(shared, poses, weights)
        for round_ in range(ROUNDS):
            parts = [eliminate_pose(each, damping) for each in now.normals]
            step = np.zeros_like(now.shared)
            if not fixed:
                whole = np.sum([part for part, _ in parts], axis=0)
                diagonal = np.diag(np.sum(now.normals, axis=0))[6:-1]
                damped = whole[:-1, :-1] + damping * np.diag(diagonal)
                step = np.asarray(np.linalg.lstsq(damped, whole[:-1, -1], rcond=None)[0])
            moves = np.array([solved @ np.append(-step, 1.0) for _, solved in parts])
            then, there = self.evaluate(now.shared + step, now.poses + moves, weights)
            if not there < cost:  # also true for NaN
                damping *= 10
                if damping > 1e10:
                    break
                continue
            gain = (cost - there) / max(cost, 1e-12)
            now, cost, damping = then, there, max(damping / 10, 1e-12)
            if robust and round_ < ROUNDS // 2:
                weights = TAIL * _measure_scale(now)
                now, cost = self.evaluate(now.shared, now.poses, weights)
            if gain < 1e-9:
                break
        if not np.isfinite(cost):
            raise InputError(NOT_FOUND)
        return now


def _measure_scale(solution: Solution) -> float:
    found = np.concatenate([each.ravel() for view in solution.residuals for each in view if each is not None])
    return max(0.02, 1.4826 * float(np.median(np.abs(found))))


def fit_camera(problem: Problem) -> Solution:
    """Fit one camera, starting from the best of several focal lengths. Raises InputError."""
    width, height = problem.size
    fits = []
    for focal in FOCAL_LENGTHS * width:
        lens = np.zeros(problem.width)
        lens[:4] = focal, focal, (width - 1) / 2, (height - 1) / 2
        poses = [_estimate_pose(problem, lens, view[0]) for view in problem.views]
        known = [pose for pose in poses if pose is not None]
        if len(known) == len(poses):
            solution, _ = problem.evaluate(lens, np.array(known), None)
            error = np.median([np.median(np.abs(each)) for (each,) in solution.residuals if each is not None])
            fits.append((float(error), lens, solution.poses))
    if not fits:
        raise InputError(NOT_FOUND)
    _, lens, start = min(fits, key=lambda fit: fit[0])
    return problem.solve(lens, start, robust=True)


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
    import cv2

    turn, there = cv2.composeRT(first[:3], first[3:], then[:3], then[3:])[:2]
    return np.concatenate([turn.ravel(), there.ravel()])


def invert_pose(pose: Floats) -> Floats:
    import cv2

    return np.concatenate([-pose[:3], -cv2.Rodrigues(pose[:3])[0].T @ pose[3:]])


def fit_rig(problem: Problem) -> Solution:
    """Fit two cameras with robust weights, starting from fits of each camera. Raises InputError."""
    lenses, poses = [], []
    for camera, side in enumerate(("left", "right")):
        numbers = [number for number, view in enumerate(problem.views) if view[camera] is not None]
        if not numbers:
            raise InputError(f"no image of the {side} camera shows the board")
        solution = fit_camera(replace(problem, views=[(problem.views[at][camera],) for at in numbers]))
        lenses.append(solution.shared)
        poses.append(dict(zip(numbers, solution.poses, strict=True)))
    left, right = poses
    relative = [compose_poses(invert_pose(left[at]), right[at]) for at in left if at in right]
    if not relative:
        raise InputError("no pair shows the board in both images")
    rig = np.median(relative, axis=0)
    left = {at: compose_poses(right[at], invert_pose(rig)) for at in right} | left
    start = [left[at] for at in range(len(problem.views))]
    return problem.solve(np.concatenate([*lenses, rig]), np.array(start), robust=True)
