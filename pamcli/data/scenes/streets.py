"""Streets: smooth roads with marks and curbs, houses, parked cars, many posts, trees, under a bright sky."""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from pamcli.data.scenes import looks
from pamcli.data.scenes.render import Decal, Layer
from pamcli.data.scenes.solids import Block, Camera, Light
from pamcli.data.scenes.street_things import (
    AHEAD,
    DOWN,
    RIGHT,
    Street,
    block,
    board,
    car,
    post,
    standing,
    tree,
)
from pamcli.data.scenes.surfaces import Surface
from pamcli.data.scenes.textures import TextureLibrary


def make_street(
    rng: Generator, library: TextureLibrary, height: int, width: int, largest: float
) -> list[Layer]:
    """largest: disparity of the nearest things, pixels. The layers cover both views."""

    def uniform(low: float, high: float) -> float:
        return float(rng.uniform(low, high))

    horizon = uniform(0.05, 0.65) * height
    vanishing = uniform(0.0, 1.1) * width
    at_foot = largest * uniform(0.5, 0.95)
    focal = float(np.exp(rng.uniform(np.log(0.55), np.log(1.5)))) * width
    camera = Camera(focal, (vanishing, horizon), (height - horizon) / at_foot, (width, height))
    metre = camera.height / uniform(1.2, 2.3)
    turn, rise = uniform(0, 2 * np.pi), uniform(0.4, 1.2)
    direction = np.array([np.cos(turn) * np.cos(rise), np.sin(rise), np.sin(turn) * np.cos(rise)])
    overcast = rng.random() < 0.35
    light = Light(direction, uniform(0.7, 0.95) if overcast else uniform(0.25, 0.6))
    street = Street(
        rng, library, camera, light, metre, width, largest, uniform(2.5, 7) * metre,
        darkness=uniform(0, 0.3) if overcast else uniform(0.4, 0.8),
        reflection=looks.surroundings(rng, library),
    )  # fmt: skip
    for side in (-1, 1):
        if rng.random() < 0.7:
            _houses(street, side)
        if rng.random() < 0.6:
            _curb(street, side)
    _far_things(street)
    for attempt in range(int(rng.integers(1, 9))):
        car(street, parked=attempt % 3 > 0)
    for _ in range(int(rng.integers(0, 5))):
        tree(street)
    for _ in range(int(rng.integers(2, 11))):
        post(street)
    for _ in range(int(rng.integers(0, 5))):
        standing(street)
    street.add(_ground(street))
    _sky(street)
    return street.layers


def _ground(street: Street) -> Layer:
    rng, camera = street.rng, street.camera
    texel = street.metre * street.log_uniform(0.008, 0.03)
    texture = looks.asphalt(rng, 384) if rng.random() < 0.7 else street.library.background(rng)
    origin = np.array([0.0, camera.height, 1.0])
    homography, surface, _ = camera.frame(origin, texel * RIGHT, texel * AHEAD)
    decals = street.shadows
    if rng.random() < 0.3:
        dark = looks.dapples(rng, 256, street.darkness)
        spot, _, _ = camera.frame(
            origin, street.uniform(0.02, 0.1) * street.metre * RIGHT, 0.06 * street.metre * AHEAD
        )
        decals = [*decals, Decal(dark, spot, endless=True)]
    light = street.light.on(DOWN)
    return Layer(
        surface, texture, homography, endless=True, light=(light,) * 3, decals=(*_marks(street), *decals)
    )


def _marks(street: Street) -> list[Decal]:
    """Lines along the road, whole or dashed, and now and then across it."""
    rng, camera, metre = street.rng, street.camera, street.metre
    marks = []
    worn = street.uniform(0.4, 1.0)
    for _ in range(int(rng.integers(0, 5))):
        x = street.uniform(-1, 1) * street.half_road
        long, across = 600, rng.random() < 0.15
        on = np.ones(long)
        if rng.random() < 0.5:
            period, part = street.uniform(20, 90), street.uniform(0.3, 0.6)
            on = ((np.arange(long) / period) % 1 < part).astype(float)
        opacity = np.repeat(np.repeat(on[:, None], 6, 1)[..., None], 4, 2) * worn
        opacity[..., :3] *= street.uniform(0.75, 1.0)
        texture = torch.from_numpy(np.ascontiguousarray(opacity.transpose(2, 0, 1), np.float32))
        step, width = 0.1 * metre, street.uniform(0.1, 0.25) * metre / 6
        origin = np.array([x, camera.height, 1.5 * metre])
        sideways, along = width * RIGHT, step * AHEAD
        if across:
            origin, sideways, along = (
                np.array([-30 * metre, camera.height, street.uniform(4, 20) * metre]),
                4 * width * AHEAD,
                step * RIGHT,
            )
        homography, _, _ = camera.frame(origin, sideways, along)
        marks.append(Decal(texture, homography))
    return marks


def _sky(street: Street) -> None:
    disparity = min(street.uniform(0.0, 0.5), 0.05 * street.largest)
    rng = street.rng
    texture = looks.sky(rng) if rng.random() < 0.75 else street.library.background(rng)
    rows, columns = texture.shape[1:]
    horizon = max(street.camera.centre[1], 20.0)
    scale = rows / horizon if rng.random() < 0.75 else street.uniform(0.5, 1.5)
    homography = np.array([[scale, 0, columns / 3], [0, scale, 0], [0, 0, 1]])
    street.add(Layer(Surface(disparity), texture, homography, endless=True))


def _houses(street: Street, side: int) -> None:
    rng, metre, camera = street.rng, street.metre, street.camera
    edge = street.width - camera.centre[0] if side > 0 else camera.centre[0]
    line = max(street.half_road + street.uniform(1, 8) * metre, edge / (1.1 * street.largest), 1.5)
    z, count = street.uniform(1, 12) * metre, int(rng.integers(1, 5))
    depth = 10 * metre
    for _ in range(count):
        storeys, bays = int(rng.integers(2, 6)), int(rng.integers(3, 8))
        height = storeys * street.uniform(2.8, 4.0) * metre
        length = street.uniform(6, 30) * metre
        bay = street.uniform(2, 4) * metre
        foot = np.array([side * (line + depth / 2), camera.height, z + length / 2])
        house = Block(foot, 0.0, length, depth, height)
        z += length + (street.uniform(1, 12) * metre if rng.random() < 0.4 else 0.0)
        line += street.uniform(-0.5, 1.5) * metre
        if not camera.sees(house.corners()):
            continue
        texture = looks.facade(rng, street.library, 384, 384, storeys, bays)
        per_bay = 384 / bays / bay
        texels = {name: (size * per_bay, 384.0) for name, size in
                  (("left", length), ("right", length), ("front", depth), ("rear", depth))}  # fmt: skip
        block(street, house, {"side": texture, "top": texture[:, :8, :8]}, texels)


def _curb(street: Street, side: int) -> None:
    camera, metre = street.camera, street.metre
    width, length = street.uniform(1.5, 12) * metre, 80 * metre
    foot = np.array([side * (street.half_road + width / 2), camera.height, length / 2 + 0.3])
    if street.rng.random() < 0.6:
        top = looks.asphalt(street.rng, 128)
    else:
        top = street.library.background(street.rng)
    rim = top[:, :16] * 1.1
    scale = 1 / (street.log_uniform(0.01, 0.03) * metre)
    texels = {
        "top": (length * scale, width * scale),
        "left": (length * scale, 16.0),
        "right": (length * scale, 16.0),
    }
    block(
        street,
        Block(foot, 0.0, length, width, street.uniform(0.08, 0.2) * metre),
        {"side": rim.clamp(max=1), "top": top},
        texels,
    )


def _far_things(street: Street) -> None:
    """A hedge, a row of trees, a photograph: something at the end of the road."""
    rng, camera = street.rng, street.camera
    for _ in range(int(rng.integers(1, 4))):
        disparity = street.log_uniform(1.0, max(1.5, 0.12 * street.largest))
        foot = camera.ground_at(street.uniform(-0.2, 1.2) * street.width, disparity)
        width = street.uniform(0.2, 1.0) * street.width / disparity
        height = street.uniform(0.05, 0.4) * street.width / disparity
        rows, columns = street.texels(height, disparity, 256), street.texels(width, disparity, 512)
        if rng.random() < 0.6:
            board(street, foot, width, height, looks.leaves(rng, rows, columns), cutout=True)
        elif rng.random() < 0.5:
            board(
                street,
                foot,
                width,
                height,
                looks.facade(rng, street.library, rows, columns, 3, 7),
                cutout=False,
            )
        else:
            board(street, foot, width, height, street.library.skin(rng, rows, columns), cutout=False)
