"""Resampling of single channels."""

from __future__ import annotations

import numpy as np
from PIL import Image


def bicubic(channel: np.ndarray, scale: int) -> np.ndarray:
    """Enlarge one channel with bicubic interpolation (a = -0.5, pixel centres aligned).

    channel: (H, W) uint8 or uint16. scale: 1, 2, 3, ...
    Returns (scale * H, scale * W) of the same type, rounded and clipped to its range.
    """
    if scale < 1:
        raise ValueError(f"scale must be at least 1, not {scale}")
    height, width = channel.shape
    # Mode F: the 8-bit path of Pillow rounds between its two passes, and it has none for 16 bits.
    image = Image.fromarray(channel.astype(np.float32))
    large = np.asarray(image.resize((width * scale, height * scale), Image.Resampling.BICUBIC))
    rounded: np.ndarray = np.clip(np.rint(large), 0, np.iinfo(channel.dtype).max)
    return rounded.astype(channel.dtype)
