"""Outlines of objects: opacity masks (H, W) float32 in [0, 1], soft over about a pixel at their edges."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Mask = NDArray[np.float32]


def random_shape(rng: Generator, height: int, width: int) -> Mask:
    """Any of the outlines below."""
    outline = (box, ellipse, polygon, blob, ring)[rng.integers(5)]
    return outline(rng, height, width)


def thin_shape(rng: Generator, height: int, width: int) -> Mask:
    """Bars, nets, wires and branches: parts of 1 to 6 pixels, mostly holes."""
    outline = (bars, net, branches)[rng.integers(3)]
    return outline(rng, height, width)


def box(rng: Generator, height: int, width: int) -> Mask:
    mask = np.zeros((height, width), np.float32)
    mask[1:-1, 1:-1] = 1
    return mask


def ellipse(rng: Generator, height: int, width: int) -> Mask:
    x, y = _grid(height, width)
    power = rng.choice([2.0, 2.0, 3.0, 6.0])
    radius = (np.abs(x) ** power + np.abs(y) ** power) ** (1 / power)
    return _soft((1 - radius) * min(height, width) / 2)


def ring(rng: Generator, height: int, width: int) -> Mask:
    x, y = _grid(height, width)
    inner = rng.uniform(0.3, 0.9)
    radius = np.hypot(x, y)
    return _soft(np.minimum(1 - radius, radius - inner) * min(height, width) / 2)


def polygon(rng: Generator, height: int, width: int) -> Mask:
    """A star-shaped polygon of 3 to 9 corners."""
    corners = int(rng.integers(3, 10))
    angle = np.sort(rng.uniform(0, 2 * np.pi, corners))
    radius = rng.uniform(0.4, 1.0, corners)
    across, down = (
        (width - 1) / 2 * (1 + radius * np.cos(angle)),
        (height - 1) / 2 * (1 + radius * np.sin(angle)),
    )
    places = np.rint(np.stack([across, down], 1) * 256).astype(np.int32)
    mask = cv2.fillPoly(np.zeros((height, width), np.uint8), [places], 255, cv2.LINE_AA, 8)
    return np.asarray(mask / np.float32(255), np.float32)


def blob(rng: Generator, height: int, width: int) -> Mask:
    """A closed curve whose radius swings."""
    x, y = _grid(height, width)
    angle, edge = np.arctan2(y, x), np.full((height, width), 0.7)
    for order in range(2, 7):
        edge += rng.uniform(0, 0.3 / order) * np.sin(order * angle + rng.uniform(0, 2 * np.pi))
    return _soft((edge - np.hypot(x, y)) * min(height, width) / 2)


def bars(rng: Generator, height: int, width: int) -> Mask:
    """Parallel bars, as of a fence."""
    along = np.arange(width)[None] + rng.uniform(-0.3, 0.3) * np.arange(height)[:, None]
    thickness = rng.uniform(1, 5)
    spacing = thickness + rng.uniform(6, 60)
    distance = np.abs((along % spacing) - spacing / 2)
    return _soft(thickness / 2 - distance)


def net(rng: Generator, height: int, width: int) -> Mask:
    """Crossing bars."""
    thickness = rng.uniform(1, 3)
    turn = rng.uniform(-0.6, 0.6)
    spacing = rng.uniform(10, 40)
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    u, v = np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x
    nearest = np.minimum(*(np.abs((w % spacing) - spacing / 2) for w in (u, v)))
    return _soft(thickness / 2 - nearest)


def branches(rng: Generator, height: int, width: int) -> Mask:
    """A few straight sticks in any direction."""
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    mask = np.zeros((height, width), np.float32)
    for _ in range(int(rng.integers(1, 7))):
        turn = rng.uniform(0, np.pi)
        offset = rng.uniform(0, width), rng.uniform(0, height)
        distance = np.abs((x - offset[0]) * np.sin(turn) - (y - offset[1]) * np.cos(turn))
        mask = np.maximum(mask, _soft(rng.uniform(0.7, 3.5) - distance))
    return mask


def _grid(height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns and rows in [-1, 1]."""
    return np.linspace(-1, 1, width)[None], np.linspace(-1, 1, height)[:, None]


def _soft(inside: NDArray[np.float64]) -> Mask:
    """Opacity from the distance inside the edge, in pixels."""
    mask: Mask = np.clip(inside + 0.5, 0, 1).astype(np.float32)
    return mask
