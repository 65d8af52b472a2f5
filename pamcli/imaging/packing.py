"""Both views in one picture: beside or above each other, or for red-cyan glasses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pamcli.files.suffixes import Packing
from pamcli.imaging.images import Picture

RED_CYAN = "red-cyan"


def packed_size(height: int, width: int, packing: Packing) -> tuple[int, int]:
    """Height and width of the picture that holds two views of this size."""
    across, down = {"l": (2, 1), "r": (2, 1), "t": (1, 2), "b": (1, 2)}[packing[0]]
    return (height, width) if packing == RED_CYAN else (down * height, across * width)


def packed(left: Picture, right: Picture, packing: Packing) -> Picture:
    """Two views of one size and depth as one picture, with the profile and the notes of the left one.

    A view without alpha counts as opaque where the other one has alpha. Red-cyan: red of the left view, green
    and blue of the right one, opaque.
    """
    if packing == RED_CYAN:
        pixels = right.pixels.copy()
        pixels[..., 0] = left.pixels[..., 0]
        return replace(left, pixels=pixels, alpha=None, grey=False)
    order = (left, right) if packing in ("lr", "tb") else (right, left)
    axis = 1 if packing in ("lr", "rl") else 0
    alpha = None
    if left.alpha is not None or right.alpha is not None:
        full = np.iinfo(left.pixels.dtype).max
        parts = [
            np.full(v.pixels.shape[:2], full, v.pixels.dtype) if v.alpha is None else v.alpha for v in order
        ]
        alpha = np.concatenate(parts, axis)
    pixels = np.concatenate([view.pixels for view in order], axis)
    return replace(left, pixels=pixels, alpha=alpha, grey=left.grey and right.grey)
