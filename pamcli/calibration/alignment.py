"""Depth maps as another camera of the rig sees them, such as a colour camera beside infrared ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.camera import Camera, make_transform
from pamcli.calibration.geometry import Calibration, Floats, Size

PIXELS_AT_ONCE = 1 << 15
LARGEST_FOOTPRINT = 32  # px, longest side of the area that a left pixel covers; larger ones are too near
SHARED_EDGE = 1e-6  # px, rounding of edges that neighbouring pixels share
BEYOND_VIEW = 0.02  # cosine; farther out, a lens model may fold back into the image


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
        width, height = self.size or (columns, rows)
        nearest = np.full(height * width, np.inf)
        for indices, depths in self._project(left.depth(disparity), left, (width, height)):
            np.minimum.at(nearest, indices, depths)
        (fx, _, x), (_, fy, y), _ = self.camera.matrix.tolist()
        scale = left.focal_length * left.baseline
        seen = np.where(np.isfinite(nearest), scale / nearest, np.nan).astype(np.float32)
        found = Calibration(fx, scale / fx, 0.0, (x, y), (width, height), None if fx == fy else fy)
        return seen.reshape(height, width), found

    def _project(
        self, depth: NDArray[Any], left: Calibration, size: Size
    ) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """Yield indices of pixels and their depths, for some rows of a depth map (H, W) at a time."""
        rows, columns = depth.shape
        steps = (0, 0), (0.5, 0), (0, 0.5)  # the middle of a pixel, and those of two edges
        cosine = self._find_widest_angle(size)
        at_once = max(1, PIXELS_AT_ONCE // columns)
        for first in range(0, rows, at_once):
            part = depth[first : first + at_once].astype(np.float64)
            down, across = np.nonzero(np.isfinite(part))
            z = part[down, across]
            moved = (left.locate(across + x, down + first + y, z) for x, y in steps)
            rays = (np.column_stack([*each, z]) for each in moved)
            points = [each @ self.transform[:3, :3].T + self.transform[:3, 3] for each in rays]
            ahead = points[0][:, 2]
            seen = ahead > np.maximum(cosine * np.linalg.norm(points[0], axis=1), 1e-6)
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
            yield (start[each, 1] + y) * size[0] + start[each, 0] + x, ahead[seen][fits][each]

    def _find_widest_angle(self, size: Size) -> float:
        """Return the cosine of the angle beyond which the lens sees nothing."""
        along = np.linspace(0, 1, 17)
        border = [each for t in along for each in ((t, 0), (t, 1), (0, t), (1, t))]
        cosines = self.camera.rays(np.array(border) * size - 0.5)[:, 2]
        return float(np.nanmin(cosines, initial=1.0)) - BEYOND_VIEW
