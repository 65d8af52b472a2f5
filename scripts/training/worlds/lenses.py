"""Faults that one camera has alone, added to linear colours (H, W, 3): drops, dust, flare, few photons."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Values = NDArray[np.float32]


def add_drops(rng: Generator, view: Values) -> Values:
    """Add rain drops on the lens, each of which shows the scene upside down, reduced and blurred."""
    height, width = view.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    share, to_x, to_y = np.zeros((height, width), np.float32), x.copy(), y.copy()
    for _ in range(int(rng.integers(3, 40))):
        radius = width * np.exp(rng.uniform(np.log(0.006), np.log(0.06)))
        across, down = rng.uniform(0, width), rng.uniform(0, height)
        flat = rng.uniform(0.7, 1.3)
        distance = np.hypot((x - across) * flat, (y - down) / flat) / radius
        inside = distance < 1.2
        share[inside] = np.maximum(share, np.clip((1.2 - distance) / 0.4, 0, 1))[inside]
        bend = rng.uniform(2, 6)
        to_x[inside] = (across - bend * (x - across))[inside]
        to_y[inside] = (down - bend * (y - down))[inside]
    soft = cv2.GaussianBlur(view, (0, 0), 1.5)
    seen = cv2.remap(soft, to_x, to_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
    share = cv2.GaussianBlur(share, (0, 0), rng.uniform(0.8, 3))[..., None]
    return np.asarray(view + share * (cv2.GaussianBlur(seen, (0, 0), 2) - view))


def add_dust(rng: Generator, view: Values) -> Values:
    """Add blurred specks and a smear that darken or veil the image."""
    height, width = view.shape[:2]
    specks = np.zeros((height, width), np.float32)
    for _ in range(int(rng.integers(5, 80))):
        at = int(rng.uniform(0, width)), int(rng.uniform(0, height))
        radius = int(np.exp(rng.uniform(np.log(1.5), np.log(0.025 * width))))
        cv2.circle(specks, at, radius, rng.uniform(0.2, 0.9), -1, cv2.LINE_AA)
    specks = cv2.GaussianBlur(specks, (0, 0), rng.uniform(1, 5))
    coarse = rng.random((5, 8)).astype(np.float32)
    smear = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).clip(0, 1) ** 3
    veil = rng.uniform(0, 1) * view.mean(axis=(0, 1))
    share = (1 - (1 - specks) * (1 - rng.uniform(0, 0.6) * smear))[..., None]
    return np.asarray(view + share * (veil.astype(np.float32) - view))


def add_flare(rng: Generator, view: Values) -> Values:
    """Add the veil of a light outside of the image, and a row of its reflections between the lenses."""
    height, width = view.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    source = np.array([rng.uniform(-0.3, 1.3) * width, rng.uniform(-0.5, 0.3) * height])
    strength = rng.uniform(0.3, 2) * float(np.median(view) + view.mean())
    warm = np.array([1, rng.uniform(0.7, 1), rng.uniform(0.4, 1)])
    reach = rng.uniform(0.1, 0.5) * width
    light = np.exp(-np.hypot(x - source[0], y - source[1]) / reach)[..., None] * warm
    middle = np.array([width, height]) / 2
    for _ in range(int(rng.integers(2, 8))):
        at = middle + rng.uniform(-0.6, 1.6) * (middle - source)
        radius = rng.uniform(0.01, 0.09) * width
        inside = np.clip(radius - np.hypot(x - at[0], y - at[1]) + 0.5, 0, 1)[..., None]
        light += rng.uniform(0.03, 0.4) * inside * rng.uniform(0.2, 1, 3)
    return np.asarray(view + strength * light, dtype=np.float32)


def count_photons(rng: Generator, view: Values, photons: float) -> Values:
    """Replace light by the number of photons that arrive; `photons` is that of the mean light."""
    unit = photons / max(float(view.mean()), 1e-9)
    return np.asarray(rng.poisson(view.clip(0) * unit) / unit, dtype=np.float32)
