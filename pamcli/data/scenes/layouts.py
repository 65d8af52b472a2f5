"""What stands where in a scene: loose layers, a road, or a room, filled with objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from torch import Tensor

from pamcli.data.scenes import shapes
from pamcli.data.scenes.render import Layer
from pamcli.data.scenes.streets import make_street
from pamcli.data.scenes.surfaces import STEEPEST, Surface, Wave
from pamcli.data.scenes.textures import TextureLibrary, cut

SMALLEST_RANGE = 6
"""Every scene's largest disparity is at least about this, pixels."""

LARGEST_PART = 0.4
"""And at most about this part of the width: what is nearer leaves the right view."""

USUAL_RANGE = 40.0, 120.0
"""Of the largest disparity, pixels, as cameras on cars and on desks have it ..."""

USUAL = 0.55
"""... and the share of such scenes."""

STREETS = 0.45
"""Share of the scenes."""


MOST_STRETCHED = 1.5
"""Cut-outs keep their shape up to this factor between width and height."""

CLOSEST = 1.2
"""Walls, floors and ceilings come at most this much nearer than the nearest things, within the view."""


@dataclass(frozen=True)
class Scene:
    """Layers and how the rig is off."""

    layers: tuple[Layer, ...]
    drift: tuple[float, float]
    """See `render`."""


@dataclass
class _Stage:
    """The camera and the tools with which a scene is put together."""

    rng: Generator
    library: TextureLibrary
    height: int
    width: int
    largest: float
    """Disparity of the nearest things, pixels."""
    focal: float

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def log_uniform(self, low: float, high: float) -> float:
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    @property
    def centre(self) -> tuple[float, float]:
        return self.width / 2, self.height / 2

    def endless(
        self,
        surface: Surface,
        clips: tuple[tuple[float, float, float], ...] = (),
        density: float | None = None,
    ) -> Layer:
        """A ground, wall or backdrop."""
        texture = self.library.background(self.rng)
        size = min(texture.shape[1:])
        density = density or self.log_uniform(0.6, 2.2)
        x = self.uniform(0.2, 0.8) * self.width
        y = self.uniform(0.2, 0.8) * self.height
        if surface.disparity_at(x, y) <= 0.2:  # beyond the horizon: anchor the texture where the plane is
            y = self.height - 1.0 if surface.c > 0 else 0.0
            x = (0.0 if surface.b < 0 else self.width - 1.0) if surface.b else x
        if surface.disparity_at(x, y) <= 0.2:
            density = 1.0
        homography = surface.texture_map(
            (x, y), (size / 2, size / 2), (density, density), 0.0, self.focal, self.centre
        )
        return Layer(surface, texture, homography, endless=True, clips=clips)

    def upright(
        self, disparity: float, x: float, foot: float, height: float, width: float, tilt: float = 0.6
    ) -> Layer | None:
        """An object of about `width` x `height` pixels, the middle of its lower edge at (x, foot)."""
        return self.thing(disparity, x, foot, height, width, tilt, 0.15, 0.1, standing=True)

    def thing(
        self,
        disparity: float,
        x: float,
        y: float,
        height: float,
        width: float,
        tilt_x: float,
        tilt_y: float,
        turn: float,
        *,
        standing: bool = False,
        thin: bool = False,
    ) -> Layer | None:
        """An object around (x, y), or standing on it; None where it would be too small to see.

        tilt_x, tilt_y, turn: standard deviations of angles (radians): about the upright and the level axis,
        and about the line of sight.
        """
        rng = self.rng
        if min(height, width) < 3 or height * width < 24:
            return None
        texture, height, width = self._look(height, width, thin)
        rows, columns = texture.shape[1:]
        if standing:
            y -= height / 2
        surface = Surface.tilted(
            disparity, x, y, self.angle(tilt_x, 1.2), self.angle(tilt_y, 1.2), self.focal
        )
        homography = surface.texture_map(
            (x, y),
            ((columns - 1) / 2, (rows - 1) / 2),
            (columns / width, rows / height),
            self.angle(turn, 3.2),
            self.focal,
            self.centre,
        )
        if not thin and rng.random() < 0.25:
            surface = self.waved(surface, min(0.15 * disparity, 0.1 * width))
        # In perspective an object tilted away stays within twice its diagonal.
        reach = 1.1 * float(np.hypot(height, width))
        return Layer(surface, texture, homography, box=(x - reach, y - reach, x + reach, y + reach))

    def angle(self, spread: float, most: float) -> float:
        return float(np.clip(self.rng.normal(0, spread), -most, most))

    def _look(self, height: float, width: float, thin: bool) -> tuple[Tensor, float, float]:
        """A texture for an object of about this size, with the height and width that it is to have."""
        rng = self.rng
        if not thin and rng.random() < 0.5:
            texture = self.library.cutout(rng)
            if texture is not None:
                own = texture.shape[2] / texture.shape[1]
                aspect = own * float(np.clip(width / height / own, 1 / MOST_STRETCHED, MOST_STRETCHED))
                area = height * width
                return texture, (area / aspect) ** 0.5, (area * aspect) ** 0.5
        rows, columns = int(np.clip(height, 3, 512)), int(np.clip(width, 3, 512))
        outline = shapes.thin_shape if thin else shapes.random_shape
        return cut(self.library.skin(rng, rows, columns), outline(rng, rows, columns)), height, width

    def slope(self, slope: float, vanishing: float) -> float:
        """Disparity per column of a wall from the column `vanishing` on, as steep as `CLOSEST` lets it be."""
        room = vanishing if slope < 0 else self.width - vanishing
        most = CLOSEST * self.largest / max(room, 0.1 * self.width)
        return float(np.clip(slope, -min(most, 2.0), min(most, 0.7)))

    def waved(self, surface: Surface, amplitude: float) -> Surface:
        """The surface, curved by one to three waves of at most `amplitude` pixels together."""
        rng, waves = self.rng, []
        room = STEEPEST * 0.9 - max(surface.b, 0)
        for _ in range(int(rng.integers(1, 4))):
            length = self.log_uniform(0.08, 1.0) * self.width
            direction = self.uniform(0, np.pi)
            k = 2 * np.pi / length
            size = self.uniform(0.1, 1.0) * amplitude / 3
            size = min(size, room / 3 / k)
            waves.append(
                Wave(size, k * float(np.cos(direction)), k * float(np.sin(direction)), self.uniform(0, 6.3))
            )
        return Surface(surface.a, surface.b, surface.c, tuple(waves))


def make_scene(rng: Generator, library: TextureLibrary, height: int, width: int) -> Scene:
    """A random scene for views of (height, width) pixels."""
    if rng.random() < USUAL:
        largest = float(rng.uniform(*USUAL_RANGE)) * min(1.0, LARGEST_PART * width / USUAL_RANGE[1])
    else:
        largest = float(np.exp(rng.uniform(np.log(SMALLEST_RANGE), np.log(LARGEST_PART * width))))
    if rng.random() < STREETS:
        return Scene(tuple(make_street(rng, library, height, width, largest)), _drift(rng))
    stage = _Stage(rng, library, height, width, largest, focal=width * float(rng.uniform(0.7, 1.6)))
    layout = (_loose, _road, _room)[rng.choice(3, p=[0.5, 0.15, 0.35])]
    layers = [layer for layer in layout(stage) if layer is not None]
    layers += [layer for layer in _thin_things(stage) if layer is not None]
    backdrop = min(stage.uniform(0.01, 2), 0.1 * largest)
    layers.append(stage.endless(Surface(backdrop), density=stage.uniform(0.5, 1.5)))
    return Scene(tuple(layers), _drift(rng))


def _drift(rng: Generator) -> tuple[float, float]:
    if rng.random() < 0.5:
        return 0.0, 0.0
    return float(np.clip(rng.normal(0, 0.3), -1, 1)), float(np.clip(rng.normal(0, 0.3), -1, 1))


def _few_or_many(rng: Generator, least: int, most: int) -> int:
    return int(rng.integers(least, 8 if rng.random() < 0.6 else most))


def _loose(stage: _Stage) -> list[Layer | None]:
    """A tilted or curved background and objects anywhere before it."""
    rng = stage.rng
    far = stage.uniform(0.02, 0.4) * stage.largest
    x, y = stage.centre
    tilt = stage.uniform(0, 0.65)
    wall = Surface.tilted(far, x, y, stage.angle(tilt, 1.2), stage.angle(tilt, 1.2), stage.focal)
    if rng.random() < 0.4:
        wall = stage.waved(wall, 0.5 * far)
    layers: list[Layer | None] = [stage.endless(wall)]
    for _ in range(_few_or_many(rng, 2, 22)):
        disparity = far + (stage.largest - far) * float(rng.beta(1, 1.5))
        height, width = _extent(stage)
        layers.append(
            stage.thing(
                disparity,
                stage.uniform(-0.05, 1.15) * stage.width,
                stage.uniform(-0.05, 1.05) * stage.height,
                height,
                width,
                0.5,
                0.5,
                rng.choice([0.1, 1.0]),
            )
        )
    return layers


def _road(stage: _Stage) -> list[Layer | None]:
    """Ground up to a horizon, walls along it, and things that stand on it."""
    rng = stage.rng
    horizon = stage.uniform(-0.1, 0.7) * stage.height
    vanishing = stage.uniform(-0.3, 1.3) * stage.width
    below = max(stage.height - horizon, 0.2 * stage.height)
    fall = stage.largest / below  # disparity per row below the horizon
    roll = float(rng.normal(0, 0.02)) * fall
    ground = Surface(-fall * horizon - roll * stage.width / 2, roll, fall)
    if rng.random() < 0.3:
        ground = stage.waved(ground, 0.02 * stage.largest)
    layers: list[Layer | None] = [stage.endless(ground, density=stage.log_uniform(0.6, 2.5))]
    for side in (-1, 1):
        if rng.random() < 0.6:
            rise = stage.slope(stage.log_uniform(0.3, 2.0) * fall * side, vanishing)
            wall = Surface(-rise * vanishing, rise, 0.0)
            top = stage.log_uniform(0.3, 20.0) / fall  # rows above the horizon per pixel of disparity
            clip = (top * rise, 1.0, -horizon - top * rise * vanishing)
            layers.append(stage.endless(wall, (clip,), density=stage.log_uniform(0.6, 2.5)))
    for _ in range(_few_or_many(rng, 3, 22)):
        disparity = stage.log_uniform(max(1.0, 0.03 * stage.largest), stage.largest)
        foot = horizon + disparity / fall
        height = disparity / fall * stage.log_uniform(0.3, 4.0)
        width = height * stage.log_uniform(0.15, 3.0)
        x = stage.uniform(-0.1, 1.2) * stage.width
        layers.append(stage.upright(disparity, x, foot + stage.uniform(0, 0.05) * height, height, width))
    return layers


def _room(stage: _Stage) -> list[Layer | None]:
    """The inside of a box seen towards its back wall, furniture and things in it."""
    rng = stage.rng
    x, y = stage.uniform(0.2, 0.8) * stage.width, stage.uniform(0.2, 0.8) * stage.height
    back = stage.uniform(0.15, 0.6) * stage.largest
    layers: list[Layer | None] = [
        stage.endless(Surface.tilted(back, x, y, rng.normal(0, 0.2), rng.normal(0, 0.1), stage.focal))
    ]
    near = back / (CLOSEST * stage.largest)
    # Rows from the vanishing point to the foot of the wall, and to its top.
    floor = max(stage.uniform(0.1, 0.6) * stage.height, near * (stage.height - y))
    layers.append(stage.endless(Surface(-back * y / floor, 0.0, back / floor)))
    if rng.random() < 0.4:
        ceiling = max(stage.uniform(0.15, 0.7) * stage.height, near * y)
        layers.append(stage.endless(Surface(back * y / ceiling, 0.0, -back / ceiling)))
    for side in (-1, 1):
        if rng.random() < 0.5:
            slope = stage.slope(side * back / (stage.uniform(0.15, 0.8) * stage.width), x)
            layers.append(stage.endless(Surface(-slope * x, slope, 0.0)))
    for _ in range(int(rng.integers(0, 3))):  # table tops: planes above the floor, cut to a quadrangle
        layers.append(_table(stage, y, back / floor))
    for _ in range(_few_or_many(rng, 3, 18)):
        disparity = back + (stage.largest - back) * float(rng.beta(1, 1.3))
        height, width = _extent(stage)
        at = stage.uniform(-0.05, 1.15) * stage.width
        if rng.random() < 0.5:
            foot = y + disparity * floor / back
            layers.append(stage.upright(disparity, at, foot, height, width))
        else:
            row = stage.uniform(0, 1) * stage.height
            layers.append(stage.thing(disparity, at, row, height, width, 0.6, 0.5, 0.5))
    return layers


def _table(stage: _Stage, horizon: float, fall: float) -> Layer | None:
    lift = fall * stage.uniform(1.2, 2.5)
    near = horizon + stage.uniform(0.2, 0.9) * stage.largest / lift
    far = horizon + stage.uniform(0.4, 0.9) * (near - horizon)
    left = stage.uniform(-0.2, 0.6) * stage.width
    right = left + stage.uniform(0.2, 0.6) * stage.width
    lean = stage.uniform(-0.5, 0.5)
    clips = (
        (0.0, 1.0, -far),
        (0.0, -1.0, near),
        (1.0, lean, -left - lean * near),
        (-1.0, lean, right - lean * near),
    )
    return stage.endless(Surface(-lift * horizon, 0.0, lift), clips)


def _thin_things(stage: _Stage) -> list[Layer | None]:
    """Poles, fences, nets, wires: in about half of the scenes."""
    rng = stage.rng
    layers: list[Layer | None] = []
    for _ in range(int(rng.choice([0, 1, 2, 4], p=[0.5, 0.2, 0.2, 0.1]))):
        disparity = stage.uniform(0.15, 1.0) * stage.largest
        x, y = stage.uniform(0, 1.1) * stage.width, stage.uniform(0, 1) * stage.height
        if rng.random() < 0.5:  # a pole
            width, height = stage.log_uniform(3, 12), stage.log_uniform(0.3, 2) * stage.height
            layers.append(stage.thing(disparity, x, y, height, width, 0.2, 0.2, 0.1))
        else:
            height, width = _extent(stage)
            layers.append(stage.thing(disparity, x, y, height, width, 0.6, 0.3, 0.1, thin=True))
    return layers


def _extent(stage: _Stage) -> tuple[float, float]:
    """Height and width of a loose object, pixels."""
    size = stage.log_uniform(0.06 if stage.rng.random() < 0.4 else 0.25, 0.95) * min(
        stage.height, 0.7 * stage.width
    )
    aspect = stage.log_uniform(0.4, 2.5)
    return size * aspect**-0.5, size * aspect**0.5
