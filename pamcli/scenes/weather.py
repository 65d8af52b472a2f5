"""Add glare, sun, rain or darkness to images (H, W, 3) RGB uint8; the ground truth does not change."""

import cv2
import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

Rgb = NDArray[np.uint8]
COARSER = 4  # factor by which smooth effects are rendered smaller, then upscaled


def add_glare(view: Tensor, reach: float) -> Tensor:
    """Add a glow of `reach` px around light that is brighter than white."""
    beyond = (view - 1).clamp(min=0).permute(1, 2, 0).contiguous().numpy()
    glow = 0.6 * cv2.GaussianBlur(beyond, (0, 0), reach) + 0.2 * cv2.GaussianBlur(beyond, (0, 0), 4 * reach)
    return view + torch.from_numpy(glow).permute(2, 0, 1)


def apply_weather(rng: Generator, left: Rgb, right: Rgb, cases: frozenset[str]) -> tuple[Rgb, Rgb]:
    """Apply rain, sun and darkness to both images, as far as they are in `cases`."""
    if "rain" in cases:
        drops, slant, light = int(rng.integers(60, 600)), float(rng.normal(0, 0.25)), rng.uniform(120, 255)
        haze = float(rng.uniform(0, 0.3))
        left, right = (add_rain(rng, view, drops, slant, light, haze) for view in (left, right))
    if "flares" in cases:
        left, right = add_sun(rng, left, right)
    if "dark" in cases:
        gain, noise = float(rng.uniform(0.06, 0.4)), float(rng.uniform(0.5, 4))
        lift = min(1 / gain, 4.0) if rng.random() < 0.6 else 1.0
        left, right = (underexpose(rng, view, gain, noise, lift) for view in (left, right))
    return left, right


def underexpose(rng: Generator, view: Rgb, gain: float, noise: float, lift: float) -> Rgb:
    """Darken an image by `gain`, add noise of `noise` levels, round, and brighten by `lift`."""
    dim = gain * view.astype(np.float32) + noise * rng.standard_normal(view.shape, np.float32)
    return _to_uint8(lift * np.rint(dim.clip(0, 255)))


def add_rain(rng: Generator, view: Rgb, drops: int, slant: float, light: float, haze: float) -> Rgb:
    """Add streaks of falling drops, and a pale haze."""
    height, width = view.shape[:2]
    mask = np.zeros((height, width), np.uint8)
    near = rng.random(drops) ** 2  # most drops are far away
    x, y = rng.uniform(-0.1, 1.1, drops) * width, rng.uniform(-0.2, 1.1, drops) * height
    for place in zip(x, y, near, strict=True):
        length = (0.02 + 0.18 * place[2]) * height
        start, end = ((int(place[0] + i * slant * length), int(place[1] + i * length)) for i in (0, 1))
        cv2.line(mask, start, end, int(40 + 120 * rng.random()), 1 + int(2.5 * place[2]), cv2.LINE_AA)
    share = haze + (1 - haze) / 255 * cv2.GaussianBlur(mask, (0, 0), 0.7).astype(np.float32)[..., None]
    return _to_uint8(np.rint(view + share * (light - view)))


def add_sun(rng: Generator, left: Rgb, right: Rgb) -> tuple[Rgb, Rgb]:
    """Add the sun in or beside the image, its rays, and its lens flares, which differ between the images."""
    height, width = (side // COARSER for side in left.shape[:2])
    sun = np.array([rng.uniform(-0.1, 1.1) * width, rng.uniform(-0.3, 0.6) * height])
    reach, strength = rng.uniform(0.03, 0.3) * width, rng.uniform(100, 500)
    rays, turn = int(rng.integers(0, 9)), rng.uniform(0, 2 * np.pi)
    warm = np.array([1.0, rng.uniform(0.8, 1.0), rng.uniform(0.5, 1.0)], np.float32)
    ghosts = [
        (rng.uniform(-0.5, 2.0), rng.uniform(0.01, 0.06) * width, rng.uniform(5, 45) * rng.uniform(0.3, 1, 3))
        for _ in range(int(rng.integers(0, 6)))
    ]
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    images = []
    for view in (left, right):
        at = sun + rng.normal(0, 0.5, 2)
        distance = np.hypot(x - at[0], y - at[1])
        light = np.exp(-distance / reach)
        if rays:
            light *= 1 + np.abs(np.cos(rays / 2 * np.arctan2(y - at[1], x - at[0]) + turn)) ** 40
        glow = strength * light[..., None] * warm
        middle = np.array([width, height]) / 2 + rng.normal(0, 1, 2)
        for part, radius, colour in ghosts:
            place = middle + part * (middle - at)
            inside = np.clip(radius - np.hypot(x - place[0], y - place[1]) + 0.5, 0, 1)
            glow += inside[..., None] * colour
        full = cv2.resize(glow.astype(np.float32), view.shape[1::-1], interpolation=cv2.INTER_LINEAR)
        images.append(_to_uint8(np.rint(view + full)))
    return images[0], images[1]


def _to_uint8(values: NDArray[np.floating]) -> Rgb:
    return np.asarray(values.clip(0, 255), np.uint8)
