"""Map surfaces of a scene between left view, right view and texture.

A point of disparity d at the left pixel (x, y) is at (x - d, y) in the right view.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STEEPEST = 0.8  # change of disparity per column; from 1 on, the right view sees the back
NEWTON_STEPS = 6
Pair = tuple[float, float]


@dataclass(frozen=True)
class Wave:
    """A ripple of the surface: amplitude * sin(kx x + ky y + phase), px of disparity."""

    amplitude: float
    kx: float
    ky: float
    phase: float


@dataclass(frozen=True)
class Surface:
    """The surface disparity(x, y) = a + b x + c y + waves; raises ValueError if it is too steep to invert."""

    a: float
    b: float = 0.0
    c: float = 0.0
    waves: tuple[Wave, ...] = field(default=())

    def __post_init__(self) -> None:
        steepness = self.b + sum(abs(wave.amplitude * wave.kx) for wave in self.waves)
        if steepness > STEEPEST and (self.waves or self.b < 1 / STEEPEST):
            raise ValueError("a surface whose disparity grows faster than the column has no inverse")

    @classmethod
    def tilted(
        cls, disparity: float, x: float, y: float, tilt_x: float, tilt_y: float, focal: float
    ) -> "Surface":
        """Return a plane with `disparity` at (x, y), turned by two angles (radians) from the image plane."""
        b = float(np.clip(disparity / focal * np.tan(tilt_x), -STEEPEST, STEEPEST / 2))
        c = float(disparity / focal * np.tan(tilt_y))
        return cls(disparity - b * x - c * y, b, c)

    @property
    def ripple(self) -> float:
        """Largest disparity (px) that waves add or subtract."""
        return sum(abs(wave.amplitude) for wave in self.waves)

    def disparity_at(self, x: float, y: float) -> float:
        """Return the disparity (px) of the plane at a left pixel, without waves."""
        return self.a + self.b * x + self.c * y

    def disparity(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the disparity (px) at left coordinates of any shapes that broadcast."""
        d = self.a + self.b * x + self.c * y
        for wave in self.waves:
            d = d + wave.amplitude * torch.sin(wave.kx * x + wave.ky * y + wave.phase)
        return d

    def left_column(self, x_right: Tensor, y: Tensor) -> Tensor:
        """Return the left column x seen at (x_right, y) of the right view: x - disparity(x, y) = x_right."""
        x = (x_right + self.a + self.c * y) / (1 - self.b)
        if not self.waves:
            return x
        for _ in range(NEWTON_STEPS):
            slope = torch.full_like(x, 1 - self.b)
            for wave in self.waves:
                slope = slope - wave.amplitude * wave.kx * torch.cos(wave.kx * x + wave.ky * y + wave.phase)
            x = x - (x - self.disparity(x, y) - x_right) / slope
        return x

    def texture_map(
        self, anchor: Pair, texel: Pair, density: Pair, turn: float, focal: float, centre: Pair
    ) -> NDArray[np.float64]:
        """Return the homography (3, 3) from (x, y, 1) to texels of a flat image on the plane.

        Texel `texel` lies at the pixel `anchor`, with `density` texels per pixel if facing the camera.
        """
        to_ray = np.array([[1, 0, -centre[0]], [0, 1, -centre[1]], [0, 0, focal]])
        normal = np.array([self.b, self.c, self.a]) @ np.linalg.inv(to_ray)  # normal . ray = disparity
        unit = normal / np.linalg.norm(normal)
        across = np.cross([0.0, 1.0, 0.0], unit)
        if np.linalg.norm(across) < 0.3:  # the texture of floors and ceilings runs along the depth
            across = np.array([1.0, 0.0, 0.0]) - unit[0] * unit
        across /= np.linalg.norm(across)
        down = np.cross(unit, across)
        c, s = np.cos(turn), np.sin(turn)
        across, down = c * across + s * down, c * down - s * across
        ray = to_ray @ np.array([*anchor, 1.0])
        disparity = max(float(normal @ ray), 1e-3)
        point = ray / disparity
        rows = [
            density[axis] * disparity * (vector - (vector @ point) * normal) + texel[axis] * normal
            for axis, vector in enumerate((across, down))
        ]
        return np.asarray(np.stack([*rows, normal]) @ to_ray, np.float64)
