"""The tools with which loose layers and rooms are put together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from torch import Tensor

from pamcli.data.scenes import shapes
from pamcli.data.scenes.render import Layer
from pamcli.data.scenes.surfaces import STEEPEST, Surface, Wave
from pamcli.data.scenes.textures import TextureLibrary, cut

MOST_STRETCHED = 1.5
"""Cut-outs keep their shape up to this factor between width and height."""

CLOSEST = 1.2
"""Walls, floors and ceilings come at most this much nearer than the nearest things, within the view."""


@dataclass
class Stage:
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

    def extent(self) -> tuple[float, float]:
        """Height and width of a loose object, pixels."""
        size = self.log_uniform(0.06 if self.rng.random() < 0.4 else 0.25, 0.95) * min(
            self.height, 0.7 * self.width
        )
        aspect = self.log_uniform(0.4, 2.5)
        return size * aspect**-0.5, size * aspect**0.5
