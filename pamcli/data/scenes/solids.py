"""Solids in space: faces of consistent geometry, each in its own light, and the shadow that they cast.

Space has its origin at the left camera: x to the right, y down, z forward, in units of the baseline. So a
point of disparity d lies at ((x - cx) / d, (y - cy) / d, focal / d), and a plane n . P = 1 has n . ray = d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamcli.data.scenes.render import Box, Decal, Layer, Reflection
from pamcli.data.scenes.surfaces import Surface

Vector = NDArray[np.float64]

SHADOW_TEXELS = 40

THINNEST = 1e-4
"""Sine of the angle between a face and the line of sight under which it is left out."""


@dataclass(frozen=True)
class Camera:
    focal: float
    """Pixels."""
    centre: tuple[float, float]
    """Column and row, which may lie outside the picture."""
    height: float
    """Above the ground, baselines."""
    view: tuple[int, int]
    """Width and height of the pictures."""

    @property
    def to_ray(self) -> Vector:
        return np.array([[1, 0, -self.centre[0]], [0, 1, -self.centre[1]], [0, 0, self.focal]])

    def ground_at(self, x: float, disparity: float) -> Vector:
        """The point of the ground in column x at a disparity (pixels)."""
        return np.array([(x - self.centre[0]) / disparity, self.height, self.focal / disparity])

    def seen_at(self, points: Vector) -> Vector:
        """(N, 2) pixels of points (N, 3) before the camera."""
        seen: Vector = points[:, :2] * (self.focal / points[:, 2:]) + np.array(self.centre)
        return seen

    def sees(self, points: Vector) -> bool:
        """Whether one of the views may hold something of what lies between points (N, 3)."""
        box = self.box(points)
        if box is None:
            return True
        nearest = self.focal / float(points[:, 2].min())  # it lies further left in the right view
        return box[2] >= 0 and box[0] - nearest <= self.view[0] and box[3] >= 0 and box[1] <= self.view[1]

    def box(self, points: Vector) -> Box | None:
        """Around points (N, 3); None where some of them are too near to be projected."""
        if points[:, 2].min() < 1:
            return None
        seen = self.seen_at(points)
        (x0, y0), (x1, y1) = seen.min(0) - 1, seen.max(0) + 1
        return float(x0), float(y0), float(x1), float(y1)

    def frame(self, origin: Vector, across: Vector, down: Vector) -> tuple[Vector, Surface, Vector]:
        """Of the plane through `origin` with two of its vectors: its homography from left (x, y, 1) to
        (s, t, 1), where a point of it is origin + s across + t down; its surface; and its normal n.

        Raises ValueError where it cannot be a `Surface`.
        """
        normal = np.cross(across, down)
        distance = float(normal @ origin)
        if abs(distance) < THINNEST * float(np.linalg.norm(normal) * np.linalg.norm(origin)):
            raise ValueError("seen edge-on")
        normal = normal / distance
        dual = np.linalg.pinv(np.stack([across, down], 1))  # (2, 3)
        rows = [dual[k] - float(dual[k] @ origin) * normal for k in (0, 1)]
        homography: Vector = np.stack([*rows, normal]) @ self.to_ray
        b, c, a = homography[2].tolist()
        return homography, Surface(a, b, c), normal


@dataclass(frozen=True)
class Light:
    """Of the sun, which throws shadows, and of the sky."""

    direction: Vector
    """To where it shines; y > 0."""
    ambient: float
    """Share of the light that comes from everywhere."""

    def on(self, inward: Vector) -> float:
        """What a face sends back whose normal points away from the viewer into the solid."""
        length = float(np.linalg.norm(inward) * np.linalg.norm(self.direction))
        facing = max(0.0, float(inward @ self.direction) / length)
        return self.ambient + (1 - self.ambient) * facing


def face(
    camera: Camera,
    light: Light,
    origin: Vector,
    across: Vector,
    down: Vector,
    texture: Tensor,
    *,
    taper: float = 1.0,
    texels: tuple[float, float] | None = None,
    reflection: Reflection | None = None,
    cutout: bool = False,
) -> Layer | None:
    """A parallelogram, its upper left corner, seen from outside, at `origin`; None where no view sees it.

    taper: width of its upper edge in parts of the lower one. texels: across and down, for a texture that is
    repeated; None: it fills the face. cutout: the texture has its own outline. Raises ValueError as
    `Camera.frame`.
    """
    corners = np.stack([origin + i * across + j * down for i in (0, 1) for j in (0, 1)])
    if not camera.sees(corners):
        return None
    inward = np.cross(across, down)
    sees = [float(inward @ (origin - eye)) > 0 for eye in (np.zeros(3), np.array([1.0, 0.0, 0.0]))]
    if not any(sees):
        return None
    h, surface, _ = camera.frame(origin, across, down)
    s, t, w = h
    m = (1 - taper) / 2
    clips = tuple(tuple(line.tolist()) for line in (s - m * w + m * t, w - s - m * w + m * t, t, w - t))
    columns, rows = texels or (texture.shape[2], texture.shape[1])
    to_texels = np.array([[columns, 0, -0.5], [0, rows, -0.5], [0, 0, 1]])
    return Layer(
        surface,
        texture,
        to_texels @ h,
        endless=not cutout,
        clips=() if cutout else clips,
        box=camera.box(corners),
        light=(light.on(inward),) * 3,
        reflection=reflection,
        unseen=None if all(sees) else sees.index(False),
    )


@dataclass(frozen=True)
class Block:
    """A box, or what is left of one whose top is shorter or narrower; it stands upright."""

    foot: Vector
    """The middle of its base."""
    heading: float
    """Of its length, radians from z to x."""
    length: float
    width: float
    height: float
    top_length: float = 1.0
    """Parts of the base."""
    top_width: float = 1.0
    top_shift: float = 0.0
    """How far the middle of its top lies ahead, in parts of the length."""

    @property
    def along(self) -> Vector:
        return np.array([np.sin(self.heading), 0.0, np.cos(self.heading)])

    @property
    def aside(self) -> Vector:
        return np.array([np.cos(self.heading), 0.0, -np.sin(self.heading)])

    def ring(self, top: bool) -> list[Vector]:
        """Its corners, clockwise as seen from above: rear left, front left, front right, rear right."""
        length, width = self.length / 2, self.width / 2
        middle = self.foot
        if top:
            middle = middle + self.top_shift * self.length * self.along - np.array([0, self.height, 0])
            length, width = length * self.top_length, width * self.top_width
        return [
            middle + i * length * self.along + j * width * self.aside
            for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))
        ]

    def sides(self) -> list[tuple[str, Vector, Vector, Vector, float]]:
        """Name (left, front, right, rear, top), origin, across, down, taper of each face but the lowest."""
        base, top = self.ring(False), self.ring(True)
        found = []
        for i, name in enumerate(("left", "front", "right", "rear")):
            # Seen from outside, the corner that comes next clockwise is on the left.
            left, right = (i + 1) % 4, i
            across = base[right] - base[left]
            down = (base[left] + base[right] - top[left] - top[right]) / 2
            taper = float(np.linalg.norm(top[right] - top[left]) / np.linalg.norm(across))
            found.append((name, (top[left] + top[right] - across) / 2, across, down, taper))
        found.append(("top", top[1], top[2] - top[1], top[0] - top[1], 1.0))
        return found

    def corners(self) -> Vector:
        return np.array(self.ring(False) + self.ring(True))

    def nearest(self) -> float:
        """The least z of it."""
        return float(self.corners()[:, 2].min())


def shadow(
    camera: Camera, light: Light, base: Sequence[Vector], height: float, darkness: float
) -> Decal | None:
    """Of a thing with its base on the ground, thrown on the ground; None where it lies behind the camera."""
    across, _, along = light.direction * (height / light.direction[1])
    points = np.array([[p[0] + i * across, p[2] + i * along] for p in base for i in (0, 1)])
    low, high = points.min(0), points.max(0)
    middle, size = (low + high) / 2, np.maximum((high - low) * 1.2, 1e-3)
    low = middle - size / 2
    if low[1] < 0.2:
        return None
    n = SHADOW_TEXELS
    grid = (np.arange(n) + 0.5) / n
    opacity = np.full((n, n), np.inf)
    scaled = (points - low) / size
    for p, q in _hull(scaled):
        edge = q - p
        normal = np.array([-edge[1], edge[0]]) / max(float(np.linalg.norm(edge)), 1e-9)
        inside = normal[0] * (grid[None] - p[0]) + normal[1] * (grid[:, None] - p[1])
        opacity = np.minimum(opacity, inside * n + 0.5)
    mask = torch.from_numpy((darkness * np.clip(opacity, 0, 1)).astype(np.float32))
    texture = torch.cat((torch.zeros(3, n, n), mask[None]))
    origin = np.array([low[0], camera.height, low[1]])
    h, _, _ = camera.frame(origin, np.array([size[0], 0.0, 0.0]), np.array([0.0, 0.0, size[1]]))
    return Decal(texture, np.array([[n, 0, -0.5], [0, n, -0.5], [0, 0, 1]]) @ h)


def _hull(points: Vector) -> list[tuple[Vector, Vector]]:
    """Edges of the convex hull of (N, 2), the inside to the left of each."""
    ordered = sorted(points.tolist())

    def half(sequence: list[list[float]]) -> list[list[float]]:
        chain: list[list[float]] = []
        for p in sequence:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], p) <= 1e-12:
                chain.pop()
            chain.append(p)
        return chain[:-1]

    corners = [np.array(p) for p in half(ordered) + half(ordered[::-1])]
    return list(zip(corners, corners[1:] + corners[:1], strict=True))


def _turn(a: list[float], b: list[float], c: list[float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
