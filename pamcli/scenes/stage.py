"""Provide the stage of a scene: random generator, textures, camera, light, and the layers so far."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from torch import Tensor

from pamcli.scenes import appearance, textures
from pamcli.scenes.render import Layer, Reflection
from pamcli.scenes.solids import Block, Camera, Light, render_face
from pamcli.scenes.surfaces import STEEPEST, Pair, Surface, Wave
from pamcli.scenes.textures import TextureLibrary, cut

MOST_STRETCHED = 1.5  # largest change of the aspect ratio of cut-outs
CLOSEST = 1.2  # largest disparity of walls and floors, relative to that of the nearest objects


@dataclass
class Stage:
    rng: Generator
    library: TextureLibrary
    height: int
    width: int
    largest: float  # disparity of the nearest objects, px
    camera: Camera
    cases: frozenset[str] = frozenset()  # names from `hard_cases.CASES` that the scene has
    layers: list[Layer] = field(default_factory=list)

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def log_uniform(self, low: float, high: float) -> float:
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def angle(self, spread: float, most: float) -> float:
        return float(np.clip(self.rng.normal(0, spread), -most, most))

    def add(self, *layers: Layer | None) -> None:
        self.layers += [layer for layer in layers if layer is not None]

    def add_block(
        self,
        block: Block,
        light: Light,
        texture: Callable[[str, int, int], Tensor],
        texels: Mapping[str, tuple[float, float]] | None = None,
        reflection: Reflection | None = None,
    ) -> bool:
        """Add a block with textures by face name, rows and columns; return False if it cannot be rendered."""
        disparity = self.camera.focal / max(block.nearest(), 1.0)
        try:
            made = []
            for name, shape in block.faces():
                sides = np.linalg.norm((shape.down, shape.across), axis=1)
                look = texture(name, *np.clip(1.2 * disparity * sides, 8, 400).astype(int).tolist())
                shine = reflection if len(look) == 5 else None
                repeated = (texels or {}).get(name)
                made.append(render_face(self.camera, light, shape, look, texels=repeated, reflection=shine))
        except ValueError:
            return False
        self.add(*made)
        return True

    def background(self, case: str = "walls") -> Tensor:
        """Return a texture for a wall, or for a floor ("floors"): mostly bare if the scene has that case."""
        bare = case in self.cases and self.rng.random() < 0.85
        return textures.bare_surface(self.rng) if bare else self.library.background(self.rng)

    def add_backdrop(
        self,
        surface: Surface,
        clips: Sequence[tuple[float, float, float]] = (),
        density: float = 0.0,
        case: str = "walls",
    ) -> None:
        """Add a ground, wall or backdrop with `density` texels per pixel (0: random); see `background`."""
        texture = self.background(case)
        size = min(texture.shape[1:]) / 2
        density = density or self.log_uniform(0.6, 2.2)
        x, y = self.uniform(0.2, 0.8) * self.width, self.uniform(0.2, 0.8) * self.height
        if surface.disparity_at(x, y) <= 0.2:  # beyond the horizon: anchor the texture on the plane
            y = self.height - 1.0 if surface.c > 0 else 0.0
            x = (0.0 if surface.b < 0 else self.width - 1.0) if surface.b else x
        if surface.disparity_at(x, y) <= 0.2:
            density = 1.0
        lens = self.camera.focal, self.camera.centre
        homography = surface.texture_map((x, y), (size, size), (density, density), 0.0, *lens)
        self.add(Layer(surface, texture, homography, endless=True, clips=tuple(clips)))

    def add_object(
        self, disparity: float, at: Pair, size: Pair, tilt: Pair, turn: float, *, thin: bool = False
    ) -> None:
        """Add an object of about `size` (height, width) px around `at` (x, y), unless too small to see.

        `tilt` and `turn` are standard deviations (radians) about the image axes and the line of sight.
        """
        if min(size) < 3 or size[0] * size[1] < 24:
            return
        texture, height, width = self._look(*size, thin)
        self.add_cutout(texture, disparity, at, (height, width), tilt, turn, 0.0 if thin else 0.25)

    def add_cutout(
        self,
        texture: Tensor,
        disparity: float,
        at: Pair,
        size: Pair,
        tilt: Pair,
        turn: float,
        wavy: float = 0,
    ) -> None:
        """Add a textured object as `add_object` does; `wavy` is the probability that it is curved."""
        (x, y), (height, width), (rows, columns) = at, size, texture.shape[1:]
        tilts = self.angle(tilt[0], 1.2), self.angle(tilt[1], 1.2)
        surface = Surface.tilted(disparity, x, y, *tilts, self.camera.focal)
        middle, density = ((columns - 1) / 2, (rows - 1) / 2), (columns / width, rows / height)
        lens = self.camera.focal, self.camera.centre
        homography = surface.texture_map((x, y), middle, density, self.angle(turn, 3.2), *lens)
        if wavy and self.rng.random() < wavy:
            surface = self.add_waves(surface, min(0.15 * disparity, 0.1 * width))
        # In perspective, an object tilted away stays within twice its diagonal.
        reach = 1.1 * float(np.hypot(height, width))
        self.add(Layer(surface, texture, homography, box=(x - reach, y - reach, x + reach, y + reach)))

    def _look(self, height: float, width: float, thin: bool) -> tuple[Tensor, float, float]:
        """Return a texture for an object of about this size, with its final height and width."""
        rng = self.rng
        if not thin and rng.random() < 0.5 and (texture := self.library.cutout(rng)) is not None:
            own = texture.shape[2] / texture.shape[1]
            aspect = own * float(np.clip(width / height / own, 1 / MOST_STRETCHED, MOST_STRETCHED))
            area = height * width
            return texture, (area / aspect) ** 0.5, (area * aspect) ** 0.5
        rows, columns = int(np.clip(height, 3, 512)), int(np.clip(width, 3, 512))
        skin = self.skin(rows, columns)
        return cut(skin, appearance.random_shape(rng, rows, columns, thin=thin)), height, width

    def skin(self, rows: int, columns: int) -> Tensor:
        """Return an opaque texture for an object; sometimes uniform in scenes with the case "walls"."""
        if "walls" in self.cases and self.rng.random() < 0.3:
            return textures.bare_surface(self.rng)[:, None, None, 0, 0].expand(-1, rows, columns).clone()
        return self.library.skin(self.rng, rows, columns)

    def add_waves(self, surface: Surface, amplitude: float) -> Surface:
        """Return the surface curved by one to three waves of at most `amplitude` px in total."""
        waves, room = [], STEEPEST * 0.9 - max(surface.b, 0)
        for _ in range(int(self.rng.integers(1, 4))):
            k = 2 * np.pi / (self.log_uniform(0.08, 1.0) * self.width)
            direction = self.uniform(0, np.pi)
            size = min(self.uniform(0.1, 1.0) * amplitude, room / k) / 3
            kx, ky = k * float(np.cos(direction)), k * float(np.sin(direction))
            waves.append(Wave(size, kx, ky, self.uniform(0, 6.3)))
        return Surface(surface.a, surface.b, surface.c, tuple(waves))

    def extent(self) -> tuple[float, float]:
        """Return a random height and width (px) for a loose object."""
        least = 0.06 if self.rng.random() < 0.4 else 0.25
        size = self.log_uniform(least, 0.95) * min(self.height, 0.7 * self.width)
        aspect = self.log_uniform(0.4, 2.5)
        return size * aspect**-0.5, size * aspect**0.5
