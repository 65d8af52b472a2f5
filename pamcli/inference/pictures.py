"""From pictures to the networks' tensors."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import InputError

RANGES = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}
"""Largest value of the integer types; floating-point pictures are in [0, 1]."""


def to_tensors(left: NDArray[np.generic], right: NDArray[np.generic], smallest: int) -> tuple[Tensor, Tensor]:
    """Both views as (1, 3, H, W) float32 RGB in [0, 1].

    Raises InputError unless both are (H, W, 3), of one size, at least `smallest` px on each side, and uint8,
    uint16 or floating-point in [0, 1].
    """
    tensors = []
    for name, view in (("left", left), ("right", right)):
        if view.ndim != 3 or view.shape[2] != 3:
            raise InputError(f"the {name} picture has shape {view.shape}, not (height, width, 3)")
        if min(view.shape[:2]) < smallest:
            raise InputError(
                f"the {name} picture is {view.shape[1]} x {view.shape[0]} pixels",
                f"both sides must have at least {smallest}",
            )
        tensors.append(torch.from_numpy(_to_unit_range(view, name)).permute(2, 0, 1)[None])
    if left.shape != right.shape:
        raise InputError(
            f"the views differ in size: left {left.shape[1]} x {left.shape[0]}, "
            f"right {right.shape[1]} x {right.shape[0]}",
            "rectified pictures have one size",
        )
    return tensors[0], tensors[1]


def from_tensor(picture: Tensor, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """(1, 3, H, W) in about [0, 1] to (H, W, 3) of `dtype`, clamped to the range, integers rounded."""
    clamped = picture[0].clamp(0, 1).permute(1, 2, 0)
    largest = RANGES.get(dtype.newbyteorder("="))
    if largest is not None:
        return np.ascontiguousarray((clamped * largest).round().cpu().numpy().astype(dtype))
    return np.ascontiguousarray(clamped.cpu().numpy().astype(dtype))


def pad_to_multiple(picture: Tensor, multiple: int) -> Tensor:
    """Repeat the edge at the top and at the right until both sides are multiples (as the authors do)."""
    height, width = picture.shape[-2:]
    return F.pad(picture, (0, -width % multiple, -height % multiple, 0), mode="replicate")


def crop_padding(values: Tensor, height: int, width: int) -> Tensor:
    """Undo `pad_to_multiple` on (..., H, W)."""
    return values[..., values.shape[-2] - height :, :width]


def _to_unit_range(view: NDArray[np.generic], name: str) -> NDArray[np.float32]:
    largest = RANGES.get(view.dtype.newbyteorder("="))
    if largest is not None:
        return view.astype(np.float32) / np.float32(largest)
    if not np.issubdtype(view.dtype, np.floating):
        raise InputError(f"the {name} picture is {view.dtype}", "pass uint8, uint16 or float in [0, 1]")
    values = view.astype(np.float32)
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):  # also true for NaN
        raise InputError(
            f"the {name} picture has values from {low:g} to {high:g}", "floating-point pictures are in [0, 1]"
        )
    return values
