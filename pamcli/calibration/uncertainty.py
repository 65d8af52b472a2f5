"""Uncertainty of a calibration: the jackknife over boards.

Corners of one board err together, for example if the board is bent, so whole boards are left out. The
standard deviation of any figure g is sqrt((n - 1) / n * sum of (g without board i - g)^2). Leaving a board
out needs no new fit: to first order, the normal equations tell how all parameters change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pamcli.calibration.bundle_adjustment import Problem, Solution, lens_matrix, root_mean_square
from pamcli.calibration.camera import Camera, make_rotation
from pamcli.calibration.geometry import Floats
from pamcli.calibration.rig import Rig

FAR = 20  # baselines, distance at which the uncertainty of depth is stated


def build_rig(shared: Floats, problem: Problem) -> Rig:
    """Return the rig (metres) of a solution's shared parameters. Raises InputError, as `Rig` does."""
    lenses = [problem.lens(shared, number) for number in (0, 1)]
    left, right = (Camera(lens_matrix(lens), lens[4:].copy(), problem.fisheye) for lens in lenses)
    return Rig(left, right, make_rotation(shared[-6:-3]), shared[-3:].copy(), problem.size)


def leave_out_each(solution: Solution) -> list[Floats]:
    """Return the shared parameters without each of the views, to first order."""
    parts = [each.eliminate_pose() for each in solution.blocks]
    normal = np.sum([part[0] for part in parts], axis=0)
    slope = np.sum([part[1] for part in parts], axis=0)
    return [
        solution.shared + np.linalg.lstsq(normal - part[0], slope - part[1], rcond=None)[0] for part in parts
    ]


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviation of each figure of a calibration."""

    focal: tuple[tuple[float, float], tuple[float, float]]  # px, fx and fy of the left and the right camera
    baseline: float  # m
    depth_middle: float  # relative error of the depth straight ahead, `FAR` baselines away
    depth_corners: float  # largest relative error of the depth at nine places of the image
    rows: float  # px, largest disagreement of rows at these places
    left_out_error: float  # px, reprojection error of boards that were left out of the fit


def estimate_uncertainty(problem: Problem, solution: Solution) -> Uncertainty:
    """Jackknife a solution for two cameras without robust weights and with at least three views."""
    without = leave_out_each(solution)
    rigs = [build_rig(each, problem) for each in (solution.shared, *without)]
    probe = _project_probe(rigs[0])
    figures = np.array([_compute_figures(rig, *probe) for rig in rigs])
    count = len(without)
    deviation = np.sqrt((count - 1) / count * np.sum((figures[1:] - figures[0]) ** 2, axis=0))
    f1, f2, f3, f4, baseline = map(float, deviation[:5])
    depths, rows = np.split(deviation[5:], 2)
    residuals: list[Floats | None] = []  # of each view, with its pose fitted to cameras that do not know it
    for number, shared in enumerate(without):
        alone = problem.with_views([problem.views[number]])
        fit = alone.solve(shared, solution.poses[number : number + 1], robust=False, fixed=True)
        residuals += fit.residuals[0]
    return Uncertainty(
        focal=((f1, f2), (f3, f4)),
        baseline=baseline,
        depth_middle=float(depths[len(depths) // 2]),
        depth_corners=float(depths.max()),
        rows=float(rows.max()),
        left_out_error=root_mean_square(residuals),
    )


def _project_probe(rig: Rig) -> tuple[Floats, Floats, float]:
    """Return pixels (9, 2) of both cameras of nine points at one distance, and that distance (m)."""
    assert rig.size is not None
    distance = FAR * rig.baseline
    across, down = np.meshgrid([0.08, 0.5, 0.92], [0.08, 0.5, 0.92])
    rays = rig.left.rays(np.column_stack([across.ravel(), down.ravel()]) * rig.size)
    rays = rays[rays[:, 2] > 0.17]  # within 80 degrees of the axis
    points = rays / rays[:, 2:] * distance
    right = points @ rig.rotation.T + rig.translation
    return rig.left.project(points), rig.right.project(right), distance


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
