"""Reading textures at any place and size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

COARSEST = 8
"""Textures are reduced at most 2^8 times: what is smaller is as good as even."""

SHARPER = 0.75
"""Levels that a texture is read finer than pixels are: a pixel is made of several points."""

MOST_FORESHORTENED = 4.0
"""A pixel longer than wide on a texture sees its mean side, but not less than this part of its length."""


class Pyramid:
    """A texture and its reductions: each texel of level k is the mean of 2^k x 2^k."""

    def __init__(self, texture: Tensor, endless: bool) -> None:
        """texture: (C, h, w); endless: it goes on, mirrored, beyond its borders."""
        self._levels = [texture]
        self._endless = endless

    def level(self, k: int) -> Tensor:
        while len(self._levels) <= k:
            finer = self._levels[-1][None]
            odd = (0, finer.shape[3] % 2, 0, finer.shape[2] % 2)
            finer = F.pad(finer, odd, mode="replicate" if self._endless else "constant")
            self._levels.append(F.avg_pool2d(finer, 2)[0])
        return self._levels[k]

    def sample(self, u: Tensor, v: Tensor, across: Tensor, down: Tensor) -> Tensor:
        """(C, N) at texels (u, v), of a level that fits `across` and `down` texels per pixel; all (N,)."""
        texels = torch.maximum((across * down).sqrt(), torch.maximum(across, down) / MOST_FORESHORTENED)
        level = (texels.clamp(2**SHARPER, 2**COARSEST).log2() - SHARPER).round()
        if self._endless:
            rows, columns = self._levels[0].shape[1:]
            u, v = _mirrored(u, columns), _mirrored(v, rows)
        low, high = (int(bound) for bound in level.aminmax())
        if low == high:
            return self._sample_level(u, v, low)
        sampled = u.new_zeros(len(self._levels[0]), len(u))
        for k in range(low, high + 1):
            these = (level == k).nonzero()[:, 0]
            if len(these):
                sampled[:, these] = self._sample_level(u[these], v[these], k)
        return sampled

    def _sample_level(self, u: Tensor, v: Tensor, k: int) -> Tensor:
        texture = self.level(k)
        rows, columns = texture.shape[1:]
        size = 2**k  # of a texel: both views must find it at the same place, whatever the level
        grid = torch.stack(((2 * u + 1) / (size * columns) - 1, (2 * v + 1) / (size * rows) - 1), -1)
        padding = "border" if self._endless else "zeros"
        sampled = F.grid_sample(texture[None], grid[None, None], "bilinear", padding, align_corners=False)
        return sampled[0, :, 0]


def _mirrored(u: Tensor, length: int) -> Tensor:
    """Texels of a row that goes on, mirrored, at both ends."""
    u = (u + 0.5) % (2 * length)
    return torch.minimum(u, 2 * length - u) - 0.5
