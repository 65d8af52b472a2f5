"""Meshes of boxes, prisms, tubes and turned profiles, and walls with windows made of them.

Lengths are metres, and z points up. Each face names its material; `blender.py` decides what the material
looks like. Nothing here requires Blender.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from numpy.typing import ArrayLike, NDArray

Points = NDArray[np.float64]
Interval = tuple[float, float]
ALONG = {"x": (2, 0, 1), "y": (1, 2, 0), "z": (0, 1, 2)}  # order of the coordinates for a profile's axis


@dataclass
class Shape:
    """A mesh: points, and faces with their materials; smooth faces are shaded as one curved surface."""

    points: list[Points] = field(default_factory=list)  # (N, 3) each
    faces: list[tuple[int, ...]] = field(default_factory=list)
    materials: list[str] = field(default_factory=list)  # one per face
    smooth: list[bool] = field(default_factory=list)  # one per face

    def add(
        self, points: ArrayLike, faces: Sequence[tuple[int, ...]], material: str, smooth: bool = False
    ) -> None:
        """Add points (N, 3) and the faces between them."""
        start = sum(map(len, self.points))
        self.points.append(np.asarray(points, dtype=np.float64))
        self.faces += [tuple(start + corner for corner in face) for face in faces]
        self.materials += [material] * len(faces)
        self.smooth += [smooth] * len(faces)

    def add_shape(self, other: Shape, move: ArrayLike = (0, 0, 0), turn: float = 0, scale: float = 1) -> None:
        """Add another shape, scaled, turned about z by an angle (radians), then moved."""
        start, c, s = sum(map(len, self.points)), math.cos(turn), math.sin(turn)
        turned = np.concatenate(other.points) @ (scale * np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]))
        self.points.append(turned + np.asarray(move, dtype=np.float64))
        self.faces += [tuple(start + corner for corner in face) for face in other.faces]
        self.materials += other.materials
        self.smooth += other.smooth

    def add_box(self, low: ArrayLike, high: ArrayLike, material: str) -> None:
        """Add a box between two opposite corners."""
        corners = np.array([low, high], dtype=np.float64)
        points = [corners[(i, j, k), (0, 1, 2)] for i in (0, 1) for j in (0, 1) for k in (0, 1)]
        faces = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
        self.add(points, faces, material)

    def add_prism(self, side: Sequence[tuple[float, float]], low: float, high: float, material: str) -> None:
        """Add a polygon of (y, z), extruded along x from `low` to `high`."""
        count = len(side)
        points = [(x, y, z) for x in (low, high) for y, z in side]
        faces = [(i, (i + 1) % count, count + (i + 1) % count, count + i) for i in range(count)]
        self.add(points, [*faces, tuple(range(count))[::-1], tuple(range(count, 2 * count))], material)

    def add_tube(
        self, path: ArrayLike, radius: float, material: str, closed: bool = False, sides: int = 8
    ) -> None:
        """Add a round rod along a path (N, 3)."""
        points = np.asarray(path, dtype=np.float64)
        beyond = (
            (points[-1:], points[:1])
            if closed
            else (2 * points[:1] - points[1:2], 2 * points[-1:] - points[-2:-1])
        )
        longer = np.concatenate([beyond[0], points, beyond[1]])
        tangent = longer[2:] - longer[:-2]
        flat = np.linalg.svd(points - points.mean(axis=0))[2][
            -1
        ]  # the direction in which the path varies least
        across = np.cross(tangent, flat)
        across /= np.linalg.norm(across, axis=1, keepdims=True) + 1e-12
        upward = np.cross(across, tangent)
        upward /= np.linalg.norm(upward, axis=1, keepdims=True) + 1e-12
        angles = np.arange(sides) * (2 * math.pi / sides)
        ring = np.cos(angles)[:, None] * across[:, None] + np.sin(angles)[:, None] * upward[:, None]
        count = len(points)
        faces = [
            (i * sides + j, i * sides + (j + 1) % sides, k * sides + (j + 1) % sides, k * sides + j)
            for i, k in zip(
                range(count), [*range(1, count), 0][: count if closed else count - 1], strict=False
            )
            for j in range(sides)
        ]
        self.add((points[:, None] + radius * ring).reshape(-1, 3), faces, material, smooth=True)

    def add_turned(
        self,
        profile: Sequence[tuple[float, float]],
        material: str,
        at: ArrayLike = (0, 0, 0),
        axis: str = "z",
        sides: int = 28,
    ) -> None:
        """Add a profile of (radius, position along the axis), turned about the axis."""
        angles = np.arange(sides) * (2 * math.pi / sides)
        points = np.array(
            [
                (r * c, r * s, z)
                for r, z in profile
                for c, s in zip(np.cos(angles), np.sin(angles), strict=True)
            ]
        )
        faces = [
            (
                i * sides + j,
                i * sides + (j + 1) % sides,
                (i + 1) * sides + (j + 1) % sides,
                (i + 1) * sides + j,
            )
            for i in range(len(profile) - 1)
            for j in range(sides)
        ]
        self.add(points[:, ALONG[axis]] + np.asarray(at, dtype=np.float64), faces, material, smooth=True)


def build_wall(
    length: float, height: float, thickness: float, columns: Sequence[Interval], rows: Sequence[Interval]
) -> Shape:
    """Build a wall along x, from y = 0 backwards, with an opening wherever a column (x) meets a row (z)."""
    shape, below = Shape(), 0.0
    for low, high in [*rows, (height, height)]:
        if low > below:
            shape.add_box((0, 0, below), (length, thickness, low), "wall")
        before = 0.0
        for left, right in [*columns, (length, length)] if high > low else ():
            if left > before:
                shape.add_box((before, 0, low), (left, thickness, high), "wall")
            before = right
        below = high
    return shape


def build_window(rng: Random, width: float, height: float, thickness: float, glazed: bool) -> Shape:
    """Build a window with glazing bars, and a pane of glass if it is `glazed`; corner at the origin."""
    shape, bar = Shape(), rng.uniform(0.03, 0.07)
    front, back = 0.3 * thickness, 0.3 * thickness + 0.05
    columns, rows = rng.randint(1, 3), rng.randint(1, 3)
    for number in range(columns + 1):
        x = (width - bar) * number / columns
        shape.add_box((x, front, 0), (x + bar, back, height), "frame")
    for number in range(rows + 1):
        z = (height - bar) * number / rows
        shape.add_box((bar, front + 0.004, z), (width - bar, back - 0.004, z + bar), "frame")
    if glazed:
        shape.add_box((bar, front + 0.02, bar), (width - bar, front + 0.026, height - bar), "pane")
    return shape
