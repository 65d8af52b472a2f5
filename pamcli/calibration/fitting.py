"""Fitting one or two cameras to the corners of boards: least squares over all lenses and poses together.

OpenCV projects, and says how pixels depend on lens and pose; what it does not have is here: robust weights,
boards that one camera alone sees, corners that are missing, and what each board contributes, from which
`uncertainty` follows. On clean corners the result is that of cv2.stereoCalibrate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.rectified import Floats
from pamcli.errors import InputError

COEFFICIENTS = {False: 5, True: 4}
"""Coefficients of distortion, by whether the lens is a fisheye: k1 k2 p1 p2 k3, and k1 ... k4."""
FOCAL_LENGTHS = 0.2 * 1.25 ** np.arange(14)
"""Focal lengths from which the search begins, in widths of the picture."""
ROUNDS = 60
TAIL = 3.0
"""Standard deviations from which on a residual counts for little while the fit is robust."""


@dataclass(frozen=True)
class Corners:
    """Corners of a board that one camera saw."""

    ids: NDArray[np.intp]
    """(N,): which corners of the board."""
    pixels: Floats
    """(N, 2)."""

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, keep: NDArray[np.bool_]) -> Corners:
        return Corners(self.ids[keep], self.pixels[keep])


View = tuple[Corners | None, ...]
"""Corners that each camera saw at one moment; None: no board."""


@dataclass(frozen=True)
class Blocks:
    """Normal equations of one view in the shared parameters and its own pose: J'J and J'r, cut into parts."""

    shared: Floats
    """(S, S)."""
    mixed: Floats
    """(S, 6)."""
    own: Floats
    """(6, 6)."""
    shared_slope: Floats
    """(S,)."""
    own_slope: Floats
    """(6,)."""


@dataclass(frozen=True)
class Solution:
    """Lenses and poses, and how well they fit."""

    shared: Floats
    """(S,): fx fy cx cy and the distortion of each camera; for two cameras then rotation vector and
    translation from the first one's coordinates to the second one's."""
    poses: Floats
    """(V, 6): rotation vector and translation of each board in the first camera's coordinates."""
    blocks: Sequence[Blocks]
    """Normal equations of each view, at the solution."""
    residuals: Sequence[Sequence[Floats | None]]
    """Pixels (N, 2) of each view and camera: seen less projected."""

    def rms(self) -> float:
        """Reprojection error: see `rms`."""
        return rms(each for view in self.residuals for each in view)


def rms(residuals: Iterable[Floats | None]) -> float:
    """Root of the mean square length of residuals (N, 2), pixels; None: of a camera that saw no board."""
    found = np.concatenate([each for each in residuals if each is not None])
    return float(np.sqrt((found**2).sum(axis=1).mean()))


class Problem:
    """Views of boards by one camera or two."""

    def __init__(self, views: Sequence[View], points: Floats, size: tuple[int, int], fisheye: bool) -> None:
        """points: (N, 3), the board's corners in metres. size: (width, height) of the pictures."""
        self.views, self.points, self.size, self.fisheye = views, points, size, fisheye
        self.cameras = len(views[0])
        self.width = 4 + COEFFICIENTS[fisheye]
        """Parameters of a lens."""

    def lens(self, shared: Floats, camera: int) -> Floats:
        return shared[camera * self.width : (camera + 1) * self.width]

    def project(self, lens: Floats, pose: Floats, ids: NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
        """Pixels (N, 2), and how they depend on lens (2 N, L) and pose (2 N, 6)."""
        import cv2

        matrix = np.array([[lens[0], 0, lens[2]], [0, lens[1], lens[3]], [0, 0, 1]])
        module: Any = cv2.fisheye if self.fisheye else cv2
        pixels, slope = module.projectPoints(
            self.points[ids].reshape(-1, 1, 3), pose[:3].copy(), pose[3:].copy(), matrix, lens[4:].copy()
        )
        if self.fisheye:
            return pixels.reshape(-1, 2), slope[:, :8], slope[:, 8:14]
        return pixels.reshape(-1, 2), slope[:, 6:], slope[:, :6]

    def view(
        self, shared: Floats, pose: Floats, view: View, weights: float | None
    ) -> tuple[Blocks, list[Floats | None], float]:
        """Its blocks and residuals, and the robust cost. weights: the scale of robust ones, pixels."""
        import cv2

        size = len(shared)
        h, m, c = np.zeros((size, size)), np.zeros((size, 6)), np.zeros((6, 6))
        g, own = np.zeros(size), np.zeros(6)
        found: list[Floats | None] = []
        cost = 0.0
        for camera, corners in enumerate(view):
            if corners is None:
                found.append(None)
                continue
            lens = slice(camera * self.width, (camera + 1) * self.width)
            there, by_pose, by_rig = pose, np.eye(6), None
            if camera:
                r, t, *slopes = cv2.composeRT(pose[:3], pose[3:], shared[-6:-3], shared[-3:])
                there = np.concatenate([r.ravel(), t.ravel()])
                by_pose = np.block([[slopes[0], slopes[1]], [slopes[4], slopes[5]]])
                by_rig = np.block([[slopes[2], slopes[3]], [slopes[6], slopes[7]]])
            pixels, of_lens, of_pose = self.project(shared[lens], there, corners.ids)
            residual = corners.pixels - pixels
            found.append(residual)
            weight = np.ones(len(residual))
            if weights is not None:
                square = (residual**2).sum(axis=1) / weights**2
                weight = 1 / (1 + square)
                cost += float(weights**2 * np.log1p(square).sum())
            else:
                cost += float((residual**2).sum())
            weight = np.repeat(weight, 2)
            parts, indices = [of_lens], [np.arange(size)[lens]]
            if by_rig is not None:
                parts.append(of_pose @ by_rig)
                indices.append(np.arange(size)[-6:])
            jacobian, index = np.hstack(parts), np.concatenate(indices)
            mine = of_pose @ by_pose
            weighted = jacobian * weight[:, None]
            h[np.ix_(index, index)] += weighted.T @ jacobian
            m[index] += weighted.T @ mine
            c += (mine * weight[:, None]).T @ mine
            g[index] += weighted.T @ residual.ravel()
            own += (mine * weight[:, None]).T @ residual.ravel()
        return Blocks(h, m, c, g, own), found, cost

    def evaluate(self, shared: Floats, poses: Floats, weights: float | None) -> tuple[Solution, float]:
        made = [self.view(shared, pose, view, weights) for pose, view in zip(poses, self.views, strict=True)]
        solution = Solution(shared, poses, [each[0] for each in made], [each[1] for each in made])
        return solution, sum(each[2] for each in made)

    def solve(self, shared: Floats, poses: Floats, *, robust: bool, fixed: bool = False) -> Solution:
        """Levenberg and Marquardt's least squares from these values on. fixed: the poses alone.

        Raises InputError where nothing finite is found.
        """
        weights = None
        now, cost = self.evaluate(shared, poses, weights)
        if robust:
            weights = TAIL * _scale(now)
            now, cost = self.evaluate(shared, poses, weights)
        damping = 1e-3
        for round_ in range(ROUNDS):
            step = _step(now.blocks, damping, fixed)
            then, there = self.evaluate(now.shared + step[0], now.poses + step[1], weights)
            if np.isfinite(there) and there < cost:
                gain = (cost - there) / max(cost, 1e-12)
                now, cost, damping = then, there, max(damping / 10, 1e-12)
                if robust and round_ < ROUNDS // 2:
                    weights = TAIL * _scale(now)
                    now, cost = self.evaluate(now.shared, now.poses, weights)
                if gain < 1e-9:
                    break
            else:
                damping *= 10
                if damping > 1e10:
                    break
        if not np.isfinite(cost):
            raise InputError("no cameras were found that could have seen the boards so")
        return now


def _scale(solution: Solution) -> float:
    """Standard deviation of residuals along an axis, as their median has it, pixels; at least 0.02."""
    found = np.concatenate([each.ravel() for view in solution.residuals for each in view if each is not None])
    return max(0.02, 1.4826 * float(np.median(np.abs(found))))


def reduced(blocks: Blocks, damping: float = 0.0) -> tuple[Floats, Floats, Floats]:
    """Eliminate the pose, which follows the shared parameters: (S, S), (S,), and C^-1 (6, 6) are left."""
    own = blocks.own + damping * np.diag(np.diag(blocks.own))
    inverse: Floats = np.asarray(np.linalg.pinv(own, hermitian=True), np.float64)
    lifted = blocks.mixed @ inverse
    return blocks.shared - lifted @ blocks.mixed.T, blocks.shared_slope - lifted @ blocks.own_slope, inverse


def _step(blocks: Sequence[Blocks], damping: float, fixed: bool) -> tuple[Floats, Floats]:
    parts = [reduced(each, damping) for each in blocks]
    size = len(blocks[0].shared_slope)
    shared = np.zeros(size)
    if not fixed:
        normal = sum((part[0] for part in parts), np.zeros((size, size)))
        slope = sum((part[1] for part in parts), np.zeros(size))
        diagonal = sum((np.diag(each.shared) for each in blocks), np.zeros(size))
        found = np.linalg.lstsq(normal + damping * np.diag(diagonal), slope, rcond=None)[0]
        shared = np.asarray(found, np.float64)
    poses = [
        part[2] @ (each.own_slope - each.mixed.T @ shared) for part, each in zip(parts, blocks, strict=True)
    ]
    return shared, np.array(poses)


def first_camera(
    views: Sequence[View], points: Floats, size: tuple[int, int], fisheye: bool
) -> tuple[Problem, Solution]:
    """Fit one camera, from nothing: from several focal lengths, the best one on. Raises InputError."""
    problem = Problem(views, points, size, fisheye)
    best: tuple[float, Floats, Floats] | None = None
    for focal in FOCAL_LENGTHS * size[0]:
        lens = np.zeros(problem.width)
        lens[:4] = focal, focal, (size[0] - 1) / 2, (size[1] - 1) / 2
        poses = [_pose(problem, lens, view[0]) for view in views]
        known = [pose for pose in poses if pose is not None]
        if len(known) < len(views):
            continue
        solution, _ = problem.evaluate(lens, np.array(known), None)
        error = float(
            np.median([np.median(np.abs(each[0])) for each in solution.residuals if each[0] is not None])
        )
        if best is None or error < best[0]:
            best = error, lens, solution.poses
    if best is None:
        raise InputError("no cameras were found that could have seen the boards so")
    # The lens's distortion comes last: with all free at once, the poses of strong lenses run away.
    return problem, problem.solve(best[1], best[2], robust=True)


def _pose(problem: Problem, lens: Floats, corners: Corners | None) -> Floats | None:
    """(6,) of a board by the corners' directions; None: some are not ahead of such a lens."""
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


def both_cameras(
    views: Sequence[View], points: Floats, size: tuple[int, int], fisheye: bool
) -> tuple[Problem, Solution]:
    """Two cameras, from nothing, by robust weights. Raises InputError: no board is in both pictures."""
    alone = []
    for camera in (0, 1):
        mine = [(view[camera],) for view in views if view[camera] is not None]
        if not mine:
            raise InputError(f"the {('left', 'right')[camera]} camera saw no board")
        problem, solution = first_camera(mine, points, size, fisheye)
        places = iter(solution.poses)
        alone.append(
            (solution.shared, [next(places) if view[camera] is not None else None for view in views])
        )
    import cv2

    (left, lefts), (right, rights) = alone
    relative = []
    for one, two in zip(lefts, rights, strict=True):
        if one is not None and two is not None:
            r1, r2 = (cv2.Rodrigues(each[:3])[0] for each in (one, two))
            turn = r2 @ r1.T
            relative.append(np.concatenate([cv2.Rodrigues(turn)[0].ravel(), two[3:] - turn @ one[3:]]))
    if not relative:
        raise InputError("no board is in both pictures of any pair")
    rig = np.median(relative, axis=0)
    turn = cv2.Rodrigues(rig[:3])[0]
    poses = []
    for one, two in zip(lefts, rights, strict=True):
        if one is None:
            assert two is not None
            back = turn.T @ cv2.Rodrigues(two[:3])[0]
            one = np.concatenate([cv2.Rodrigues(back)[0].ravel(), turn.T @ (two[3:] - rig[3:])])
        poses.append(one)
    problem = Problem(views, points, size, fisheye)
    return problem, problem.solve(np.concatenate([left, right, rig]), np.array(poses), robust=True)


def without(views: Sequence[View], keep: Sequence[Sequence[NDArray[np.bool_] | None]]) -> list[View]:
    """The views without the corners that are not kept."""
    return [
        tuple(
            None if corners is None or kept is None or not kept.any() else corners.take(kept)
            for corners, kept in zip(view, mine, strict=True)
        )
        for view, mine in zip(views, keep, strict=True)
    ]
