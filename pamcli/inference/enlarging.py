"""Small pictures are matched enlarged.

The finest attention has a quarter of the pictures' rows and columns: what is narrower than four pixels can be
lost to what is behind it. Enlarged pictures lose less, for time that grows with their pixels.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from pamcli.errors import UsageError

Enlarge = float | Literal["auto"]
"""How many times larger, on each side, pictures are matched than they are; auto: see `factor`."""

MOST = 4.0
AUTO_MOST = 2.0
AUTO_PIXELS = 560_000
"""`auto` enlarges up to a little more pixels than a picture of KITTI has, and at most twice."""

AUTO_LEAST = 1.1
"""Less than that is not worth the interpolation."""


def checked(enlarge: Enlarge) -> Enlarge:
    """The same. Raises UsageError for what is neither "auto" nor from 1 to `MOST`."""
    if enlarge != "auto" and not 1 <= enlarge <= MOST:
        raise UsageError(f"pictures can be matched 1 to {MOST:g} times as large, not {enlarge:g} times")
    return enlarge


def factor(enlarge: Enlarge, height: int, width: int, most: tuple[int, int] | None = None) -> float:
    """How many times larger a picture of `height` x `width` pixels is matched; auto fits into `most`."""
    if enlarge != "auto":
        return enlarge
    fitting = min(AUTO_MOST, (AUTO_PIXELS / (height * width)) ** 0.5)
    if most is not None:
        fitting = min(fitting, most[0] / height, most[1] / width)
    return fitting if fitting >= AUTO_LEAST else 1.0


def enlarged(view: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """A picture (H, W, 3) in `height` x `width` pixels, bicubic; uint8 remains, all else becomes float32."""
    if view.dtype != np.uint8:
        largest = 65535 if view.dtype.kind == "u" else 1
        view = view.astype(np.float32) / np.float32(largest)
    channels = torch.from_numpy(view.copy()).permute(2, 0, 1)[None]  # torch wants to own what it may write to
    # With antialias, which changes nothing where pictures grow, torch takes the usual cubic (a = -0.5).
    larger = F.interpolate(channels, (height, width), mode="bicubic", antialias=True)
    if view.dtype != np.uint8:
        larger.clamp_(0, 1)
    return larger[0].permute(1, 2, 0).numpy()
