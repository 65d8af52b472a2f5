"""Generate textures (4, FINER h, FINER w) of occluders for real images: posts, fences, twigs, shapes."""

import math

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from pamcli.scenes import appearance, thin_objects
from pamcli.scenes.textures import cut, generate_texture, make_opaque

Rgb = NDArray[np.uint8]
FINER = 2  # texels per px


def random_occluder(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    """Return a random occluder for an image (H, W, 3), and the standard deviation of its relative slant."""
    return OCCLUDERS[rng.choice(len(OCCLUDERS), p=_SHARES)](rng, image)


def _choose_size(rng: Generator, image: Rgb, high: float, wide: float) -> tuple[int, int]:
    """Return rows and columns (texels) for limits given in parts of the image height."""
    height = len(image)
    rows = math.exp(rng.uniform(math.log(high / 4), math.log(high)))
    columns = math.exp(rng.uniform(math.log(wide / 4), math.log(wide)))
    return max(8, int(FINER * height * rows)), max(8, int(FINER * height * columns))


def _make_post(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, _ = _choose_size(rng, image, 1.2, 0.1)
    columns = max(4, int(FINER * math.exp(rng.uniform(math.log(2), math.log(0.08 * len(image))))))
    texture = appearance.post(rng, rows, columns)
    texture[:, :, [0, -1]] *= 0.5
    return texture, 0.0


def _make_fence(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.7, 1.2)
    outline = (appearance.bars, appearance.net, thin_objects.rail_mask)[rng.integers(3)]
    mask = cv2.resize(outline(rng, rows // 2 + 1, columns // 2 + 1), (columns, rows))
    return cut(thin_objects.paint(rng, rows, columns), mask), 0.15


def _make_twig(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.9, 0.9)
    mask = thin_objects.branch_mask(rng, rows, columns)
    if rng.random() < 0.5:
        mask = mask[::-1].copy()
    return cut(thin_objects.bark(rng, rows, columns), mask), 0.1


def _make_wire(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.4, 2.0)
    return cut(thin_objects.paint(rng, rows, columns), thin_objects.wire_mask(rng, rows, columns)), 0.15


def _make_shape(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.7, 0.7)
    return cut(_make_surface(rng, image, rows, columns), appearance.random_shape(rng, rows, columns)), 0.1


def _make_framework(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.9, 0.9)
    return cut(_make_surface(rng, image, rows, columns), appearance.framework(rng, rows, columns)), 0.1


def _make_surface(rng: Generator, image: Rgb, rows: int, columns: int) -> Tensor:
    """Return one colour, a generated texture, or another part of the image."""
    height, width = image.shape[:2]
    look = rng.random()
    if look < 0.2:
        return thin_objects.paint(rng, rows, columns)
    if look < 0.5:
        return generate_texture(rng, rows, columns)
    high, wide = min(rows // FINER, height), min(columns // FINER, width)
    top, left = int(rng.integers(height - high + 1)), int(rng.integers(width - wide + 1))
    piece = image[top : top + high, left : left + wide][:, :: rng.choice([-1, 1])]
    piece = cv2.resize(np.ascontiguousarray(piece), (columns, rows), interpolation=cv2.INTER_CUBIC)
    return make_opaque(piece / np.float32(255) * np.float32(rng.uniform(0.6, 1.4))).clamp(0, 1)


OCCLUDERS = (_make_post, _make_fence, _make_twig, _make_wire, _make_shape, _make_framework)
_SHARES = (0.25, 0.1, 0.1, 0.1, 0.25, 0.2)
