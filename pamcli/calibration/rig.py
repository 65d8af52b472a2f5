"""Two cameras as they stand, and what makes their pictures rectified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pamcli.calibration.rectified import (
    EXCHANGE,
    Calibration,
    Floats,
    Pixels,
    has_aspect,
    require_alike,
    scaled_point,
    scales,
)
from pamcli.errors import InputError

DISTORTIONS = (0, 4, 5, 8, 12, 14)  # numbers of coefficients of OpenCV's pinhole models
LARGEST_SIDE = 32766  # of a picture that OpenCV remaps
MOST_EMPTY = 0.5  # share of a rectified image that no camera saw
MOST_ZOOM = 10.0  # times the focal length of the camera
FISHEYE_LIMIT = 160.0  # degrees that a rectified fisheye spans at most: towards 180 its middle becomes a dot


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
        if len(self.distortion) not in ((0, 4) if self.fisheye else DISTORTIONS):
            known = "4" if self.fisheye else ", ".join(map(str, DISTORTIONS[1:-1])) + " or 14"
            raise InputError(f"has {len(self.distortion)} coefficients of distortion, not {known}")

    def rays(self, points: Floats) -> Floats:
        """Directions (N, 3) of length 1 in which pixels (N, 2) look, z ahead; NaN where the model ends."""
        import cv2

        if not self.fisheye:
            flat = cv2.undistortPoints(points.reshape(-1, 1, 2), self.matrix, self.distortion).reshape(-1, 2)
            for _ in range(3):  # OpenCV stops early: Newton's method on what it projects
                steps = [flat + step for step in ((0, 0), (1e-6, 0), (0, 1e-6))]
                there = [self.project(np.column_stack([step, np.ones(len(flat))])) for step in steps]
                slope = np.stack([(there[1] - there[0]) / 1e-6, (there[2] - there[0]) / 1e-6], axis=-1)
                flat = flat + (np.linalg.pinv(slope) @ (points - there[0])[..., None])[..., 0]
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
        left, right = (_scaled(projection, x, y) for projection in self.projections)
        size = None if self.size is None else (round(self.size[0] * x), round(self.size[1] * y))
        return replace(self, projections=(left, right), size=size)


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
    others: tuple[Rig, ...] = ()
    """Rigs for pictures of other sizes from these cameras, which are not these scaled: cut out."""
    stated: StatedRectification | None = None
    """None: the file says nothing of how its pictures are rectified."""
    right_size: tuple[int, int] | None = None
    """(width, height) of the right images; None = `size`."""

    def __post_init__(self) -> None:
        check_rotation(self.rotation, "R is no rotation")
        if not 1e-7 < np.linalg.norm(self.translation) < 1e7 and self.translation.any():
            raise InputError(f"the baseline is {self.baseline:g} m, which cannot be")
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
                f"the baseline is {across:g} m: the right camera stands to the left of the left one", EXCHANGE
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

    @property
    def sizes(self) -> tuple[tuple[int, int] | None, ...]:
        """Sizes (width, height) of pictures for which nothing needs to be scaled."""
        return self.size, *(each.size for each in self.others)

    def as_fisheye(self) -> Rig:
        """Read the coefficients as those of OpenCV's fisheye model. Raises InputError: they cannot be."""
        left, right = (replace(camera, fisheye=True) for camera in (self.left, self.right))
        return replace(self, left=left, right=right, others=tuple(each.as_fisheye() for each in self.others))

    def with_baseline(self, metres: float) -> Rig:
        """Move the cameras to another distance, along the direction in which they stand."""
        others = tuple(each.with_baseline(metres) for each in self.others)
        translation = self.translation * (metres / self.baseline)
        stated = self.stated and self.stated.with_baseline(metres)
        return replace(self, translation=translation, others=others, stated=stated)

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

    def for_size(self, width: int, height: int, right: tuple[int, int] | None = None) -> Rig:
        """Return these cameras with images of another size. right: (width, height) of the right ones.

        Raises InputError: another aspect, perhaps that of the pictures that the file's rectification makes;
        a size that several calibrations could be scaled to.
        """
        other = None if right == (width, height) else right
        for each in (self, *self.others):
            known = right is None or (each.right_size or each.size) == right
            if each.size is None or (each.size == (width, height) and known):
                return replace(each, size=(width, height), right_size=other or each.right_size, others=())
        assert self.size is not None
        made = self.stated.size if self.stated else None
        if made and has_aspect(made, width, height) and not has_aspect(self.size, width, height):
            raise InputError(
                f"pictures of {width} x {height} pixels are rectified already: by the calibration those of "
                f"the cameras have {self.size[0]} x {self.size[1]}, rectified ones {made[0]} x {made[1]}",
                "take them as they are",
            )
        x, y = scales(self.size, width, height)
        lenses = [(each.size, float(each.left.matrix[0, 0])) for each in (self, *self.others)]
        require_alike(lenses, width, height)
        second = self.right_size or self.size
        if right is None and self.right_size:
            right = other = round(second[0] * x), round(second[1] * y)
        x2, y2 = (x, y) if right is None else scales(second, *right)
        first = replace(self.left, matrix=_scaled(self.left.matrix, x, y))
        last = replace(self.right, matrix=_scaled(self.right.matrix, x2, y2))
        stated = self.stated and self.stated.for_scale(x, y)
        return replace(
            self, left=first, right=last, size=(width, height), right_size=other, others=(), stated=stated
        )

    def rectification(
        self, *, alpha: float | None = None, size: tuple[int, int] | None = None, fov: float | None = None
    ) -> Rectification:
        """What rectifies pictures of `self.size`: as the file states where none of the options is given.

        alpha: 0, the default where nothing is stated = only pixels that the picture and its rectified one
        both have, 1 = all of the picture, with black around them; of a fisheye 0 keeps the scale of its
        middle, 1 is all within 160 degrees. size: (width, height) of the rectified pictures, by default that
        of the pictures. fov: degrees that they span from left to right, below 180, instead of what follows
        from alpha. Raises InputError where OpenCV finds no such picture.
        """
        import cv2

        assert self.size is not None
        stated = self.stated if (alpha, size, fov) == (None, None, None) else None
        size = size or (stated and stated.size) or self.size
        if max(*self.size, *size) > LARGEST_SIDE:
            raise InputError(f"pictures of more than {LARGEST_SIDE} px a side cannot be rectified")
        none = np.zeros(4)
        (k1, d1), (k2, d2) = (
            (camera.matrix, camera.distortion if camera.distortion.size else none)
            for camera in (self.left, self.right)
        )
        module = cv2.fisheye if self.left.fisheye else cv2
        try:
            if stated is not None:
                (r1, r2), (p1, p2) = stated.rotations, stated.projections
            else:
                x, y = np.array(self.size) / (
                    self.right_size or self.size
                )  # as if both had the left one's size
                r1, r2, p1, p2 = self._turned(k1, d1, _scaled(k2, x, y), d2, alpha or 0.0, size)
            if fov is not None:
                zoom = size[0] / 2 / np.tan(np.radians(fov) / 2) / p1[0, 0]
                middle = (np.array([size]).T - 1) / 2
                for p in (p1, p2):
                    p[:2] *= zoom
                    p[:2, 2:3] += (1 - zoom) * middle
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
        if fov is None and not (self.left.fisheye and alpha):  # views that are asked for as they come
            self._require_view(maps, p1, size)
        left, right = (
            partial(cv2.remap, map1=map1, map2=map2, interpolation=cv2.INTER_LINEAR) for map1, map2 in maps
        )
        points = [
            partial(_rectified_points, camera=camera, turn=r, projection=p)
            for camera, r, p in ((self.left, r1, p1), (self.right, r2, p2))
        ]
        return Rectification(left, right, Calibration.of(p1, p2, size), points[0], points[1])

    def _require_view(self, maps: Sequence[tuple[Pixels, Pixels]], p1: Floats, size: tuple[int, int]) -> None:
        """Raise InputError where rectified images are mostly empty, or hardly anything is left of the cameras'."""
        assert self.size is not None
        turned = f"the cameras are turned by {self.angle:.0f} degrees to each other"
        hint = "check R and T (pam doctor LEFT RIGHT --calibration FILE); `fov` states the angle to rectify"
        zoom = float(p1[0, 0] / self.left.matrix[0, 0] * self.size[0] / size[0])
        if zoom > MOST_ZOOM:
            raise InputError(f"rectified images would be magnified {zoom:.0f} times: {turned}", hint)
        for name, (places, _), (width, height) in zip(
            ("left", "right"), maps, (self.size, self.right_size or self.size), strict=True
        ):
            x, y = places[::4, ::4, 0], places[::4, ::4, 1]
            empty = 1 - float(np.mean((x >= 0) & (y >= 0) & (x < width) & (y < height)))
            if empty > MOST_EMPTY:
                said = f"the rectified {name} image would be {100 * empty:.0f} % empty: {turned}"
                raise InputError(said, hint)

    def _turned(
        self, k1: Floats, d1: Floats, k2: Floats, d2: Floats, alpha: float, size: tuple[int, int]
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """R1, R2 (3, 3) and P1, P2 (3, 4) of OpenCV's rectification. Raises cv2.error."""
        import cv2

        rotation = np.ascontiguousarray(self.rotation, np.float64)
        there = np.array(self.translation, np.float64).reshape(3, 1)
        view: dict[str, Any] = {"newImageSize": size, "flags": cv2.CALIB_ZERO_DISPARITY, "alpha": alpha}
        if not self.left.fisheye:
            r1, r2, p1, p2, *_ = cv2.stereoRectify(k1, d1, k2, d2, self.size, rotation, there, **view)
            return r1, r2, p1, p2
        # The turns do not depend on the lenses. The focal length that OpenCV chooses for fisheyes is of no
        # use from 120 degrees on: of a lens of 160 it shows the middle at a third of the resolution.
        none = np.zeros(4)
        r1, r2, *_ = cv2.stereoRectify(k1, none, k2, none, self.size, rotation, there, **view)
        focal, x, y = self._focal(r1, r2, alpha, size)
        p1 = np.array([[focal, 0, x, 0], [0, focal, y, 0], [0, 0, 1, 0]])
        p2 = p1.copy()
        p2[0, 3] = -focal * self.baseline
        return r1, r2, p1, p2

    def _focal(
        self, r1: Floats, r2: Floats, alpha: float, size: tuple[int, int]
    ) -> tuple[float, float, float]:
        """Find the focal length of rectified fisheyes, and x and y of their principal point, pixels.

        Between that of the lens, at which nothing is magnified in the middle and no corner is black, and the
        one at which all within FISHEYE_LIMIT is seen.
        """
        assert self.size is not None
        width, height = self.size
        along = np.linspace(0, 1, 65)
        grid = np.stack(np.meshgrid(along, along), axis=-1)
        border = np.concatenate([grid[0], grid[-1], grid[:, 0], grid[:, -1]])
        points = np.vstack([[[0.5, 0.5]], border]) * (width - 1, height - 1)
        middles, reach = [], np.zeros(2)
        for camera, turn in ((self.left, r1), (self.right, r2)):
            rays = camera.rays(points) @ turn.T
            middles.append(rays[0, :2] / rays[0, 2])
            angles = np.arctan2(np.abs(rays[1:, :2]), rays[1:, 2:])
            reach = np.maximum(reach, np.nan_to_num(angles, nan=np.pi).max(axis=0))
        widest = np.tan(np.minimum(reach, np.radians(FISHEYE_LIMIT / 2)))
        lens = np.mean([camera.matrix[0, 0] for camera in (self.left, self.right)]) * size[0] / width
        whole = min(lens, *((np.array(size) / 2) / widest))
        focal = float(lens + alpha * (whole - lens))
        x, y = (np.array(size) - 1) / 2 - focal * np.mean(middles, axis=0)
        return focal, float(x), float(y)


def rotation_of(vector: Floats) -> Floats:
    """(3, 3) about the direction of a vector (3,), by its length in radians (Rodrigues)."""
    import cv2

    rotation: Floats = cv2.Rodrigues(vector)[0]
    return rotation


def _rectified_points(points: Floats, *, camera: Camera, turn: Floats, projection: Floats) -> Floats:
    rays = camera.rays(points) @ turn.T
    rays[rays[:, 2] <= 0] = np.nan  # behind the rectified camera
    flat = rays[:, :2] / rays[:, 2:]
    return flat * projection[[0, 1], [0, 1]] + projection[:2, 2]


@dataclass(frozen=True)
class Rectification:
    """What makes rectified pictures of a rig's: (H, W) or (H, W, C), uint8 or uint16, black outside."""

    left: Callable[[Pixels], Pixels]
    right: Callable[[Pixels], Pixels]
    calibration: Calibration | None
    """Calibration of the rectified pictures; None where their scale is not known."""
    left_points: Callable[[Floats], Floats] | None = None
    """Places (N, 2) of left pixels (N, 2) in the rectified picture, NaN: nowhere; None: not known."""
    right_points: Callable[[Floats], Floats] | None = None
    """Places of right pixels, as `left_points`."""


def _scaled(matrix: Floats, x: float, y: float) -> Floats:
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
