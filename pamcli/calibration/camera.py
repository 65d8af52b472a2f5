"""One camera of a pair in OpenCV's terms, and how a file says that its images become rectified ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pamcli.calibration.rectified import Floats, scaled_point
from pamcli.errors import InputError

DISTORTIONS = (0, 4, 5, 8, 12, 14)  # numbers of coefficients of OpenCV's pinhole models


@dataclass(frozen=True, eq=False)
class Camera:
    """Pinhole or fisheye, in OpenCV's terms. Raises InputError for numbers that describe no camera."""

    matrix: Floats
    """(3, 3), pixels."""
    distortion: Floats
    """(N,): k1 k2 p1 p2 [k3 ...] of a pinhole, k1 ... k4 of a fisheye (equidistant); empty = none."""
    fisheye: bool = False

    def __post_init__(self) -> None:
        (fx, skew, _), (below, fy, _), last = self.matrix
        if not (fx > 0 and fy > 0 and skew == below == 0 and tuple(last) == (0, 0, 1)):
            raise InputError("is no camera matrix fx 0 cx, 0 fy cy, 0 0 1")
        if not (min(fx, fy) >= 0.1 and np.abs(self.matrix).max() <= 1e7):
            raise InputError(f"has a focal length of {fx:g} px and {fy:g} px, which cannot be")
        if self.distortion.size and np.abs(self.distortion).max() > 1e6:
            raise InputError("has coefficients of distortion of more than a million, which cannot be")
        if len(self.distortion) not in ((0, 4) if self.fisheye else DISTORTIONS):
            known = "4" if self.fisheye else ", ".join(map(str, DISTORTIONS[1:-1])) + " or 14"
            raise InputError(f"has {len(self.distortion)} coefficients of distortion, not {known}")

    @property
    def coefficients(self) -> Floats:
        """Coefficients of distortion as OpenCV takes them, 4 at least."""
        return self.distortion if self.distortion.size else np.zeros(4)

    def rays(self, points: Floats) -> Floats:
        """Directions (N, 3) of length 1 in which pixels (N, 2) look, z ahead; NaN where the model ends."""
        import cv2

        if not self.fisheye:
            flat = cv2.undistortPoints(points.reshape(-1, 1, 2), self.matrix, self.distortion).reshape(-1, 2)
            for _ in range(3):  # OpenCV stops early: Newton's method on what it projects
                steps = [flat + step for step in ((0, 0), (1e-6, 0), (0, 1e-6))]
                there = [self.project(np.column_stack([step, np.ones(len(flat))])) for step in steps]
                slope = np.stack([(there[1] - there[0]) / 1e-6, (there[2] - there[0]) / 1e-6], axis=-1)
                finite = np.isfinite(slope).all(axis=(1, 2)) & np.isfinite(there[0]).all(axis=1)
                flat[finite] += (np.linalg.pinv(slope[finite]) @ (points - there[0])[finite, :, None])[..., 0]
            rays = np.column_stack([flat, np.ones(len(flat))])
            found: Floats = rays / np.linalg.norm(rays, axis=1, keepdims=True)
            return found
        x, y = ((points - self.matrix[:2, 2]) / self.matrix[[0, 1], [0, 1]]).T
        angles = np.linspace(0, np.pi, 4097)
        powers = np.stack([angles ** (3 + 2 * i) for i in range(len(self.distortion))] or [0 * angles])
        radii = angles + (self.distortion @ powers if self.distortion.size else 0)
        falls = np.flatnonzero(np.diff(radii) <= 0)
        known = slice(None, falls[0] + 1 if len(falls) else None)
        angle = np.interp(np.hypot(x, y), radii[known], angles[known], right=np.nan)
        around = np.arctan2(y, x)
        return np.column_stack(
            [np.sin(angle) * np.cos(around), np.sin(angle) * np.sin(around), np.cos(angle)]
        )

    def project(self, points: Floats) -> Floats:
        """Pixels (N, 2) in which it sees points (N, 3) of its coordinates, ahead of it."""
        import cv2

        module = cv2.fisheye if self.fisheye else cv2
        there, zero = points.reshape(-1, 1, 3), np.zeros(3)
        found: Floats = module.projectPoints(there, zero, zero, self.matrix, self.distortion)[0]
        return found.reshape(-1, 2)

    def field_of_view(self, size: tuple[int, int]) -> tuple[float, float]:
        """Degrees that a picture of (width, height) spans along its middle row and column; NaN: not known."""
        (width, height), (x, y) = size, self.matrix[:2, 2]
        edges = self.rays(np.array([(-0.5, y), (width - 0.5, y), (x, -0.5), (x, height - 0.5)]))
        # From the axis to either edge: the angle between the edges themselves would never exceed 180 degrees.
        left, right, top, bottom = np.degrees(np.arctan2(np.hypot(edges[:, 0], edges[:, 1]), edges[:, 2]))
        return float(left + right), float(top + bottom)


@dataclass(frozen=True, eq=False)
class StatedRectification:
    """How the pictures of a rig become rectified ones, as its file says. Raises InputError: no rotations."""

    rotations: tuple[Floats, Floats]
    """(3, 3) of the left and of the right camera: from its coordinates to the rectified ones."""
    projections: tuple[Floats, Floats]
    """(3, 4) of both: from rectified coordinates to rectified pixels."""
    size: tuple[int, int] | None = None
    """(width, height) of the rectified pictures; None = that of the pictures."""

    def __post_init__(self) -> None:
        for rotation in self.rotations:
            check_rotation(rotation, "what rectifies a camera's pictures is no rotation")

    def exchanged(self) -> StatedRectification:
        """Exchange the cameras: what was the right one is the left one."""
        return replace(self, rotations=self.rotations[::-1], projections=self.projections[::-1])

    def in_metres(self, scale: float) -> StatedRectification:
        """Copy it with projections in metres. scale: metres per unit."""
        left, right = (each * [1, 1, 1, scale] for each in self.projections)
        return replace(self, projections=(left, right))

    def with_baseline(self, metres: float) -> StatedRectification:
        """Copy it for cameras at another distance."""
        left, right = self.projections
        right = right.copy()
        right[0, 3] = left[0, 3] - metres * left[0, 0]
        return replace(self, projections=(left, right))

    def for_scale(self, x: float, y: float) -> StatedRectification:
        """Copy it for pictures x times as wide and y times as high."""
        left, right = (scale_matrix(projection, x, y) for projection in self.projections)
        size = None if self.size is None else (round(self.size[0] * x), round(self.size[1] * y))
        return replace(self, projections=(left, right), size=size)


def rotation_of(vector: Floats) -> Floats:
    """(3, 3) about the direction of a vector (3,), by its length in radians (Rodrigues)."""
    import cv2

    rotation: Floats = cv2.Rodrigues(vector)[0]
    return rotation


def scale_matrix(matrix: Floats, x: float, y: float) -> Floats:
    """A camera matrix (3, 3) or projection (3, 4) for pictures x times as wide and y times as high."""
    scaled: Floats = matrix * [[x], [y], [1]]
    scaled[:2, 2] = scaled_point((matrix[0, 2], matrix[1, 2]), x, y)
    return scaled


def check_rotation(rotation: Floats, said: str) -> None:
    """Raise InputError with what is said where a matrix (3, 3) is no rotation, to a thousandth."""
    with np.errstate(all="ignore"):  # of numbers far from any rotation's
        error = np.abs(rotation @ rotation.T - np.eye(3)).max()
    if not (error < 1e-3 and np.linalg.det(rotation) > 0):  # also true for NaN
        raise InputError(said)
