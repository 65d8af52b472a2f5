"""Simulate faults of real cameras in pairs (H, W, 3) RGB uint8; disparities stay valid."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray

from pamcli.imaging.degradation import compress_jpeg, draw_camera
from pamcli.imaging.resize import resize_area
from pamcli.inference.images import resize_image
from pamcli.scenes.weather import add_sun
from pamcli.training.augmentation import Augmentation

Rgb = NDArray[np.uint8]
Light = NDArray[np.floating]  # (H, W, 3), 1 is white
QUALITIES = 40, 95  # JPEG qualities
LARGEST_UPSCALED = 2.0  # factor by which matching upscales small images


def apply_faults(rng: Generator, left: Rgb, right: Rgb, augmentation: Augmentation) -> tuple[Rgb, Rgb]:
    """Apply the faults of an augmentation at random, in the order of light, lens, sensor and file."""
    if rng.random() < augmentation.flare:
        left, right = add_sun(rng, left, right)
    views: list[Light] = [left.astype(np.float32) / 255, right.astype(np.float32) / 255]
    if rng.random() < augmentation.highlights:
        views = add_highlights(rng, views)
    if rng.random() < augmentation.low_contrast:
        share, veil = rng.uniform(0.3, 0.8), rng.uniform(0, 1)
        views = [share * view + np.float32((1 - share) * veil) for view in views]
    if rng.random() < augmentation.vignetting:
        views = [vignette(rng, view) for view in views]
    if rng.random() < augmentation.camera_difference:
        # Exposures differ by a factor up to 1.5, the white balances by up to 1.2 per channel.
        gains = [1.5 ** rng.uniform(-1, 1) * 1.2 ** rng.uniform(-1, 1, 3) for _ in views]
        views = [view * gain.astype(np.float32) for view, gain in zip(views, gains, strict=True)]
    if augmentation.row_shift:
        rows = float(rng.uniform(-augmentation.row_shift, augmentation.row_shift))
        below, above = (views[1][:1], views[1][:-1]), (views[1][1:], views[1][-1:])
        moved = np.concatenate(below if rows > 0 else above)  # bilinear interpolation
        views[1] = views[1] + np.float32(abs(rows)) * (moved - views[1])
    if rng.random() < augmentation.sensor_noise:
        level = float(np.exp(rng.uniform(np.log(0.005), np.log(0.05))))
        views = [add_sensor_noise(rng, view, level) for view in views]
    images = [np.rint(255 * view.clip(0, 1)).astype(np.uint8) for view in views]
    if rng.random() < augmentation.jpeg:
        quality = int(rng.integers(QUALITIES[0], QUALITIES[1] + 1))
        images = [compress_jpeg(image, quality) for image in images]
    if rng.random() < augmentation.cheap_camera:
        images = take_by_cheap_camera(rng, images)
    return images[0], images[1]


def take_by_cheap_camera(rng: Generator, views: list[Rgb]) -> list[Rgb]:
    """Reduce the images, degrade them as a cheap camera, and upscale them as before matching."""
    height, width = views[0].shape[:2]
    factor = LARGEST_UPSCALED if rng.random() < 0.4 else rng.uniform(1, LARGEST_UPSCALED)
    size = round(width / factor), round(height / factor)
    camera, images = draw_camera(rng), []
    for view in views:
        small = camera(np.asarray(resize_area(view, *size), np.uint8), rng)
        images.append(np.asarray(resize_image(small, height, width), np.uint8, order="C"))
    return images


def add_highlights(rng: Generator, views: list[Light]) -> list[Light]:
    """Add one to five specular highlights at random disparities, as reflections are not on their surface."""
    height, width = views[0].shape[:2]
    views = [view.copy() for view in views]
    x, y = np.arange(width, dtype=np.float32)[None], np.arange(height, dtype=np.float32)[:, None]
    for _ in range(int(rng.integers(1, 6))):
        row, column = rng.uniform(0, height), rng.uniform(0, width)
        disparity = rng.uniform(0, 0.3) * width
        across, down = np.exp(rng.uniform(np.log(1.5), np.log(0.08 * width + 1.5), 2))
        strength = rng.uniform(0.4, 2) * np.array([1, rng.uniform(0.85, 1), rng.uniform(0.7, 1)])
        for view, shift in zip(views, (0.0, disparity), strict=True):
            spot = np.exp(-(((x - column + shift) / across) ** 2) - ((y - row) / down) ** 2)
            view += spot[..., None] * strength.astype(np.float32)
    return views


def vignette(rng: Generator, view: Light) -> Light:
    """Darken the corners by up to a half, around a centre near the middle."""
    height, width = view.shape[:2]
    x = np.linspace(-1, 1, width, dtype=np.float32) - np.float32(rng.normal(0, 0.1))
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None] - np.float32(rng.normal(0, 0.1))
    falloff = 1 - np.float32(rng.uniform(0.1, 0.5)) * (x**2 + y**2) / 2
    return np.asarray(view * falloff.clip(0, 1)[..., None])


def add_sensor_noise(rng: Generator, view: Light, level: float) -> Light:
    """Add shot noise, of standard deviation `level` at white, and blotches of colour."""
    shot = rng.standard_normal(view.shape, np.float32) * np.sqrt(view.clip(0, 1) + 0.05)
    coarse = rng.standard_normal((view.shape[0] // 3 + 1, view.shape[1] // 3 + 1, 3), np.float32)
    planes = torch.from_numpy(coarse).permute(2, 0, 1)[None]
    blotches = F.interpolate(planes, view.shape[:2], mode="bilinear")[0].permute(1, 2, 0).numpy()
    return np.asarray(view + np.float32(level) * (shot + 0.5 * blotches))
