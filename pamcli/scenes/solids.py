"""Define solids in space: faces with consistent geometry and lighting, and the shadows that they cast.

The origin is the left camera: x to the right, y down, z forward, in units of the baseline. A point of
disparity d lies at ((x - cx) / d, (y - cy) / d, focal / d), and a plane n . P = 1 has n . ray = d.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamcli.scenes.render import Box, Decal, Layer, Reflection
from pamcli.scenes.surfaces import Surface

Vector = NDArray[np.float64]
RIGHT, DOWN, AHEAD = np.eye(3)
SHADOW_TEXELS = 40
THINNEST = 1e-4  # smallest sine of the angle between a visible face and the line of sight


@dataclass(frozen=True)
class Camera:
    focal: float  # px
    centre: tuple[float, float]  # column and row (px); may lie outside the image
    height: float  # height above the ground, in baselines
    view: tuple[int, int]  # width and height of the images (px)

    def ground_at(self, x: float, disparity: float) -> Vector:
        """Return the point (3,) on the ground that appears in column x with a disparity (px)."""
        return np.array([(x - self.centre[0]) / disparity, self.height, self.focal / disparity])

    def is_visible(self, points: Vector) -> bool:
        """Return True if one of the views may show a part of the hull of points (N, 3)."""
        box = self.box(points)
        if box is None:
            return True
        nearest = self.focal / float(points[:, 2].min())  # shift to the left in the right view
        return box[2] >= 0 and box[0] - nearest <= self.view[0] and box[3] >= 0 and box[1] <= self.view[1]

    def box(self, points: Vector) -> Box | None:
        """Return the box around projected points (N, 3), or None if some are too near to project."""
        if points[:, 2].min() < 1:
            return None
        seen = points[:, :2] * (self.focal / points[:, 2:]) + np.array(self.centre)
        (x0, y0), (x1, y1) = (seen.min(0) - 1).tolist(), (seen.max(0) + 1).tolist()
        return x0, y0, x1, y1

    def frame(self, origin: Vector, across: Vector, down: Vector) -> tuple[Vector, Surface]:
        """Return the homography and the surface of the plane through `origin`; raise ValueError if edge-on.

        The homography maps left (x, y, 1) to (s, t, 1), for the point origin + s across + t down.
        """
        normal = np.cross(across, down)
        distance = float(normal @ origin)
        if abs(distance) < THINNEST * float(np.linalg.norm(normal) * np.linalg.norm(origin)):
            raise ValueError("seen edge-on")
        normal = normal / distance
        dual = np.linalg.pinv(np.stack([across, down], 1))  # (2, 3)
        to_ray = np.array([[1, 0, -self.centre[0]], [0, 1, -self.centre[1]], [0, 0, self.focal]])
        homography: Vector = np.vstack([dual - np.outer(dual @ origin, normal), normal]) @ to_ray
        b, c, a = homography[2].tolist()
        return homography, Surface(a, b, c)


@dataclass(frozen=True)
class Light:
    """Direct sunlight, which casts shadows, and ambient light of the sky."""

    direction: Vector  # direction of the rays; y > 0
    ambient: float  # share of ambient light

    def compute_reflected(self, inward: Vector) -> float:
        """Return the light reflected by a face with this normal, which points into the solid."""
        length = float(np.linalg.norm(inward) * np.linalg.norm(self.direction))
        return self.compute_shine(max(0.0, float(inward @ self.direction) / length))

    def compute_shine(self, facing: float) -> float:
        """Return the reflected light of a face; `facing` is 1 towards the sun, 0 away from it."""
        return self.ambient + (1 - self.ambient) * facing


@dataclass(frozen=True)
class Face:
    """A parallelogram, or a trapezoid in its place, seen from outside."""

    origin: Vector  # upper left corner
    across: Vector
    down: Vector
    taper: float = 1.0  # width of the upper edge in parts of the lower one


def render_face(
    camera: Camera,
    light: Light,
    shape: Face,
    texture: Tensor,
    *,
    texels: tuple[float, float] | None = None,
    reflection: Reflection | None = None,
    cutout: bool = False,
) -> Layer | None:
    """Return a layer that shows a face, or None if no view sees it; raise ValueError as `Camera.frame`.

    `texels`: texels across and down of a repeated texture; None: the texture fills the face. `cutout`: the
    texture has its own outline.
    """
    corners = np.stack([shape.origin + i * shape.across + j * shape.down for i in (0, 1) for j in (0, 1)])
    inward = np.cross(shape.across, shape.down)
    sees = [float(inward @ (shape.origin - eye)) > 0 for eye in (0 * RIGHT, RIGHT)]
    if not (camera.is_visible(corners) and any(sees)):
        return None
    h, surface = camera.frame(shape.origin, shape.across, shape.down)
    s, t, w = h
    slant = (1 - shape.taper) / 2 * (w - t)
    clips = tuple(tuple(line.tolist()) for line in (s - slant, w - s - slant, t, w - t))
    columns, rows = texels or (texture.shape[2], texture.shape[1])
    to_texels = np.array([[columns, 0, -0.5], [0, rows, -0.5], [0, 0, 1]]) @ h
    bounds, box, lit = () if cutout else clips, camera.box(corners), light.compute_reflected(inward)
    unseen = None if all(sees) else sees.index(False)
    edges = not cutout, bounds, box, lit
    return Layer(surface, texture, to_texels, *edges, reflection=reflection, unseen=unseen)


@dataclass(frozen=True)
class Block:
    """An upright box whose top may be shorter or narrower than its base."""

    foot: Vector  # centre of the base
    heading: float  # direction of the length, in radians from z to x
    length: float
    width: float
    height: float
    top_length: float = 1.0  # parts of the base
    top_width: float = 1.0
    top_shift: float = 0.0  # shift of the top's centre ahead, in parts of the length

    @property
    def along(self) -> Vector:
        return np.array([np.sin(self.heading), 0.0, np.cos(self.heading)])

    def ring(self, top: bool) -> Vector:
        """Return the corners (4, 3), clockwise from above: rear left, front left, front right, rear right."""
        ahead = self.length / 2 * self.along
        aside = self.width / 2 * np.array([np.cos(self.heading), 0.0, -np.sin(self.heading)])
        middle = self.foot
        if top:
            middle = middle + 2 * self.top_shift * ahead - self.height * DOWN
            ahead, aside = self.top_length * ahead, self.top_width * aside
        return np.array([middle + i * ahead + j * aside for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))])

    def faces(self) -> Iterator[tuple[str, Face]]:
        """Yield the name (left, front, right, rear, top) and shape of each face except the bottom."""
        base, top = self.ring(False), self.ring(True)
        for right, name in enumerate(("left", "front", "right", "rear")):
            left = (right + 1) % 4  # seen from outside, the next corner clockwise is on the left
            across = base[right] - base[left]
            taper = float(np.linalg.norm(top[right] - top[left]) / np.linalg.norm(across))
            middle = (top[left] + top[right]) / 2
            yield name, Face(middle - across / 2, across, (base[left] + base[right]) / 2 - middle, taper)
        yield "top", Face(top[1], top[2] - top[1], top[0] - top[1])

    def corners(self) -> Vector:
        return np.concatenate([self.ring(False), self.ring(True)])

    def nearest(self) -> float:
        return float(self.corners()[:, 2].min())


def shadow(
    camera: Camera, light: Light, base: Sequence[Vector] | Vector, height: float, darkness: float
) -> Decal | None:
    """Return the shadow of an object with this base on the ground, or None if it lies behind the camera."""
    thrown = light.direction * (height / light.direction[1])
    points = np.array([[*base], [*(base + thrown)]]).reshape(-1, 3)[:, [0, 2]]
    size = np.maximum(1.2 * np.ptp(points, axis=0), 1e-3)
    low = (points.min(0) + points.max(0) - size) / 2
    if low[1] < 0.2:
        return None
    n, fraction = SHADOW_TEXELS, 8
    hull = cv2.convexHull(((points - low) / size * n - 0.5).astype(np.float32))
    corners = np.rint(hull * 2**fraction).astype(np.int32)
    mask = cv2.fillConvexPoly(np.zeros((n, n), np.uint8), corners, 255, cv2.LINE_AA, fraction)
    texture = torch.zeros(4, n, n)
    texture[3] = torch.from_numpy(mask) * (darkness / 255)
    h, _ = camera.frame(np.array([low[0], camera.height, low[1]]), size[0] * RIGHT, size[1] * AHEAD)
    return Decal(texture, np.array([[n, 0, -0.5], [0, n, -0.5], [0, 0, 1]]) @ h)
