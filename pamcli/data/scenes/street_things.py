"""What stands in a street: cars, posts with signs, trees, people and things."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from pamcli.data.scenes import looks, shapes
from pamcli.data.scenes.render import Decal, Layer, Reflection
from pamcli.data.scenes.solids import Block, Camera, Light, Vector, face, shadow
from pamcli.data.scenes.textures import TextureLibrary, cut

MOST_SHADOWS = 12

RIGHT = np.array([1.0, 0.0, 0.0])
DOWN = np.array([0.0, 1.0, 0.0])
AHEAD = np.array([0.0, 0.0, 1.0])


@dataclass
class Street:
    rng: Generator
    library: TextureLibrary
    camera: Camera
    light: Light
    metre: float
    """Baselines."""
    width: int
    largest: float
    half_road: float
    """Baselines from the axis of the road to its edge."""
    darkness: float
    """Opacity of shadows."""
    reflection: Tensor = field(default_factory=lambda: torch.zeros(4, 1, 1))
    layers: list[Layer] = field(default_factory=list)
    shadows: list[Decal] = field(default_factory=list)

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def log_uniform(self, low: float, high: float) -> float:
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def add(self, *layers: Layer | None) -> None:
        self.layers += [layer for layer in layers if layer is not None]

    def shine(self, disparity: float) -> Reflection:
        """Of a surface at `disparity`: what it mirrors lies mostly far behind it."""
        scale = self.log_uniform(0.3, 2.0)
        return Reflection(
            self.reflection, disparity * self.uniform(-0.4, 0.7), (scale, scale * self.uniform(0.5, 2))
        )

    def texels(self, size: float, disparity: float, most: int = 320) -> int:
        """For a length (baselines) seen at a disparity."""
        return int(np.clip(1.3 * size * disparity, 8, most))

    def cast(self, base: list[Vector], height: float) -> None:
        if len(self.shadows) < MOST_SHADOWS and self.darkness > 0.05:
            thrown = shadow(self.camera, self.light, base, height, self.darkness)
            self.shadows += [thrown] if thrown is not None else []

    def somewhere(self, nearest: float = 1.0, farthest: float = 3.0) -> tuple[Vector, float]:
        """A point of the ground in view, and its disparity: at most `nearest` parts of the largest."""
        disparity = self.log_uniform(min(farthest, 0.3 * self.largest), nearest * self.largest)
        return self.camera.ground_at(self.uniform(-0.05, 1.1) * self.width, disparity), disparity


def block(
    street: Street,
    block: Block,
    textures: dict[str, Tensor],
    texels: dict[str, tuple[float, float]] | None = None,
) -> bool:
    """Its faces; False where it cannot be drawn, and is not."""
    made = []
    disparity = street.camera.focal / max(block.nearest(), 1.0)
    try:
        for name, origin, across, down, taper in block.sides():
            texture = textures.get(name, textures["side"])
            made.append(
                face(
                    street.camera,
                    street.light,
                    origin,
                    across,
                    down,
                    texture,
                    taper=taper,
                    texels=(texels or {}).get(name),
                    reflection=street.shine(disparity) if len(texture) == 5 else None,
                )
            )
    except ValueError:
        return False
    street.add(*made)
    return True


def board(
    street: Street,
    foot: Vector,
    width: float,
    height: float,
    texture: Tensor,
    *,
    cutout: bool,
    lean: float = 0.0,
) -> None:
    """Upright, facing the camera but for a lean (radians, about the line of sight)."""
    across, down = (
        width * np.array([np.cos(lean), np.sin(lean), 0.0]),
        height * np.array([-np.sin(lean), np.cos(lean), 0.0]),
    )
    origin = foot - across / 2 - down
    shine = street.shine(street.camera.focal / foot[2]) if len(texture) == 5 else None
    made = face(street.camera, street.light, origin, across, down, texture, cutout=cutout, reflection=shine)
    if made is not None:
        level = street.light.ambient + (1 - street.light.ambient) * street.uniform(0.3, 1.0)
        street.add(replace(made, light=(level,) * 3))


def car(street: Street, *, parked: bool) -> None:
    """A body and a cabin; or a van: one tall box with windows."""
    rng, metre = street.rng, street.metre
    foot, disparity = street.somewhere(0.85)
    heading = float(
        rng.choice([0.0, np.pi, np.pi / 2, -np.pi / 2], p=[0.42, 0.42, 0.08, 0.08])
    ) + street.uniform(-0.15, 0.15)
    if parked:  # along the road, on either side of it
        foot[0] = np.copysign(street.half_road - street.uniform(-0.5, 1.5) * metre, foot[0])
        column = street.uniform(0, 1) * street.width - street.camera.centre[0]
        if 4 < column / foot[0] < 0.9 * street.largest:
            disparity = column / foot[0]
            foot[2] = street.camera.focal / disparity
    length, width = street.uniform(3.6, 5) * metre, street.uniform(1.6, 1.95) * metre
    if foot[2] - length / 2 < 2 or street.camera.focal / (foot[2] - length / 2) > 1.3 * street.largest:
        return
    if not street.camera.sees(Block(foot, heading, length, width, 2 * metre).corners()):
        return
    colour = looks.paint_colour(rng)
    rows, columns = street.texels(0.9 * metre, disparity, 160), street.texels(length, disparity)
    across = street.texels(width, disparity, 200)
    van = rng.random() < 0.25
    height = street.uniform(1.7, 2.6) * metre if van else street.uniform(0.75, 1.0) * metre
    lifted = foot - np.array([0, 0.14 * metre, 0])
    skins = {
        "side": looks.body(rng, colour, rows, columns, length / height, 0.34 * metre / height),
        "front": looks.body(rng, colour, rows, across),
        "rear": looks.body(rng, colour, rows, across),
    }
    skins["top"] = looks.shining(
        np.broadcast_to(colour * 1.1, (8, 8, 3)), np.full((8, 8), street.uniform(0.1, 0.5))
    )
    if not block(street, Block(lifted, heading, length, width, height), skins):
        return
    street.cast(
        Block(foot, heading, 0.95 * length, width, height).ring(False), 0.9 * (height if van else 1.4 * metre)
    )
    shift = street.uniform(-0.12, 0.02) * length
    glass_rows = street.texels(0.55 * metre, disparity, 96)
    glass = {
        "side": looks.windows(rng, colour, glass_rows, columns, int(rng.integers(2, 5))),
        "front": looks.windows(rng, colour, glass_rows, across, 1),
        "rear": looks.windows(rng, colour, glass_rows, across, 1),
        "top": skins["top"],
    }
    if van:
        return
    cabin = Block(
        lifted - np.array([0, height, 0]) + shift * np.array([np.sin(heading), 0, np.cos(heading)]),
        heading,
        length * street.uniform(0.55, 0.75),
        width * 0.94,
        street.uniform(0.45, 0.65) * metre,
        top_length=street.uniform(0.6, 0.85),
        top_width=street.uniform(0.75, 0.9),
        top_shift=street.uniform(-0.08, 0.02),
    )
    block(street, cabin, glass)


def post(street: Street) -> None:
    """A lamp post, a bollard, a mast with lights or with a sign: up from the ground."""
    rng, metre = street.rng, street.metre
    foot, disparity = street.somewhere(0.9, 4.0)
    if rng.random() < 0.5:
        foot[0] = rng.choice([-1, 1]) * (street.half_road + street.uniform(-0.5, 3) * metre)
    width = min(max(street.log_uniform(0.05, 0.3) * metre, 2.0 / disparity), 16 / disparity)
    height = street.uniform(0.7, 1.2) * metre if rng.random() < 0.3 else street.uniform(2, 9) * metre
    rows, columns = street.texels(height, disparity, 200), 10
    lean = float(rng.normal(0, 0.02))
    board(street, foot, width, height, looks.post(rng, rows, columns), cutout=False, lean=lean)
    street.cast([foot - width / 2 * RIGHT, foot + width / 2 * RIGHT], height)
    if height < 1.5 * metre or rng.random() < 0.4:
        return
    front = foot - np.array([0, height * street.uniform(0.5, 0.9), 0.05 * metre])
    size = street.uniform(0.3, 1.0) * metre
    n = street.texels(size, disparity, 96)
    if rng.random() < 0.6:
        mask = shapes.random_shape(rng, n, n)
        plate = street.library.skin(rng, n, n) if rng.random() < 0.3 else looks.post(rng, n, n)
        board(street, front, size, size, cut(plate, mask), cutout=True)
    else:
        board(street, front, 0.4 * size, size, looks.post(rng, n, n), cutout=False)


def tree(street: Street) -> None:
    rng, metre = street.rng, street.metre
    foot, disparity = street.somewhere(0.7, 3.0)
    if abs(foot[0]) < street.half_road:
        foot[0] = np.copysign(street.half_road + street.uniform(0, 8) * metre, foot[0])
    trunk, width = street.uniform(0.5, 4) * metre, street.uniform(0.15, 0.6) * metre
    bark = street.library.skin(rng, street.texels(trunk, disparity, 200), street.texels(width, disparity, 64))
    board(
        street,
        foot,
        width,
        1.3 * trunk,
        bark * torch.tensor([0.5, 0.45, 0.4, 1])[:, None, None],
        cutout=False,
        lean=float(rng.normal(0, 0.05)),
    )
    size = street.uniform(2, 7) * metre
    for _ in range(int(rng.integers(1, 4))):
        away = np.array(
            [
                street.uniform(-0.4, 0.4) * size,
                -trunk - street.uniform(-0.2, 0.4) * size,
                street.uniform(-0.3, 0.3) * size,
            ]
        )
        w, h = size * street.uniform(0.6, 1.2), size * street.uniform(0.5, 1)
        n = street.texels(size, disparity, 256)
        if (foot + away)[2] > 3:
            board(street, foot + away, w, h, looks.leaves(rng, n, n), cutout=True)
    street.cast([foot + np.array([i, 0, j]) * size / 4 for i in (-1, 1) for j in (-1, 1)], trunk + size / 2)


def standing(street: Street) -> None:
    """A person, an animal, a thing: a cut-out, or a shape with a photograph's look."""
    rng, metre = street.rng, street.metre
    foot, disparity = street.somewhere(0.95, 5.0)
    height = street.uniform(0.4, 2.1) * metre
    texture = street.library.cutout(rng)
    if texture is None:
        n = street.texels(height, disparity, 256)
        texture = cut(street.library.skin(rng, n, n), shapes.random_shape(rng, n, n))
    width = height * texture.shape[2] / texture.shape[1]
    board(street, foot, width, height, texture, cutout=True)
    street.cast([foot - width / 3 * RIGHT, foot + width / 3 * RIGHT], height)
