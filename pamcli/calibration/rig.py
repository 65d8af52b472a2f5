"""Two cameras as they stand, and what makes their pictures rectified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera, StatedRectification, check_rotation, scale_matrix
from pamcli.calibration.rectified import (
    EXCHANGE,
    Calibration,
    Floats,
    Pixels,
    has_aspect,
    require_alike,
    scales,
)
from pamcli.errors import InputError

LARGEST_SIDE = 32766  # of a picture that OpenCV remaps
UNDEFINED = "the cameras cannot be rectified", "are R, T and the distortion theirs?"
MOST_EMPTY = 0.5  # share of a rectified image that no camera saw
MOST_ZOOM = 10.0  # times the focal length of the camera
FISHEYE_LIMIT = 160.0  # degrees that a rectified fisheye spans at most: towards 180 its middle becomes a dot


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
                f"the baseline is {across:g} m: the right camera stands to the left of the left one",
                f"{EXCHANGE}; or `extrinsics` pose, where R and T are the pose of the right camera",
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
        first = replace(self.left, matrix=scale_matrix(self.left.matrix, x, y))
        last = replace(self.right, matrix=scale_matrix(self.right.matrix, x2, y2))
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
        from alpha. Raises InputError where OpenCV finds no such picture, or one that is mostly empty.
        """
        import cv2

        assert self.size is not None
        turns, (p1, p2), size = self._views(alpha, size, fov)
        module = cv2.fisheye if self.left.fisheye else cv2
        cameras = (self.left, self.right)
        try:
            maps = [
                module.initUndistortRectifyMap(
                    camera.matrix, camera.coefficients, turn, p[:, :3], size, cv2.CV_16SC2
                )
                for camera, turn, p in zip(cameras, turns, (p1, p2), strict=True)
            ]
        except cv2.error as error:
            raise InputError(*UNDEFINED) from error
        if fov is None and not (self.left.fisheye and alpha):  # views that are asked for as they come
            self._require_view(maps, p1, size)
        left, right = (
            partial(cv2.remap, map1=map1, map2=map2, interpolation=cv2.INTER_LINEAR) for map1, map2 in maps
        )
        points = [
            partial(_rectified_points, camera=camera, turn=turn, projection=p)
            for camera, turn, p in zip(cameras, turns, (p1, p2), strict=True)
        ]
        return Rectification(left, right, Calibration.of(p1, p2, size), points[0], points[1])

    def rectified_points(self, left: Floats, right: Floats) -> tuple[Floats, Floats]:
        """Return the places of pixels (N, 2) of both images in rectified ones, NaN where there are none."""
        turns, projections, _ = self._views(None, None, None)
        one, two = (
            _rectified_points(points, camera=camera, turn=turn, projection=p)
            for points, camera, turn, p in zip(
                (left, right), (self.left, self.right), turns, projections, strict=True
            )
        )
        return one, two

    def _views(
        self, alpha: float | None, size: tuple[int, int] | None, fov: float | None
    ) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats], tuple[int, int]]:
        """Return rotations (3, 3), projections (3, 4) and the size of rectified images."""
        import cv2

        assert self.size is not None
        stated = self.stated if (alpha, size, fov) == (None, None, None) else None
        size = size or (stated and stated.size) or self.size
        if max(*self.size, *size) > LARGEST_SIDE:
            raise InputError(f"pictures of more than {LARGEST_SIDE} px a side cannot be rectified")
        if stated is not None:
            turns, (p1, p2) = stated.rotations, stated.projections
        else:
            x, y = np.array(self.size) / (self.right_size or self.size)  # as if both had the left one's size
            right = replace(self.right, matrix=scale_matrix(self.right.matrix, x, y))
            try:
                r1, r2, p1, p2 = self._turned(right, alpha or 0.0, size)
            except cv2.error as error:
                raise InputError(*UNDEFINED) from error
            turns = r1, r2
        if fov is not None:
            zoom = size[0] / 2 / np.tan(np.radians(fov) / 2) / p1[0, 0]
            middle = (np.array([size]).T - 1) / 2
            for p in (p1, p2):
                p[:2] *= zoom
                p[:2, 2:3] += (1 - zoom) * middle
        if not (np.isfinite([p1, p2]).all() and p1[0, 0] > 0):
            raise InputError(
                "the cameras cannot be rectified: nothing is left of their images, which are turned by "
                f"{self.angle:.0f} degrees to each other",
                "check R and T; `alpha` 1 or `fov` makes another view",
            )
        return turns, (p1, p2), size

    def _require_view(self, maps: Sequence[tuple[Pixels, Pixels]], p1: Floats, size: tuple[int, int]) -> None:
        """Raise InputError where rectified images are mostly empty, or magnified too much."""
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
        self, right: Camera, alpha: float, size: tuple[int, int]
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """R1, R2 (3, 3) and P1, P2 (3, 4) of OpenCV's rectification. Raises cv2.error."""
        import cv2

        (k1, d1), (k2, d2) = ((each.matrix, each.coefficients) for each in (self.left, right))

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
