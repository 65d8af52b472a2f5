"""Disparity as colours: from far and dark blue over green to near and bright yellow.

The map is made in OKLCH (lightness, chroma, hue, as the eye sorts them): lightness rises steadily, so that
the order of disparities survives a black-and-white print and colour blindness, while the hue turns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from pamcli.errors import UsageError

# Lightness, chroma, hue in degrees. The far end is not black, which stands for unknown; the numbers were
# chosen so that lightness also rises from each entry to the next once they are rounded to 8 bits.
_FAR = (0.32, 0.15, 300.0)
_NEAR = (0.95, 0.14, 105.0)
_LEVELS = 256

# Ottosson's OKLab: Lab to the cube roots of cone responses, and cone responses to linear sRGB.
_LAB_TO_CONES = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_CONES_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


@dataclass(frozen=True)
class Colored:
    """A disparity map in colours."""

    pixels: np.ndarray
    """(H, W, 3) uint8, RGB; unknown disparities are black."""
    saturated: int
    """Known pixels outside the range, shown in the colour of its nearer end."""


def colorize(disparity: np.ndarray, low: float, high: float) -> Colored:
    """Colour a disparity map: `low` and what lies below is darkest, `high` and what lies above brightest.

    disparity: (H, W) float32, pixels; NaN or inf = unknown. low, high: pixels; where they are equal, as in
    a map that is the same everywhere, all of it is darkest.
    Raises UsageError: low above high, or one of them not a finite number.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise UsageError(f"the range {low:g}:{high:g} is empty", "give the smaller number first")
    known = np.isfinite(disparity)
    # An unknown pixel becomes `low` so that no NaN reaches the conversion to integers.
    values = np.where(known, disparity, np.float32(low))
    steps = (np.clip(values, low, high) - low) * ((_LEVELS - 1) / max(high - low, 1e-9))
    pixels = color_table()[np.rint(steps).astype(np.uint8)]
    pixels[~known] = 0
    outside = known & ((values < float(low)) | (values > float(high)))
    return Colored(pixels, int(np.count_nonzero(outside)))


@cache
def color_table() -> np.ndarray:
    """(256, 3) uint8, RGB: the colours from far to near, in steps of equal size to the eye."""
    fine = np.linspace(0, 1, 16 * _LEVELS)
    lightness, chroma, hue = (far + fine * (near - far) for far, near in zip(_FAR, _NEAR, strict=True))
    chroma = np.minimum(chroma, _largest_chroma(lightness, hue))
    lab = _lab(lightness, chroma, hue)
    length = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(lab, axis=0), axis=1))])
    even = np.linspace(0, length[-1], _LEVELS)
    lab = np.stack([np.interp(even, length, channel) for channel in lab.T], axis=-1)
    linear = np.clip(_linear_rgb(lab), 0, 1)
    srgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    table: np.ndarray = np.rint(255 * srgb).astype(np.uint8)
    table.setflags(write=False)
    return table


def _lab(lightness: np.ndarray, chroma: np.ndarray, hue: np.ndarray) -> np.ndarray:
    angle = np.radians(hue)
    return np.stack([lightness, chroma * np.cos(angle), chroma * np.sin(angle)], axis=-1)


def _linear_rgb(lab: np.ndarray) -> np.ndarray:
    rgb: np.ndarray = (lab @ _LAB_TO_CONES.T) ** 3 @ _CONES_TO_RGB.T
    return rgb


def _largest_chroma(lightness: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """How colourful each lightness and hue can be on a screen: by halving, down to a 16-bit step."""
    possible, too_much = np.zeros_like(lightness), np.full_like(lightness, 0.4)
    for _ in range(16):
        middle = (possible + too_much) / 2
        rgb = _linear_rgb(_lab(lightness, middle, hue))
        inside = ((rgb >= 0) & (rgb <= 1)).all(axis=-1)
        possible, too_much = np.where(inside, middle, possible), np.where(inside, too_much, middle)
    return possible
