"""How far to trust a disparity: confidence from the attention, visibility from both views' disparities."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pamcli.networks.parallax import ParallaxMaps

VISIBLE_THRESHOLD = 1.5
"""Pixels by which the disparities of both views may differ where a point is seen in both."""

WINDOW = 1.5
"""Attention counts as near the estimate within this many quarter-size pixels."""


def cycle_confidence(disparity: Tensor, maps: ParallaxMaps) -> Tensor:
    """Attention that goes to the estimate and comes back, (B, H/4, W/4) in [0, 1].

    `disparity` (B, 1, H, W) is the refined one, `maps` those of stage 3. The cycle attention of Section 3.2,
    counted only where it passes near the estimated position in the right view and returns near the pixel:
    sum over k near j - d of M_right->left(j, k) times the sum over l near j of M_left->right(k, l). One
    where both maps are sure and agree with the result, near zero where either is spread out or contradicts.
    """
    there, back = maps.right_to_left, maps.left_to_right
    batch, height, width, _ = there.shape
    quarter = F.avg_pool2d(disparity, 4)[:, 0] / 4  # (B, H/4, W/4)
    column = torch.arange(width, device=there.device)
    flat = back.reshape(batch, height, -1)
    target = column - quarter
    reach = int(WINDOW)
    total = torch.zeros_like(quarter)
    first = (target - WINDOW).ceil().long()
    for step in range(2 * reach + 1 + (WINDOW % 1 > 0)):
        k = first + step
        near = (k >= 0) & (k < width) & ((k - target).abs() <= WINDOW)
        k = k.clamp(0, width - 1)
        mass = there.gather(3, k[..., None])[..., 0] * near
        returned = torch.zeros_like(quarter)
        for shift in range(-reach, reach + 1):
            home = column + shift
            inside = (home >= 0) & (home < width)
            index = k * width + home.clamp(0, width - 1)
            returned += flat.gather(2, index) * inside
        total += mass * returned
    return total.clamp(0, 1)


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
