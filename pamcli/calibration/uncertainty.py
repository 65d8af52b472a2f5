"""Uncertainty of a calibration, by leaving boards out: the jackknife over boards.

Corners of one board err together (it is bent, it was moving), so boards are what is left out, not corners.
The deviation of any figure g of the calibration is sqrt((n - 1) / n * sum of (g without board i - g)^2). A
calibration without a board takes no new fit: the blocks of `fitting` say to first order how all parameters
move when one board's contribution goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pamcli.calibration.camera import Camera
from pamcli.calibration.fitting import Problem, Solution, reduced, rms
from pamcli.calibration.rectified import Floats
from pamcli.calibration.rig import Rig

FAR = 20
"""Baselines: the distance at which depth is looked at."""


def rig_of_shared(shared: Floats, problem: Problem) -> Rig:
    """The rig of a solution's shared parameters, metres. Raises InputError: cameras exchanged, for one."""
    import cv2

    cameras = []
    for number in (0, 1):
        lens = problem.lens(shared, number)
        matrix = np.array([[lens[0], 0, lens[2]], [0, lens[1], lens[3]], [0, 0, 1]])
        cameras.append(Camera(matrix, lens[4:].copy(), problem.fisheye))
    return Rig(cameras[0], cameras[1], cv2.Rodrigues(shared[-6:-3])[0], shared[-3:].copy(), problem.size)


def left_out(solution: Solution) -> list[Floats]:
    """The shared parameters as they would be without each of the views."""
    parts = [reduced(each) for each in solution.blocks]
    normal = np.sum([part[0] for part in parts], axis=0)
    slope = np.sum([part[1] for part in parts], axis=0)
    return [
        solution.shared + np.linalg.lstsq(normal - part[0], slope - part[1], rcond=None)[0] for part in parts
    ]


def deviations(whole: Floats, without: Sequence[Floats]) -> Floats:
    """(K,): one standard deviation of each figure, from those of the fits that leave a board out."""
    count = len(without)
    found: Floats = np.sqrt((count - 1) / count * np.sum((np.array(without) - whole) ** 2, axis=0))
    return found


@dataclass(frozen=True)
class Uncertainty:
    """Uncertainty of a calibration, as one standard deviation of each figure."""

    focal: tuple[tuple[float, float], tuple[float, float]]
    """fx and fy of the left and of the right camera, pixels."""
    baseline: float
    """Metres."""
    depth_middle: float
    """Share of the depth of a thing ahead that is `FAR` baselines away."""
    depth_corners: float
    """Largest share of the depth at nine places of the picture, at that distance."""
    rows: float
    """Pixels by which rows may disagree, where most of the nine."""
    left_out_error: float
    """Pixels: reprojection error (root mean square) of boards that the cameras were not fitted to."""


def uncertainty(problem: Problem, solution: Solution) -> Uncertainty:
    """Jackknife a stereo solution without robust weights, with three views at least."""
    shared = left_out(solution)
    rigs = [rig_of_shared(each, problem) for each in (solution.shared, *shared)]
    look = _probe(rigs[0])
    figures = [_figures(rig, look) for rig in rigs]
    found = deviations(figures[0], figures[1:])
    count = (len(found) - 5) // 2
    depths, rows = found[5 : 5 + count], found[5 + count :]
    return Uncertainty(
        ((float(found[0]), float(found[1])), (float(found[2]), float(found[3]))),
        float(found[4]),
        float(depths[count // 2]),
        float(depths.max()),
        float(rows.max()),
        _held_out(problem, solution, shared),
    )


Probe = tuple[Floats, Floats, float]


def _probe(rig: Rig) -> Probe:
    """Pixels of both cameras that see nine things at the same distance, (9, 2) each, and that distance."""
    assert rig.size is not None
    distance = FAR * rig.baseline
    across, down = np.meshgrid([0.08, 0.5, 0.92], [0.08, 0.5, 0.92])
    pixels = np.column_stack([across.ravel(), down.ravel()]) * rig.size
    rays = rig.left.rays(pixels)
    rays = rays[rays[:, 2] > 0.17]  # within 80 degrees
    points = rays / rays[:, 2:] * distance
    right = points @ rig.rotation.T + rig.translation
    return rig.left.project(points), rig.right.project(right), distance


def _figures(rig: Rig, probe: Probe) -> Floats:
    """Focal lengths, baseline, share of the probe's depths, and pixels between its rows, rectified."""
    left, right, distance = probe
    one, two = rig.left.rays(left), rig.right.rays(right) @ rig.rotation
    # Where the rays pass each other nearest, along the left one; with the baseline both lie in one plane, but
    # for what the rows are off.
    center = rig.center
    cross = (one * two).sum(axis=1)
    along = ((one @ center) - cross * (two @ center)) / (1 - cross**2)
    depth = along * one[:, 2] / distance
    normal = np.cross(center / np.linalg.norm(center), one)
    apart = (normal / np.linalg.norm(normal, axis=1, keepdims=True) * two).sum(axis=1) * rig.left.matrix[1, 1]
    focal = [camera.matrix[at] for camera in (rig.left, rig.right) for at in ((0, 0), (1, 1))]
    return np.concatenate([focal, [rig.baseline], depth, apart])


def _held_out(problem: Problem, solution: Solution, without: Sequence[Floats]) -> float:
    """Root mean square residual of each view, its pose alone fitted to cameras that do not know it."""
    found: list[Floats | None] = []
    for number, shared in enumerate(without):
        view = [problem.views[number]]
        one = Problem(view, problem.points, problem.size, problem.fisheye)
        found += one.solve(shared, solution.poses[number : number + 1], robust=False, fixed=True).residuals[0]
    return rms(found)
