"""Render sequences of pairs with known motion, for scripts that measure flicker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.scenes.render import Decal, Layer, render
from pamcli.scenes.scene import make_scene
from pamcli.scenes.surfaces import Surface, Wave
from pamcli.scenes.textures import TextureLibrary

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """The images of both cameras at one time."""

    left: NDArray[np.uint8]
    """(H, W, 3) RGB."""
    right: NDArray[np.uint8]
    disparity: NDArray[np.float32]
    """(H, W), pixels of the left view."""
    before: NDArray[np.float32]
    """(H, W, 2): x and y of the same surface point in the previous frame."""
    layer: NDArray[np.int64]
    """(H, W): index of the visible surface."""


@dataclass(frozen=True)
class Motion:
    """The motion of a surface: of a point of the left view, and its growth around that point."""

    x: float
    y: float
    across: float
    """Pixels a frame."""
    down: float
    growth: float
    """Share of its size, and of its disparity, a frame."""

    def at(self, time: int) -> Floats:
        """Return the homography (3, 3) from left (x, y, 1) at this time to time 0."""
        scale = (1 + self.growth) ** time
        x, y = self.x + self.across * time, self.y + self.down * time
        return np.array([[1 / scale, 0, self.x - x / scale], [0, 1 / scale, self.y - y / scale], [0, 0, 1]])


def sequence(
    seed: int, height: int, width: int, frames: int, *, walls: bool, things: bool, noise: float
) -> Iterator[Frame]:
    """Render a random scene whose walls move together, and whose objects move separately.

    Motion is at most 3 px per frame along each axis, and 1 % of the distance. `noise`: standard deviation in
    grey levels, independent in each frame.
    """
    rng = np.random.default_rng(seed)
    scene = make_scene(rng, TextureLibrary(), height, width)

    def motion(x: float, y: float, moves: bool) -> Motion:
        across, down, growth = float(moves) * rng.uniform((-3, -3, -0.01), (3, 3, 0.01))
        return Motion(x, y, across, down, growth)

    camera = motion(width / 2, height / 2, walls)
    moves = []
    for layer in scene.layers:
        x0, y0, x1, y1 = layer.box or (0, 0, width, height)
        moves.append(camera if layer.endless else motion((x0 + x1) / 2, (y0 + y1) / 2, things))
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    places = np.stack([columns, rows, np.ones_like(rows)], axis=-1)
    x, y = (torch.from_numpy(part).float() for part in (columns, rows))
    for time in range(frames):
        if time == 0 or walls or things:
            layers = [
                move_layer(layer, move.at(time)) for layer, move in zip(scene.layers, moves, strict=True)
            ]
            views = render(layers, height, width)
            apart = torch.stack([(layer.surface.disparity(x, y) - views.disparity).abs() for layer in layers])
            seen = apart.argmin(dim=0).numpy()
        before = np.zeros((height, width, 2), np.float32)
        for number, move in enumerate(moves):
            back = np.linalg.inv(move.at(time - 1)) @ move.at(time)
            before[seen == number] = (places[seen == number] @ back.T)[:, :2]
        noisy = [
            np.clip(255 * view.permute(1, 2, 0).numpy() + rng.normal(0, noise, (height, width, 3)), 0, 255)
            for view in (views.left.clamp(0, 1), views.right.clamp(0, 1))
        ]
        left, right = (np.rint(view).astype(np.uint8) for view in noisy)
        yield Frame(left, right, views.disparity.numpy().astype(np.float32), before, seen)


def move_layer(layer: Layer, back: Floats) -> Layer:
    """Move a layer by the homography `back` (3, 3), from present to former left (x, y, 1)."""
    shrunk, left, top = back[0, 0], back[0, 2], back[1, 2]
    box = layer.box
    if box is not None:
        box = tuple((side - shift) / shrunk for side, shift in zip(box, (left, top) * 2, strict=True))
    surface = layer.surface
    waves = tuple(
        Wave(
            wave.amplitude / shrunk,
            wave.kx * shrunk,
            wave.ky * shrunk,
            wave.phase + wave.kx * left + wave.ky * top,
        )
        for wave in surface.waves
    )
    shifted = Surface((surface.a + surface.b * left + surface.c * top) / shrunk, surface.b, surface.c, waves)
    return replace(
        layer,
        surface=shifted,
        homography=layer.homography @ back,
        clips=tuple(tuple((np.array(clip) @ back).tolist()) for clip in layer.clips),
        box=box,
        decals=tuple(Decal(each.texture, each.homography @ back, each.endless) for each in layer.decals),
    )
