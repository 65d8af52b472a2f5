"""Colour disparity maps from far (dark blue) over green to near (bright yellow).

The colours run in OKLCH (lightness, chroma, hue) from (0.32, 0.15, 300 degrees) to (0.95, 0.14, 105), within
the screen's gamut, in perceptually equal steps. Lightness increases monotonically, so the order of
disparities survives greyscale prints and colour blindness. The far end is not black, which stands for
unknown.
"""

import math
from functools import cache
from pathlib import Path

import numpy as np

from pamcli.errors import UsageError
from pamcli.imaging.raster import check_map
from pamcli.validation import check_arguments


@check_arguments
def colorize(disparity: np.ndarray, low: float, high: float, *, grey: bool = False) -> np.ndarray:
    """Return the colours (H, W, 3), uint8, of a disparity map (H, W) in a range (px); unknown is black.

    grey: whether to use levels of grey, proportional to the disparity, from black (far) to white.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise UsageError(f"the range {low:g}:{high:g} is empty", "put the smaller number first")
    check_map(disparity)
    known = np.isfinite(disparity)
    # No NaN may reach the conversion to integers.
    values = np.where(known, disparity, np.float32(low))
    steps = (np.clip(values, low, high) - low) * (255 / max(high - low, 1e-9))
    levels = np.rint(steps).astype(np.uint8)
    pixels = np.repeat(levels[..., None], 3, axis=2) if grey else get_color_table()[levels]
    pixels[~known] = 0
    return pixels


@cache
def get_color_table() -> np.ndarray:
    """Return the colours from far to near, (256, 3) uint8 RGB, in perceptually equal steps."""
    text = Path(__file__).with_name("colormap.txt").read_text("utf-8")  # hexadecimal
    return np.frombuffer(bytes.fromhex(text), np.uint8).reshape(256, 3)
