"""A stereo rig, two cameras and their relative pose, and the rectification of its images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from pamcli.calibration.camera import Camera, Projections, check_rotation, scale_matrix
from pamcli.calibration.geometry import (
    SWAP_CAMERAS,
    Calibration,
    Floats,
    Pixels,
    Size,
    compute_scales,
    has_aspect,
    require_one_lens,
)
from pamcli.errors import InputError

LARGEST_SIDE = 32766  # px, of an image that OpenCV can remap
UNDEFINED = "the cameras cannot be rectified", "check R, T and the distortion coefficients"
MOST_EMPTY = 0.5  # share of a rectified image that shows nothing
MOST_ZOOM = 10.0  # largest ratio of the rectified focal length to that of the camera
FISHEYE_LIMIT = 160.0  # degrees, widest rectified fisheye; towards 180 its centre shrinks to a dot


@dataclass(frozen=True, eq=False)
class Rig:
    """Two cameras: a point x in left camera coordinates is rotation @ x + translation in right ones."""

    left: Camera
    right: Camera
    rotation: Floats  # (3, 3)
    translation: Floats  # (3,), metres
    size: Size | None = None  # of the images; None: unknown
    others: tuple[Rig, ...] = ()  # rigs for other image sizes that are crops of the sensor, not scaled
    stated: Projections | None = None  # rectification that the file states
    right_size: Size | None = None  # of the right images; None: that of the left ones

    def __post_init__(self) -> None:
        check_rotation(self.rotation, "R")
        if not 1e-7 < self.baseline < 1e7:
            raise InputError(f"the baseline (length of T) is {self.baseline:g} m, expected 1e-7 to 1e7 m")
        if self.left.fisheye != self.right.fisheye:
            raise InputError("both cameras must have the same lens model, but only one is a fisheye")
        across, down, ahead = self.center
        if abs(across) <= max(abs(down), abs(ahead)):
            place = f"x={across:g}, y={down:g}, z={ahead:g} m"
            turn = "turn all images by 90 degrees, so that the cameras are side by side, and calibrate again"
            hint = f"if one is above the other, {turn}" if abs(down) > abs(ahead) else None
            raise InputError(f"the right camera is at {place}, not beside the left camera", hint)
        if across < 0:
            message = f"the baseline is {across:g} m: the right camera is left of the left camera"
            hint = f"{SWAP_CAMERAS}; or use `extrinsics` pose if R and T are the pose of the right camera"
            raise InputError(message, hint)

    @property
    def center(self) -> Floats:
        """Position of the right camera (3,) in left camera coordinates, metres."""
        return -self.rotation.T @ self.translation

    @property
    def baseline(self) -> float:
        return float(np.linalg.norm(self.translation))

    @property
    def angle(self) -> float:
        return float(np.degrees(np.arccos(np.clip((np.trace(self.rotation) - 1) / 2, -1, 1))))

    @property
    def sizes(self) -> tuple[Size | None, ...]:
        return self.size, *(each.size for each in self.others)

    def with_baseline(self, metres: float) -> Rig:
        others = tuple(each.with_baseline(metres) for each in self.others)
        translation = self.translation * (metres / self.baseline)
        stated = self.stated and self.stated.with_baseline(metres)
        return replace(self, translation=translation, others=others, stated=stated)

    def to_calibration(self) -> Calibration | None:
        """Return the calibration of the images if they are rectified as they are, else None."""
        (left, right), center = (camera.matrix for camera in (self.left, self.right)), self.center
        if (
            self.left.fisheye
            or self.left.distortion.any()
            or self.right.distortion.any()
            or np.abs(self.rotation - np.eye(3)).max() >= 1e-6
            or np.abs(center[1:]).max() >= 1e-6 * center[0]
            or not np.allclose(left[:, [0, 1]], right[:, [0, 1]])
            or left[1, 2] != right[1, 2]
        ):
            return None
        fx, fy, x, y = (float(left[i]) for i in ((0, 0), (1, 1), (0, 2), (1, 2)))
        offset = float(right[0, 2]) - x
        return Calibration(fx, float(center[0]), offset, (x, y), self.size, None if fx == fy else fy)

    def for_size(self, width: int, height: int, right: Size | None = None) -> Rig:
        """Return the rig for images of another size. right: size of the right images if it differs.

        Raises:
            InputError: If the aspect ratio differs, or several calibrations could be meant.
        """
        other = None if right == (width, height) else right
        for each in (self, *self.others):
            known = right is None or (each.right_size or each.size) == right
            if each.size is None or (each.size == (width, height) and known):
                return replace(each, size=(width, height), right_size=other or each.right_size, others=())
        assert self.size is not None
        made = self.stated.size if self.stated else None
        if made and has_aspect(made, width, height) and not has_aspect(self.size, width, height):
            sizes = f"{self.size[0]}x{self.size[1]} px for camera images and {made[0]}x{made[1]} px"
            message = f"images of {width}x{height} px are rectified already: the calibration states {sizes}"
            raise InputError(f"{message} for rectified ones", "use these images as they are")
        x, y = compute_scales(self.size, width, height)
        lenses = [(each.size, float(each.left.matrix[0, 0])) for each in (self, *self.others)]
        require_one_lens(lenses, width, height)
        second = self.right_size or self.size
        if right is None and self.right_size:
            right = other = round(second[0] * x), round(second[1] * y)
        x2, y2 = (x, y) if right is None else compute_scales(second, *right)
        return replace(
            self,
            left=replace(self.left, matrix=scale_matrix(self.left.matrix, x, y)),
            right=replace(self.right, matrix=scale_matrix(self.right.matrix, x2, y2)),
            size=(width, height),
            right_size=other,
            others=(),
            stated=self.stated and self.stated.scale_images(x, y),
        )

    def compute_rectification(
        self, *, alpha: float | None = None, size: Size | None = None, fov: float | None = None
    ) -> Rectification:
        """Return what rectifies images of `self.size`; without options, as the file states.

        alpha: 0 (default if nothing is stated) = only pixels visible in the image, 1 = the whole image with
        black borders; for a fisheye 0 keeps the scale of its centre, 1 shows 160 degrees. fov: horizontal
        field of view in degrees, below 180, instead of alpha. Raises InputError if it is mostly empty.
        """
        import cv2

        turns, projections, size = self._compute_views(alpha, size, fov)
        module: Any = cv2.fisheye if self.left.fisheye else cv2
        maps: Any = []
        try:
            for camera, turn, p in zip((self.left, self.right), turns, projections, strict=True):
                lens = camera.matrix, camera.coefficients
                maps.append(module.initUndistortRectifyMap(*lens, turn, p[:, :3], size, cv2.CV_16SC2))
        except cv2.error as error:
            raise InputError(*UNDEFINED) from error
        if fov is None and not (self.left.fisheye and alpha):  # else the user chose the view
            self._check_views(maps, projections[0], size)
        warps = [partial(cv2.remap, map1=one, map2=two, interpolation=cv2.INTER_LINEAR) for one, two in maps]
        return Rectification(warps[0], warps[1], Calibration.from_projections(*projections, size), turns)

    def rectify_points(self, left: Floats, right: Floats) -> tuple[Floats, Floats]:
        """Return the positions of pixels (N, 2) in the rectified images, NaN if they have none."""
        turns, projections, _ = self._compute_views(None, None, None)
        found = []
        sides = ((left, self.left), (right, self.right))
        for (points, camera), turn, p in zip(sides, turns, projections, strict=True):
            rays = camera.rays(points) @ turn.T
            rays[rays[:, 2] <= 0] = np.nan  # behind the rectified camera
            found.append(rays[:, :2] / rays[:, 2:] * p[[0, 1], [0, 1]] + p[:2, 2])
        return found[0], found[1]

    def _compute_views(
        self, alpha: float | None, size: Size | None, fov: float | None
    ) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats], Size]:
        """Return rotations (3, 3), projections (3, 4) and the size of the rectified images."""
        import cv2

        assert self.size is not None
        stated = self.stated if (alpha, size, fov) == (None, None, None) else None
        size = size or (stated and stated.size) or self.size
        if max(*self.size, *size) > LARGEST_SIDE:
            raise InputError(f"cannot rectify images with a side above {LARGEST_SIDE} px")
        if stated is not None:
            turns, p1, p2 = (stated.rotations[0], stated.rotations[1]), stated.p1, stated.p2
        else:
            try:
                r1, r2, p1, p2 = self._rectify(alpha or 0.0, size)
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
            message = f"the cameras are rotated by {self.angle:.0f} degrees to each other"
            hint = f"check R and T, or choose another view with {'`fov`' if alpha else '`alpha` 1 or `fov`'}"
            raise InputError(f"the rectified images would be empty: {message}", hint)
        return turns, (p1, p2), size

    def _check_views(self, maps: Sequence[tuple[Pixels, Pixels]], p1: Floats, size: Size) -> None:
        assert self.size is not None
        rotated = f"the cameras are rotated by {self.angle:.0f} degrees to each other"
        hint = "check R and T (pam doctor LEFT RIGHT --calibration FILE), or choose a view with `fov`"
        zoom = float(p1[0, 0] / self.left.matrix[0, 0] * self.size[0] / size[0])
        if zoom > MOST_ZOOM:
            raise InputError(f"the rectified images would be magnified {zoom:.0f} times: {rotated}", hint)
        sizes = (self.size, self.right_size or self.size)
        for name, (places, _), (width, height) in zip(("left", "right"), maps, sizes, strict=True):
            x, y = places[::4, ::4, 0], places[::4, ::4, 1]
            empty = 1 - float(np.mean((x >= 0) & (y >= 0) & (x < width) & (y < height)))
            if empty > MOST_EMPTY:
                message = f"the rectified {name} image would be {100 * empty:.0f} % empty: {rotated}"
                raise InputError(message, hint)

    def _rectify(self, alpha: float, size: Size) -> tuple[Floats, Floats, Floats, Floats]:
        """Return R1, R2 (3, 3) and P1, P2 (3, 4) of OpenCV's rectification. Raises cv2.error."""
        import cv2

        assert self.size is not None
        # OpenCV expects one image size: scale the right camera to that of the left one.
        second = scale_matrix(self.right.matrix, *np.array(self.size) / (self.right_size or self.size))
        none = np.zeros(4)  # for a fisheye only the rotations are used, which do not depend on the lenses
        d1, d2 = (none if each.fisheye else each.coefficients for each in (self.left, self.right))
        pose = np.ascontiguousarray(self.rotation), self.translation.reshape(3, 1)
        how = {"newImageSize": size, "flags": cv2.CALIB_ZERO_DISPARITY, "alpha": alpha}
        lenses, rectify = (self.left.matrix, d1, second, d2), cast(Any, cv2.stereoRectify)
        r1, r2, p1, p2, *_ = rectify(*lenses, self.size, *pose, **how)
        if self.left.fisheye:
            focal, x, y = self._choose_fisheye_view(r1, r2, alpha, size)
            p1 = np.array([[focal, 0, x, 0], [0, focal, y, 0], [0, 0, 1, 0]])
            p2 = p1.copy()
            p2[0, 3] = -focal * self.baseline
        return r1, r2, p1, p2

    def _choose_fisheye_view(
        self, r1: Floats, r2: Floats, alpha: float, size: Size
    ) -> tuple[float, float, float]:
        """Return focal length and principal point (x, y) of rectified fisheyes, px.

        The focal length is between that of the lens and the one that shows all within FISHEYE_LIMIT. OpenCV's
        choice shows a lens of 160 degrees at a third of its resolution.
        """
        assert self.size is not None
        width, height = self.size
        along = np.linspace(0, 1, 65)
        border = [(x, y) for each in along for x, y in ((each, 0), (each, 1), (0, each), (1, each))]
        points = np.array([(0.5, 0.5), *border]) * (width - 1, height - 1)
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


@dataclass(frozen=True)
class Rectification:
    """Functions that rectify images of a rig, (H, W) or (H, W, C), uint8 or uint16, black outside."""

    left: Callable[[Pixels], Pixels]
    right: Callable[[Pixels], Pixels]
    calibration: Calibration | None  # of the rectified images; None if their scale is unknown
    rotations: Sequence[Floats] = ()  # (3, 3) from left and right camera to rectified coordinates, if known
    warnings: Sequence[str] = ()
