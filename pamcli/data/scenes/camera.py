"""What lenses and sensors do to a rendered pair: light, colour, vignetting, blur, noise, 8 bits."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor


def photograph(rng: Generator, left: Tensor, right: Tensor) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures (H, W, 3) of both views (3, H, W) in [0, 1], by two cameras that are nearly alike."""
    gamma = float(np.exp(rng.normal(0, 0.2)))
    # Exposed for an even grey, more or less; what is far brighter is white.
    mean = float(left.mean())
    light = float(np.clip(rng.uniform(0.28, 0.5) / max(mean, 0.02), 0.6, 2.5)) if rng.random() < 0.8 else 1.0
    unlike = float(rng.choice([0.0, 1.0, 3.0], p=[0.3, 0.5, 0.2]))  # how far the cameras differ
    blur = float(rng.choice([0.0, rng.uniform(0.3, 0.8)], p=[0.75, 0.25]))
    noise = float(rng.choice([0.0, rng.uniform(0.002, 0.01), rng.uniform(0.01, 0.03)], p=[0.3, 0.5, 0.2]))
    pictures = []
    for view in (left, right):
        picture = (light * view).clamp(0, 1) ** (gamma * float(np.exp(unlike * rng.normal(0, 0.03))))
        gain = np.exp(unlike * (rng.normal(0, 0.04) + rng.normal(0, 0.015, 3)))
        picture = picture * view.new_tensor(gain)[:, None, None]
        if unlike and rng.random() < 0.3:
            picture = picture * _vignette(rng, *view.shape[1:]).to(view.device)
        sigma = blur + unlike * abs(rng.normal(0, 0.08))
        if sigma > 0.25:
            picture = _blurred(picture, sigma)
        if noise:
            grain = torch.from_numpy(rng.standard_normal(picture.shape, np.float32)).to(picture)
            picture = picture + noise * (0.5 + picture.clamp(0, 1).sqrt()) * grain
        pictures.append((picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy())
    return pictures[0], pictures[1]


def _vignette(rng: Generator, height: int, width: int) -> Tensor:
    x, y = torch.linspace(-1, 1, width)[None], torch.linspace(-1, 1, height)[:, None]
    return 1 - float(rng.uniform(0, 0.25)) * (x**2 + y**2) / 2


def _blurred(picture: Tensor, sigma: float) -> Tensor:
    """By a Gaussian; as sums of shifted pictures, which for so few taps is faster than a convolution."""
    reach = max(1, int(np.ceil(2.5 * sigma)))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    taps /= taps.sum()
    height, width = picture.shape[1:]
    padded = F.pad(picture[None], (reach,) * 4, mode="replicate")[0]
    across = picture.new_zeros(3, height + 2 * reach, width)
    for i, tap in enumerate(taps):
        across.add_(padded[:, :, i : i + width], alpha=float(tap))
    blurred = torch.zeros_like(picture)
    for i, tap in enumerate(taps):
        blurred.add_(across[:, i : i + height], alpha=float(tap))
    return blurred
