"""Stretch 16-bit image pairs of low contrast over all levels."""

import numpy as np

Levels = tuple[int, int]  # levels of 16-bit files that become 0 and 65535
ALL_LEVELS = 0, 65535
_LOW_CONTRAST = 0.25  # share of the 16-bit levels; images that use more are left as they are
_OUTLIERS = 0.1, 99.9  # percentiles of both images together that become the lowest and the highest level


def find_levels(left: np.ndarray, right: np.ndarray) -> Levels:
    """Return the levels between which two uint16 images (H, W, 3) of low contrast lie, else `ALL_LEVELS`."""
    if not left.dtype == right.dtype == np.uint16:
        return ALL_LEVELS
    samples = np.concatenate([view[:: max(1, len(view) // 500)].ravel() for view in (left, right)])
    low, high = (int(level) for level in np.percentile(samples, _OUTLIERS))
    return (low, high) if 0 < high - low < _LOW_CONTRAST * 65535 else ALL_LEVELS


def stretch_levels(pixels: np.ndarray, levels: Levels) -> np.ndarray:
    """Stretch uint16 pixels so that the given levels become 0 and 65535."""
    low, high = levels
    if levels == ALL_LEVELS:
        return pixels
    scaled = (pixels.astype(np.float32) - low) * np.float32(65535 / (high - low))
    return np.asarray(np.rint(scaled.clip(0, 65535)), np.uint16)


def restore_levels(pixels: np.ndarray, levels: Levels) -> np.ndarray:
    """Undo `stretch_levels`, also on upscaled images."""
    low, high = levels
    if levels == ALL_LEVELS:
        return pixels
    return np.asarray(np.rint(low + pixels * ((high - low) / 65535)), np.uint16)
