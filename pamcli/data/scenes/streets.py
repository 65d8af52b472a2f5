"""Streets: smooth roads with marks and curbs, houses, parked cars, many posts, trees, under a bright sky."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from pamcli.data.scenes import looks
from pamcli.data.scenes.render import Decal, Layer
from pamcli.data.scenes.solids import AHEAD, DOWN, RIGHT, Block, Camera, Light
from pamcli.data.scenes.street_things import Street, car, post, standing, tree
from pamcli.data.scenes.surfaces import Surface
from pamcli.data.scenes.textures import TextureLibrary


def make_street(rng: Generator, library: TextureLibrary, height: int, width: int, largest: float) -> Street:
    """largest: disparity of the nearest things, pixels. The layers cover both views."""

    def uniform(low: float, high: float) -> float:
        return float(rng.uniform(low, high))

    horizon, vanishing = uniform(0.05, 0.65) * height, uniform(0.0, 1.1) * width
    at_foot = largest * uniform(0.5, 0.95)
    focal = float(np.exp(rng.uniform(np.log(0.55), np.log(1.5)))) * width
    camera = Camera(focal, (vanishing, horizon), (height - horizon) / at_foot, (width, height))
    metre = camera.height / uniform(1.2, 2.3)
    turn, rise = uniform(0, 2 * np.pi), uniform(0.4, 1.2)
    direction = np.array([np.cos(turn) * np.cos(rise), np.sin(rise), np.sin(turn) * np.cos(rise)])
    overcast = rng.random() < 0.35
    street = Street(
        *(rng, library, height, width, largest, camera),
        light=Light(direction, uniform(0.7, 0.95) if overcast else uniform(0.25, 0.6)),
        metre=metre,
        half_road=uniform(2.5, 7) * metre,
        darkness=uniform(0, 0.3) if overcast else uniform(0.4, 0.8),
        reflection=looks.surroundings(rng, library),
    )
    for side in (-1, 1):
        if rng.random() < 0.7:
            _houses(street, side)
        if rng.random() < 0.6:
            _curb(street, side)
    _far_things(street)
    for attempt in range(int(rng.integers(1, 9))):
        car(street, parked=attempt % 3 > 0)
    for thing, least, most in ((tree, 0, 5), (post, 2, 11), (standing, 0, 5)):
        for _ in range(int(rng.integers(least, most))):
            thing(street)
    _ground(street)
    _sky(street)
    return street


def _ground(street: Street) -> None:
    """With marks, and what shadows have fallen on it."""
    rng, camera, metre = street.rng, street.camera, street.metre
    texel = metre * street.log_uniform(0.008, 0.03)
    texture = looks.asphalt(rng, 384) if rng.random() < 0.7 else street.library.background(rng)
    origin = np.array([0.0, camera.height, 1.0])
    homography, surface = camera.frame(origin, texel * RIGHT, texel * AHEAD)
    decals = [*_marks(street), *street.shadows]
    if rng.random() < 0.3:
        dark = looks.dapples(rng, 256, street.darkness)
        spot, _ = camera.frame(origin, street.uniform(0.02, 0.1) * metre * RIGHT, 0.06 * metre * AHEAD)
        decals.append(Decal(dark, spot, endless=True))
    light = street.light.on(DOWN)
    street.add(Layer(surface, texture, homography, endless=True, light=light, decals=tuple(decals)))


def _marks(street: Street) -> list[Decal]:
    """Lines along the road, whole or dashed, and now and then across it."""
    rng, camera, metre = street.rng, street.camera, street.metre
    marks, worn = [], street.uniform(0.4, 1.0)
    for _ in range(int(rng.integers(0, 5))):
        origin = np.array([street.uniform(-1, 1) * street.half_road, camera.height, 1.5 * metre])
        texture = torch.full((4, 600, 6), worn)
        if rng.random() < 0.5:
            period, part = street.uniform(20, 90), street.uniform(0.3, 0.6)
            texture *= ((torch.arange(600) / period) % 1 < part)[:, None]
        texture[:3] *= street.uniform(0.75, 1.0)
        sideways, along = street.uniform(0.1, 0.25) * metre / 6 * RIGHT, 0.1 * metre * AHEAD
        if rng.random() < 0.15:  # across
            origin = np.array([-30 * metre, camera.height, street.uniform(4, 20) * metre])
            sideways, along = 4 * sideways[[2, 1, 0]], along[[2, 1, 0]]
        marks.append(Decal(texture, camera.frame(origin, sideways, along)[0]))
    return marks


def _sky(street: Street) -> None:
    rng = street.rng
    disparity = min(street.uniform(0.0, 0.5), 0.05 * street.largest)
    texture = looks.sky(rng) if rng.random() < 0.75 else street.library.background(rng)
    rows, columns = texture.shape[1:]
    fitting = rows / max(street.camera.centre[1], 20.0)
    scale = fitting if rng.random() < 0.75 else street.uniform(0.5, 1.5)
    homography = np.array([[scale, 0, columns / 3], [0, scale, 0], [0, 0, 1]])
    street.add(Layer(Surface(disparity), texture, homography, endless=True))


def _houses(street: Street, side: int) -> None:
    """A row of them along one side of the road."""
    rng, metre, camera = street.rng, street.metre, street.camera
    edge = street.width - camera.centre[0] if side > 0 else camera.centre[0]
    line = max(street.half_road + street.uniform(1, 8) * metre, edge / (1.1 * street.largest), 1.5)
    z, depth = street.uniform(1, 12) * metre, 10 * metre
    for _ in range(int(rng.integers(1, 5))):
        storeys, bays = int(rng.integers(2, 6)), int(rng.integers(3, 8))
        height, length = storeys * street.uniform(2.8, 4.0) * metre, street.uniform(6, 30) * metre
        foot = np.array([side * (line + depth / 2), camera.height, z + length / 2])
        house = Block(foot, 0.0, length, depth, height)
        z += length + (street.uniform(1, 12) * metre if rng.random() < 0.4 else 0.0)
        line += street.uniform(-0.5, 1.5) * metre
        if camera.sees(house.corners()):
            wall = looks.facade(rng, street.library, 384, 384, storeys, bays)
            per_metre = 384 / bays / (street.uniform(2, 4) * metre)
            sides = {"left": length, "right": length, "front": depth, "rear": depth}
            texels = {name: (size * per_metre, 384.0) for name, size in sides.items()}
            shine = street.shine(camera.focal / max(house.nearest(), 1.0))
            street.add_block(house, street.light, _looks(wall, wall[:, :8, :8]), texels, shine)


def _looks(side: Tensor, top: Tensor) -> Callable[[str, int, int], Tensor]:
    """Of the faces of a block, for `Stage.add_block`."""
    return lambda name, rows, columns: top if name == "top" else side


def _curb(street: Street, side: int) -> None:
    camera, metre = street.camera, street.metre
    width, length = street.uniform(1.5, 12) * metre, 80 * metre
    foot = np.array([side * (street.half_road + width / 2), camera.height, length / 2 + 0.3])
    smooth = street.rng.random() < 0.6
    top = looks.asphalt(street.rng, 128) if smooth else street.library.background(street.rng)
    rim = (top[:, :16] * 1.1).clamp(max=1)
    scale = 1 / (street.log_uniform(0.01, 0.03) * metre)
    along = length * scale
    texels = {"top": (along, width * scale), "left": (along, 16.0), "right": (along, 16.0)}
    curb = Block(foot, 0.0, length, width, street.uniform(0.08, 0.2) * metre)
    street.add_block(curb, street.light, _looks(rim, top), texels)


def _far_things(street: Street) -> None:
    """A hedge, a row of trees, a photograph: something at the end of the road."""
    rng, library = street.rng, street.library
    for _ in range(int(rng.integers(1, 4))):
        disparity = street.log_uniform(1.0, max(1.5, 0.12 * street.largest))
        foot = street.camera.ground_at(street.uniform(-0.2, 1.2) * street.width, disparity)
        size = rng.uniform((0.2, 0.05), (1.0, 0.4)) * street.width / disparity
        rows, columns = street.texels(size[1], disparity, 256), street.texels(size[0], disparity, 512)
        kind = rng.choice(3, p=[0.6, 0.2, 0.2])
        if kind == 0:
            texture = looks.leaves(rng, rows, columns)
        elif kind == 1:
            texture = looks.facade(rng, library, rows, columns, 3, 7)
        else:
            texture = library.skin(rng, rows, columns)
        street.board(foot, (size[0], size[1]), texture, cutout=kind == 0)
