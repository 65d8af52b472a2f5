"""Which pixels both views see, by the disparities of both."""

from __future__ import annotations

import torch
from torch import Tensor

VISIBLE_THRESHOLD = 1.5
"""Pixels by which the disparities of both views may differ where a point is seen in both."""


def consistent(left: Tensor, right: Tensor, threshold: float = VISIBLE_THRESHOLD) -> Tensor:
    """Left pixels whose match in the right view points back at them: (..., H, W) bool.

    `left`, `right` (..., H, W): disparities of both views in pixels, both positive. A match outside the right
    view is not consistent.
    """
    width = left.shape[-1]
    position = torch.arange(width, device=left.device) - left
    low = position.floor().clamp(0, width - 1).long()
    high = (low + 1).clamp(max=width - 1)
    share = (position - low).clamp(0, 1)
    matched = torch.lerp(right.gather(-1, low), right.gather(-1, high), share)
    return ((matched - left).abs() <= threshold) & (position >= 0)
