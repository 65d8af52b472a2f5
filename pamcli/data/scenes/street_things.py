"""What stands in a street: cars, posts with signs, trees, people and things."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from pamcli.data.scenes import looks, shapes
from pamcli.data.scenes.render import Decal, Reflection
from pamcli.data.scenes.solids import DOWN, RIGHT, Block, Face, Light, Vector, face, shadow
from pamcli.data.scenes.stage import Stage
from pamcli.data.scenes.textures import cut

MOST_SHADOWS = 12


@dataclass
class Street(Stage):
    light: Light = field(kw_only=True)
    metre: float = field(kw_only=True)
    """Baselines."""
    half_road: float = field(kw_only=True)
    """Baselines from the axis of the road to its edge."""
    darkness: float = field(kw_only=True)
    """Opacity of shadows."""
    reflection: Tensor = field(kw_only=True)
    """What is mirrored in glass and paint."""
    shadows: list[Decal] = field(default_factory=list)

    def shine(self, disparity: float) -> Reflection:
        """Of a surface at `disparity`: what it mirrors lies mostly far behind it."""
        scale = self.log_uniform(0.3, 2.0)
        density = scale, scale * self.uniform(0.5, 2)
        return Reflection(self.reflection, disparity * self.uniform(-0.4, 0.7), density)

    def texels(self, size: float, disparity: float, most: int = 320) -> int:
        """For a length (baselines) seen at a disparity."""
        return int(np.clip(1.3 * size * disparity, 8, most))

    def cast(self, base: list[Vector] | Vector, height: float) -> None:
        """Let a shadow fall on the road."""
        if len(self.shadows) < MOST_SHADOWS and self.darkness > 0.05:
            thrown = shadow(self.camera, self.light, base, height, self.darkness)
            self.shadows += [thrown] if thrown is not None else []

    def somewhere(self, nearest: float, farthest: float) -> tuple[Vector, float]:
        """A point of the ground in view, and its disparity: at most `nearest` parts of the largest."""
        disparity = self.log_uniform(min(farthest, 0.3 * self.largest), nearest * self.largest)
        return self.camera.ground_at(self.uniform(-0.05, 1.1) * self.width, disparity), disparity

    def board(
        self, foot: Vector, size: tuple[float, float], texture: Tensor, *, cutout: bool, lean: float = 0.0
    ) -> None:
        """Upright, of width and height, facing the camera but for a lean (radians)."""
        across = size[0] * np.array([np.cos(lean), np.sin(lean), 0.0])
        down = size[1] * np.array([-np.sin(lean), np.cos(lean), 0.0])
        shine = self.shine(self.camera.focal / foot[2]) if len(texture) == 5 else None
        shape = Face(foot - across / 2 - down, across, down)
        made = face(self.camera, self.light, shape, texture, cutout=cutout, reflection=shine)
        if made is not None:
            self.add(replace(made, light=self.light.shining(self.uniform(0.3, 1.0))))


def car(street: Street, *, parked: bool) -> None:
    """A body and a cabin; or a van: one tall box with windows."""
    rng, metre = street.rng, street.metre
    foot, disparity = street.somewhere(0.85, 3.0)
    ways = [0.0, np.pi, np.pi / 2, -np.pi / 2]
    heading = float(rng.choice(ways, p=[0.42, 0.42, 0.08, 0.08])) + street.uniform(-0.15, 0.15)
    if parked:  # along the road, on either side of it
        foot[0] = np.copysign(street.half_road - street.uniform(-0.5, 1.5) * metre, foot[0])
        there = (street.uniform(0, 1) * street.width - street.camera.centre[0]) / foot[0]
        if 4 < there < 0.9 * street.largest:
            disparity = there
            foot[2] = street.camera.focal / disparity
    length, width = street.uniform(3.6, 5) * metre, street.uniform(1.6, 1.95) * metre
    front = foot[2] - length / 2
    outline = Block(foot, heading, length, width, 2 * metre)
    if front < 2 or street.camera.focal / front > 1.3 * street.largest:
        return
    if not street.camera.sees(outline.corners()):
        return
    colour, van = looks.paint_colour(rng), rng.random() < 0.25
    height = street.uniform(1.7, 2.6) * metre if van else street.uniform(0.75, 1.0) * metre
    roof = looks.shining(np.broadcast_to(colour * 1.1, (8, 8, 3)), np.full((8, 8), street.uniform(0.1, 0.5)))

    def painted(name: str, rows: int, columns: int) -> Tensor:
        if name == "top":
            return roof
        aspect, wheel = (length / height, 0.34 * metre / height) if name in ("left", "right") else (1.0, 0.0)
        return looks.body(rng, colour, rows, columns, aspect, wheel)

    def glazed(name: str, rows: int, columns: int) -> Tensor:
        panes = int(rng.integers(2, 5)) if name in ("left", "right") else 1
        return roof if name == "top" else looks.windows(rng, colour, rows, columns, panes)

    lifted, shine = foot - 0.14 * metre * DOWN, street.shine(disparity)
    body = Block(lifted, heading, length, width, height)
    if not street.add_block(body, street.light, painted, reflection=shine):
        return
    base = replace(outline, length=0.95 * length).ring(False)
    street.cast(base, 0.9 * (height if van else 1.4 * metre))
    if van:
        return
    shift = street.uniform(-0.12, 0.02) * length
    cabin = Block(
        lifted - height * DOWN + shift * body.along,
        heading,
        length * street.uniform(0.55, 0.75),
        width * 0.94,
        street.uniform(0.45, 0.65) * metre,
        top_length=street.uniform(0.6, 0.85),
        top_width=street.uniform(0.75, 0.9),
        top_shift=street.uniform(-0.08, 0.02),
    )
    street.add_block(cabin, street.light, glazed, reflection=shine)


def post(street: Street) -> None:
    """A lamp post, a bollard, a mast with lights or with a sign: up from the ground."""
    rng, metre = street.rng, street.metre
    foot, disparity = street.somewhere(0.9, 4.0)
    if rng.random() < 0.5:
        foot[0] = rng.choice([-1, 1]) * (street.half_road + street.uniform(-0.5, 3) * metre)
    width = min(max(street.log_uniform(0.05, 0.3) * metre, 2.0 / disparity), 16 / disparity)
    height = (street.uniform(0.7, 1.2) if rng.random() < 0.3 else street.uniform(2, 9)) * metre
    texture = looks.post(rng, street.texels(height, disparity, 200), 10)
    street.board(foot, (width, height), texture, cutout=False, lean=float(rng.normal(0, 0.02)))
    street.cast([foot - width / 2 * RIGHT, foot + width / 2 * RIGHT], height)
    if height < 1.5 * metre or rng.random() < 0.4:
        return
    front = foot - np.array([0, height * street.uniform(0.5, 0.9), 0.05 * metre])
    size = street.uniform(0.3, 1.0) * metre
    n = street.texels(size, disparity, 96)
    if rng.random() < 0.6:
        mask = shapes.random_shape(rng, n, n)
        plate = street.library.skin(rng, n, n) if rng.random() < 0.3 else looks.post(rng, n, n)
        street.board(front, (size, size), cut(plate, mask), cutout=True)
    else:
        street.board(front, (0.4 * size, size), looks.post(rng, n, n), cutout=False)


def tree(street: Street) -> None:
    """A trunk, and a crown of one to three bunches of leaves."""
    rng, metre = street.rng, street.metre
    foot, disparity = street.somewhere(0.7, 3.0)
    if abs(foot[0]) < street.half_road:
        foot[0] = np.copysign(street.half_road + street.uniform(0, 8) * metre, foot[0])
    trunk, width = street.uniform(0.5, 4) * metre, street.uniform(0.15, 0.6) * metre
    bark = street.library.skin(rng, street.texels(trunk, disparity, 200), street.texels(width, disparity, 64))
    bark = bark * torch.tensor([0.5, 0.45, 0.4, 1])[:, None, None]
    street.board(foot, (width, 1.3 * trunk), bark, cutout=False, lean=float(rng.normal(0, 0.05)))
    size = street.uniform(2, 7) * metre
    n = street.texels(size, disparity, 256)
    for _ in range(int(rng.integers(1, 4))):
        away = rng.uniform((-0.4, -0.4, -0.3), (0.4, 0.2, 0.3)) * size - trunk * DOWN
        extent = size * street.uniform(0.6, 1.2), size * street.uniform(0.5, 1)
        if (foot + away)[2] > 3:
            street.board(foot + away, extent, looks.leaves(rng, n, n), cutout=True)
    street.cast([foot + np.array([i, 0, j]) * size / 4 for i in (-1, 1) for j in (-1, 1)], trunk + size / 2)


def standing(street: Street) -> None:
    """A person, an animal, a thing: a cut-out, or a shape with a photograph's look."""
    rng = street.rng
    foot, disparity = street.somewhere(0.95, 5.0)
    height = street.uniform(0.4, 2.1) * street.metre
    texture = street.library.cutout(rng)
    if texture is None:
        n = street.texels(height, disparity, 256)
        texture = cut(street.library.skin(rng, n, n), shapes.random_shape(rng, n, n))
    width = height * texture.shape[2] / texture.shape[1]
    street.board(foot, (width, height), texture, cutout=True)
    street.cast([foot - width / 3 * RIGHT, foot + width / 3 * RIGHT], height)
