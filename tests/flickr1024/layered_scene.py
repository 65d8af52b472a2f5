"""Made-up stereo pairs: textured discs before a textured wall, and the images that hold both views."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

HEIGHT, WIDTH = 240, 330
WALL = 8
"""Disparity of the wall, pixels; the discs have 14 to 26."""

Colours = NDArray[np.uint8]


def layered_pair(seed: int) -> tuple[Colours, Colours, NDArray[np.int64]]:
    """(left, right, disparity of the left view): left pixel (y, x) is right pixel (y, x - disparity)."""
    rng = np.random.default_rng(seed)
    shape = height, width = HEIGHT, WIDTH
    left, right = texture(rng, shape, 60), texture(rng, shape, 60)
    wall = texture(rng, (height, width + WALL), 60)
    left[:], right[:] = wall[:, :width], wall[:, WALL:]
    disparity = np.full(shape, WALL)
    y, x = np.mgrid[:height, :width]
    for own in np.linspace(WALL + 6, WALL + 18, 14).astype(int):  # the farthest first
        row, column, radius = rng.uniform(0, height), rng.uniform(0, width), rng.uniform(20, 45)
        paint = texture(rng, (height, width + 40), int(rng.integers(90, 200)))
        here = (y - row) ** 2 + (x - column) ** 2 < radius**2
        there = (y - row) ** 2 + (x + own - column) ** 2 < radius**2
        left[here] = paint[:, :width][here]
        right[there] = paint[:, own : own + width][there]
        disparity[here] = own
    return left, right, disparity


def texture(rng: np.random.Generator, shape: tuple[int, int], level: int) -> Colours:
    """(H, W, 3) smooth noise about a grey level."""
    rough = rng.integers(-50, 50, (shape[0] // 2 + 1, shape[1] // 2 + 1, 3)) + level
    small = Image.fromarray(rough.clip(0, 255).astype(np.uint8))
    return np.asarray(small.resize((shape[1], shape[0]), Image.Resampling.BICUBIC)).copy()


def side_by_side(first: Colours, second: Colours, colour: int = 0) -> Colours:
    """Both views in one image, with borders of unequal width all around them."""
    height, width = first.shape[:2]
    page = np.full((height + 40, 2 * width + 60, 3), colour, first.dtype)
    page[12 : 12 + height, 23 : 23 + width] = first
    page[31 : 31 + height, 40 + width : 40 + 2 * width] = second
    return page


def moved(view: Colours, down: float, degrees: float) -> Colours:
    """The view turned clockwise about its middle and moved down; what comes in from outside is black."""
    height, width = view.shape[:2]
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    start = middle - turn @ (middle + np.array([0, down]))
    corner = start + 0.5 - 0.5 * turn.sum(axis=1)  # Pillow counts from the corner of a pixel
    matrix = tuple(np.concatenate([turn, corner[:, None]], axis=1).ravel())
    image = Image.fromarray(view).transform(
        (width, height), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC
    )
    return np.asarray(image)
