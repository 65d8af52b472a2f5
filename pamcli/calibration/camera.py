"""Cameras in OpenCV's terms: one camera, two that are rectified, and one beside a depth map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.geometry import Calibration, Floats, Size, scale_point
from pamcli.errors import InputError

PIXELS_AT_ONCE = 1 << 15
LARGEST_FOOTPRINT = 32  # px, longest side of the area that a left pixel covers; larger ones are too near
SHARED_EDGE = 1e-6  # px, rounding of edges that neighbouring pixels share
BEYOND_VIEW = 0.02  # cosine; farther out, a lens model may fold back into the image
CALIBRATE = "calibrate both cameras together, for example with pam calibration make"


@dataclass(frozen=True, eq=False)
class Camera:
    """A pinhole or fisheye camera of OpenCV. Raises InputError for impossible values."""

    matrix: Floats  # (3, 3), px
    distortion: Floats  # (N,): k1 k2 p1 p2 [k3 ...] of a pinhole, k1 ... k4 of a fisheye; may be empty
    fisheye: bool = False

    def __post_init__(self) -> None:
        (fx, skew, _), (below, fy, _), last = self.matrix
        if not (fx > 0 and fy > 0 and skew == below == 0 and tuple(last) == (0, 0, 1)):
            raise InputError("must be a camera matrix [fx 0 cx; 0 fy cy; 0 0 1] with fx and fy above 0")
        if not (min(fx, fy) >= 0.1 and np.abs(self.matrix).max() <= 1e7):
            raise InputError(f"has focal lengths of {fx:g} and {fy:g} px, expected 0.1 to 1e7 px")
        if self.distortion.size and np.abs(self.distortion).max() > 1e6:
            raise InputError("has distortion coefficients above 1e6, expected far smaller ones")
        if len(self.distortion) not in ((0, 4) if self.fisheye else (0, 4, 5, 8, 12, 14)):
            known = "4" if self.fisheye else "4, 5, 8, 12 or 14"
            raise InputError(f"has {len(self.distortion)} distortion coefficients, expected {known}")

    @property
    def coefficients(self) -> Floats:
        return self.distortion if self.distortion.size else np.zeros(4)

    def rays(self, points: Floats) -> Floats:
        """Return unit directions (N, 3) of pixels (N, 2), z ahead; NaN where the model is not invertible."""
        import cv2

        if not self.fisheye:
            flat = cv2.undistortPoints(points.reshape(-1, 1, 2), self.matrix, self.distortion).reshape(-1, 2)
            for _ in range(3):  # refine OpenCV's result by Newton's method
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
        powers = np.stack([angles ** (3 + 2 * i) for i in range(4)])
        radii = angles + self.coefficients @ powers
        falls = np.flatnonzero(np.diff(radii) <= 0)
        known = slice(None, falls[0] + 1 if len(falls) else None)
        angle = np.interp(np.hypot(x, y), radii[known], angles[known], right=np.nan)
        around, out = np.arctan2(y, x), np.sin(angle)
        return np.column_stack([out * np.cos(around), out * np.sin(around), np.cos(angle)])

    def project(self, points: Floats) -> Floats:
        """Return pixels (N, 2) of points (N, 3) in camera coordinates, z ahead."""
        import cv2

        if not self.fisheye and not self.distortion.any():  # ten times as fast as OpenCV
            flat: Floats = points @ self.matrix.T
            return flat[:, :2] / flat[:, 2:]
        module: Any = cv2.fisheye if self.fisheye else cv2
        none, lens = np.zeros(3), (self.matrix, self.distortion)
        found: Floats = module.projectPoints(points.reshape(-1, 1, 3), none, none, *lens)[0].reshape(-1, 2)
        return found

    def field_of_view(self, size: Size) -> tuple[float, float]:
        """Return the degrees along the middle row and column of an image; NaN where unknown."""
        (width, height), (x, y) = size, self.matrix[:2, 2]
        edges = self.rays(np.array([(-0.5, y), (width - 0.5, y), (x, -0.5), (x, height - 0.5)]))
        # Sums of angles from the axis, because the angle between two rays cannot exceed 180 degrees.
        left, right, top, bottom = np.degrees(np.arctan2(np.hypot(edges[:, 0], edges[:, 1]), edges[:, 2]))
        return float(left + right), float(top + bottom)


@dataclass(frozen=True, eq=False)
class Projections:
    """Cameras of rectified images, K [I | t] (3, 4). Raises InputError for wrong rotations."""

    p1: Floats
    p2: Floats
    size: Size | None = None  # of the rectified images; None: that of the unrectified ones
    keys: tuple[str, str] = ("P1", "P2")
    ndisp: float | None = None
    stated: tuple[float, float] | None = None  # baseline and offset as stated, to the last digit
    rotations: Sequence[Floats] = ()  # R1, R2 (3, 3) from camera to rectified coordinates, if stated

    def __post_init__(self) -> None:
        for rotation in self.rotations:
            check_rotation(rotation, "a rectification matrix (R1, R2)")

    @classmethod
    def from_left(
        cls,
        matrix: Floats,
        baseline: float,
        offset: float = 0.0,
        size: Size | None = None,
        ndisp: float | None = None,
    ) -> Projections:
        """Build them from the left camera matrix (3, 3), the baseline, and right cx minus left cx."""
        p1 = np.column_stack([matrix, np.zeros(3)])
        p2 = p1.copy()
        p2[0, 2:] = matrix[0, 2] + offset, -matrix[0, 0] * baseline
        return cls(p1, p2, size, ("the left camera", "the right camera"), ndisp, (baseline, offset))

    def interpret(self, swapped: bool, scale: float) -> Projections:
        """Return them in metres, given those of one unit, and in the order of the user."""
        p1, p2 = (each * [1, 1, 1, scale] for each in (self.p1, self.p2))
        stated = self.stated and (scale * self.stated[0], self.stated[1])
        if not swapped:
            return replace(self, p1=p1, p2=p2, stated=stated)
        stated = stated and (-stated[0], -stated[1])
        keys, rotations = (self.keys[1], self.keys[0]), self.rotations[::-1]
        return replace(self, p1=p2, p2=p1, stated=stated, keys=keys, rotations=rotations)

    def with_baseline(self, metres: float) -> Projections:
        p2 = self.p2.copy()
        p2[0, 3] = self.p1[0, 3] - metres * self.p1[0, 0]
        return replace(self, p2=p2)

    def scale_images(self, x: float, y: float) -> Projections:
        p1, p2 = (scale_matrix(each, x, y) for each in (self.p1, self.p2))
        size = None if self.size is None else (round(self.size[0] * x), round(self.size[1] * y))
        return replace(self, p1=p1, p2=p2, size=size)

    def build_calibration(self) -> Calibration:
        """Build the calibration of rectified images. Raises InputError."""
        (p1, p2), keys = (self.p1, self.p2), self.keys
        fx, fy, f2 = float(p1[0, 0]), float(p1[1, 1]), float(p2[0, 0])
        if not min(fx, fy, f2) > 0:
            raise InputError(f"the focal lengths of {keys[0]} and {keys[1]} must be above 0", CALIBRATE)
        if abs(f2 - fx) > 1e-3 * fx:
            lengths = f"the same focal length for rectified images, got {fx:g} and {f2:g} px"
            raise InputError(f"{keys[0]} and {keys[1]} must have {lengths}", CALIBRATE)
        across, down = (p1[:2, 3] - p2[:2, 3]) / (fx, fy)
        if abs(down) > abs(across):
            raise InputError(f"the cameras must be side by side, but {keys[1]} is above or below {keys[0]}")
        found = replace(Calibration.from_projections(p1, p2, self.size), ndisp=self.ndisp)
        return replace(found, baseline=self.stated[0], offset=self.stated[1]) if self.stated else found


@dataclass(frozen=True, eq=False)
class OtherCamera:
    """A camera that sees the scene of a disparity map."""

    camera: Camera
    transform: Floats  # (4, 4) from left coordinates to those of this camera, m
    size: Size | None  # of its images; None: that of the disparity map, if rectified
    left_size: Size | None = None  # of the left images for which it is meant; None: any
    is_rectified: bool = False  # True if `transform` starts at the rectified left camera

    def scale_lengths(self, metres: float) -> OtherCamera:
        rotation, move = self.transform[:3, :3], self.transform[:3, 3]
        return replace(self, transform=make_transform(rotation, metres * move))

    def rotate_left(self, rotation: Floats) -> OtherCamera:
        """Return the camera for left images that were rectified by a rotation (3, 3), R1."""
        turned = self.transform @ make_transform(rotation.T, np.zeros(3))
        return replace(self, transform=turned, is_rectified=True)

    def align(
        self, disparity: NDArray[Any], calibration: Calibration
    ) -> tuple[NDArray[np.float32], Calibration]:
        """Return the map as this camera sees it, and the calibration that converts it to depth.

        Each left pixel covers a rectangle at its depth; where several overlap, the nearest one counts.

        Args:
            disparity: Disparity map (H, W) of the left image, px, NaN = unknown.
            calibration: Calibration of the rectified left image.

        Returns:
            Disparity map (height, width) of the other camera's size, float32, for the same baseline times
            focal length; unknown (NaN) where no left pixel is seen; and its calibration without offset.
        """
        rows, columns = disparity.shape
        left = calibration.for_size(columns, rows)
        width, height = size = self.size or (columns, rows)
        depth, nearest = left.depth(disparity), np.full(height * width, np.inf)
        along = np.linspace(0, 1, 17)
        border = [each for t in along for each in ((t, 0), (t, 1), (0, t), (1, t))]
        cosines = self.camera.rays(np.array(border) * size - 0.5)[:, 2]
        narrowest = float(np.nanmin(cosines, initial=1.0)) - BEYOND_VIEW
        at_once = max(1, PIXELS_AT_ONCE // columns)
        for first in range(0, rows, at_once):
            part = depth[first : first + at_once].astype(np.float64)
            down, across = np.nonzero(np.isfinite(part))
            z, points = part[down, across], []
            for x, y in ((0, 0), (0.5, 0), (0, 0.5)):  # the middle of a pixel, and those of two edges
                rays = np.column_stack([*left.locate(across + x, down + first + y, z), z])
                points.append(rays @ self.transform[:3, :3].T + self.transform[:3, 3])
            ahead = points[0][:, 2]
            seen = ahead > np.maximum(narrowest * np.linalg.norm(points[0], axis=1), 1e-6)
            seen &= np.min([each[:, 2] for each in points], axis=0) > 1e-6
            if not seen.any():
                continue
            middle, right, below = (self.camera.project(each[seen]) for each in points)
            half = np.abs(right - middle) + np.abs(below - middle)
            start, end = (np.ceil(middle + side * half - SHARED_EDGE) for side in (-1, 1))
            fits = ((end - start) <= LARGEST_FOOTPRINT).all(axis=1)
            start, end = (np.clip(each[fits], 0, size).astype(np.int64) for each in (start, end))
            sides = end - start
            counts = sides.prod(axis=1)
            each = np.repeat(np.arange(len(counts)), counts)
            inside = np.arange(len(each)) - np.repeat(np.cumsum(counts) - counts, counts)
            y, x = np.divmod(inside, sides[each, 0])
            indices = (start[each, 1] + y) * width + start[each, 0] + x
            np.minimum.at(nearest, indices, ahead[seen][fits][each])
        (fx, _, x), (_, fy, y), _ = self.camera.matrix.tolist()
        scale = left.focal_length * left.baseline
        found = np.where(np.isfinite(nearest), scale / nearest, np.nan).astype(np.float32)
        pinhole = Calibration(fx, scale / fx, 0.0, (x, y), size, None if fx == fy else fy)
        return found.reshape(height, width), pinhole


def make_rotation(vector: Floats) -> Floats:
    import cv2

    return np.asarray(cv2.Rodrigues(vector)[0], np.float64)


def make_transform(rotation: Floats, translation: Floats) -> Floats:
    """Return the rigid transform (4, 4) of a rotation (3, 3) and a translation (3,)."""
    return np.vstack([np.column_stack([rotation, translation]), [0.0, 0.0, 0.0, 1.0]])


def invert_transform(transform: Floats) -> Floats:
    rotation = transform[:3, :3].T
    return make_transform(rotation, -rotation @ transform[:3, 3])


def scale_matrix(matrix: Floats, x: float, y: float) -> Floats:
    """Return a camera matrix (3, 3) or projection (3, 4) for images x times as wide and y times as high."""
    scaled: Floats = matrix * [[x], [y], [1]]
    scaled[:2, 2] = scale_point((matrix[0, 2], matrix[1, 2]), x, y)
    return scaled


def pinhole_matrix(fx: float, fy: float, x: float, y: float) -> Floats:
    return np.array([[fx, 0, x], [0, fy, y], [0, 0, 1.0]])


def check_rotation(rotation: Floats, name: str) -> None:
    """Raise InputError with a name if a matrix (3, 3) deviates from a rotation by more than 0.001."""
    with np.errstate(all="ignore"):
        error = np.abs(rotation @ rotation.T - np.eye(3)).max()
    if not (error < 1e-3 and np.linalg.det(rotation) > 0):  # also true for NaN
        raise InputError(f"{name} must be a rotation matrix")
