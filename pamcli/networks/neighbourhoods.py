"""Disparities around a pixel, and mixtures of them: what PASMnet 2 updates and enlarges disparities by.

Shapes: B batch, h rows and w columns of a scale.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def edged(values: Tensor, reach: int) -> Tensor:
    """Edge values repeated `reach` times: (B, h, w) to (B, h + 2 reach, w + 2 reach)."""
    return F.pad(values[:, None], (reach,) * 4, mode="replicate")[:, 0]


def neighbours(padded: Tensor, reach: int, dilation: int) -> Tensor:
    """The 3 x 3 values around each, row by row: (B, h + 2 reach, w + 2 reach) to (B, 9, h, w)."""
    height, width = (side - 2 * reach for side in padded.shape[-2:])
    beyond = reach - dilation  # of what is around, these outermost values are not looked at
    places = [beyond + step * dilation for step in range(3)]
    rows = [padded.narrow(1, place, height) for place in places]
    return torch.stack([row.narrow(2, place, width) for row in rows for place in places], 1)


def signed_log(x: Tensor) -> Tensor:
    """Logarithm of 1 + |x|, with the sign of x."""
    return x.sign() * x.abs().log1p()


def mixed(candidates: Tensor, mixing: Tensor) -> Tensor:
    """Mean of candidates (B, n, h, w), weighted by softmax, plus the last of (B, n + 1, h, w), at least 0."""
    mixing = mixing.float()
    return ((mixing[:, :-1].softmax(1) * candidates).sum(1) + mixing[:, -1]).clamp(min=0)


def convex_enlarged(disparity: Tensor, mixture: Tensor) -> Tensor:
    """Each full-size pixel a convex mixture of the 3 x 3 disparities around it, in full-size pixels.

    (B, h + 2, w + 2), disparities and their edges, and (B, 9 * 16, h, w), weights before the softmax, to
    (B, 1, 4h, 4w).
    """
    weights = mixture.float().view(len(mixture), 9, 16, *mixture.shape[2:]).softmax(1)  # (B, 9, 16, h, w)
    around = neighbours(4 * disparity, 1, 1)[:, :, None]
    return F.pixel_shuffle((weights * around).sum(1), 4)
