"""Two cameras as they stand, and what makes their pictures rectified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.rectified import Calibration, scaled_point, scales
from pamcli.errors import InputError

Floats = NDArray[np.float64]
Pixels = NDArray[Any]

DISTORTIONS = (0, 4, 5, 8, 12, 14)  # numbers of coefficients of OpenCV's pinhole models
LARGEST_SIDE = 32766  # of a picture that OpenCV remaps


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
        if len(self.distortion) not in ((0, 4) if self.fisheye else DISTORTIONS):
            known = "4" if self.fisheye else ", ".join(map(str, DISTORTIONS[1:-1])) + " or 14"
            raise InputError(f"has {len(self.distortion)} coefficients of distortion, not {known}")

    def for_scale(self, x: float, y: float) -> Camera:
        matrix = self.matrix * [[x], [y], [1]]
        matrix[:2, 2] = scaled_point((self.matrix[0, 2], self.matrix[1, 2]), x, y)
        return replace(self, matrix=matrix)


@dataclass(frozen=True, eq=False)
class Rig:
    """Both cameras: a point x of the left one's coordinates is rotation @ x + translation in the right one's.

    Raises InputError: no rotation, no distance, cameras exchanged or above each other, unlike models.
    """

    left: Camera
    right: Camera
    rotation: Floats
    """(3, 3)."""
    translation: Floats
    """(3,), metres."""
    size: tuple[int, int] | None = None
    """(width, height) of the pictures; None = not known."""

    def __post_init__(self) -> None:
        with np.errstate(all="ignore"):  # of numbers far from any rotation's
            error = np.abs(self.rotation @ self.rotation.T - np.eye(3)).max()
        if not (error < 1e-3 and np.linalg.det(self.rotation) > 0):  # also true for NaN
            raise InputError("R is no rotation")
        if not np.linalg.norm(self.translation) > 0:
            raise InputError("T is zero: both cameras stand in one place")
        if self.left.fisheye != self.right.fisheye:
            raise InputError("one camera is a fisheye and the other one is none")
        across, down, ahead = self.center
        if abs(across) <= max(abs(down), abs(ahead)):
            raise InputError(
                f"the right camera stands at x {across:g}, y {down:g}, z {ahead:g} m, not beside the left one"
            )
        if across < 0:
            raise InputError(
                f"the baseline is {across:g} m: the right camera stands to the left of the left one",
                "exchange the two cameras",
            )

    @property
    def center(self) -> Floats:
        """(3,): where the right camera stands in the left one's coordinates, metres."""
        return -self.rotation.T @ self.translation

    @property
    def baseline(self) -> float:
        """Metres."""
        return float(np.linalg.norm(self.translation))

    @property
    def angle(self) -> float:
        """Degrees between the directions of the cameras, rolls included."""
        return float(np.degrees(np.arccos(np.clip((np.trace(self.rotation) - 1) / 2, -1, 1))))

    def as_fisheye(self) -> Rig:
        """The same cameras, their coefficients those of OpenCV's fisheye model. Raises InputError."""
        return replace(self, left=replace(self.left, fisheye=True), right=replace(self.right, fisheye=True))

    def with_baseline(self, metres: float) -> Rig:
        """The same directions, another distance."""
        return replace(self, translation=self.translation * (metres / self.baseline))

    def rectified(self) -> Calibration | None:
        """The calibration of the pictures as they are, where the cameras are ideal and parallel."""
        (left, right), center = (camera.matrix for camera in (self.left, self.right)), self.center
        straight = not (self.left.fisheye or self.left.distortion.any() or self.right.distortion.any())
        aligned = (
            np.abs(self.rotation - np.eye(3)).max() < 1e-6 and np.abs(center[1:]).max() < 1e-6 * center[0]
        )
        if not (
            straight
            and aligned
            and np.allclose(left[:, [0, 1]], right[:, [0, 1]])
            and left[1, 2] == right[1, 2]
        ):
            return None
        fx, fy, x, y = (float(left[i]) for i in ((0, 0), (1, 1), (0, 2), (1, 2)))
        offset = float(right[0, 2]) - x
        return Calibration(fx, float(center[0]), offset, (x, y), self.size, None if fx == fy else fy)

    def for_size(self, width: int, height: int) -> Rig:
        """The same cameras with pictures of another size. Raises InputError: another aspect."""
        if self.size is None or self.size == (width, height):
            return replace(self, size=(width, height))
        x, y = scales(self.size, width, height)
        return replace(
            self, left=self.left.for_scale(x, y), right=self.right.for_scale(x, y), size=(width, height)
        )

    def rectification(self, *, alpha: float = 0.0, size: tuple[int, int] | None = None) -> Rectification:
        """What rectifies pictures of `self.size`.

        alpha: 0 = only pixels that the picture and its rectified one both have, 1 = all of the picture,
        with black around them. size: (width, height) of the rectified pictures, by default that of the
        pictures. Raises InputError where OpenCV finds no such picture.
        """
        import cv2

        assert self.size is not None
        size = size or self.size
        if max(*self.size, *size) > LARGEST_SIDE:
            raise InputError(f"pictures of more than {LARGEST_SIDE} px a side cannot be rectified")
        none = np.zeros(4)
        (k1, d1), (k2, d2) = (
            (camera.matrix, camera.distortion if camera.distortion.size else none)
            for camera in (self.left, self.right)
        )
        module = cv2.fisheye if self.left.fisheye else cv2
        view: dict[str, object] = {"newImageSize": size, "flags": cv2.CALIB_ZERO_DISPARITY}
        view |= {"balance": alpha, "fov_scale": 1.0} if self.left.fisheye else {"alpha": alpha}
        try:
            r1, r2, p1, p2, *_ = module.stereoRectify(
                k1, d1, k2, d2, self.size, self.rotation, self.translation.reshape(3, 1), **view
            )
            maps = [
                module.initUndistortRectifyMap(k, d, r, p[:, :3], size, cv2.CV_16SC2)
                for k, d, r, p in ((k1, d1, r1, p1), (k2, d2, r2, p2))
            ]
        except cv2.error as error:
            raise InputError(
                "the cameras cannot be rectified", "are R, T and the distortion theirs?"
            ) from error
        if not (np.isfinite([p1, p2]).all() and p1[0, 0] > 0):
            raise InputError(
                "the cameras cannot be rectified: nothing is left of their pictures", "try `alpha` 1"
            )
        left, right = (
            partial(cv2.remap, map1=map1, map2=map2, interpolation=cv2.INTER_LINEAR) for map1, map2 in maps
        )
        return Rectification(left, right, Calibration.of(p1, p2, size))


def rotation_of(vector: Floats) -> Floats:
    """(3, 3) about the direction of a vector (3,), by its length in radians (Rodrigues)."""
    import cv2

    rotation: Floats = cv2.Rodrigues(vector)[0]
    return rotation


@dataclass(frozen=True)
class Rectification:
    """What makes rectified pictures of a rig's: (H, W) or (H, W, C), uint8 or uint16, black outside."""

    left: Callable[[Pixels], Pixels]
    right: Callable[[Pixels], Pixels]
    calibration: Calibration | None
    """Of the rectified pictures; None where their scale is not known."""
