"""The confidence of a disparity from whole attention maps, which `pamcli.streaming.confidence` never has."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pamcli.networks.parallax import NEAR, ParallaxMaps


def plain_confidence(disparity: Tensor, maps: ParallaxMaps) -> Tensor:
    """`disparity` (B, 1, H, W) refined, `maps` of stage 3; (B, H/4, W/4) in [0, 1]."""
    width = maps.right_to_left.shape[-1]
    column = torch.arange(width)
    target = column - F.avg_pool2d(disparity, 4)[:, 0] / 4  # (B, H, W)
    near_target = (column - target[..., None]).abs() <= NEAR  # (B, H, W, V)
    near_home = (column[:, None] - column).abs() <= NEAR  # (W, W)
    back = torch.einsum("bhkl,lj->bhjk", maps.left_to_right, near_home.float())
    return (maps.right_to_left * near_target * back).sum(-1).clamp(0, 1)
