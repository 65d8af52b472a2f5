"""Confidence of a disparity: attention that goes to where it points in the other view, and comes back.

The cycle attention (Equation 3), counted only where it passes near the estimated position in the right view
and returns near the pixel: sum over k near j - d of M_right->left(j, k) times the sum over l near j of
M_left->right(k, l). One where both maps are sure and agree with the result, near zero where either is spread
out or contradicts.

Shapes: R rows of a strip, W columns of both views, at a quarter of the pictures' size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pamcli.networks.parallax import NEAR, columns_near
from pamcli.streaming.attention import Block


class Cycle:
    """Adds it up, for a strip of rows, from pieces of the two maps: first all of one, then of the other."""

    def __init__(self, disparity: Tensor, first_row: int) -> None:
        """`disparity` (R, W) in its own pixels; `first_row`: row of the picture that it begins with."""
        width = disparity.shape[1]
        self.first_row = first_row
        self.column = torch.arange(width, device=disparity.device)
        self.reach = int(NEAR)
        self.near, self.there = (x.movedim(-1, 0) for x in columns_near(disparity))  # (4, R, W) columns k
        self.mass = torch.zeros(self.near.shape, device=disparity.device)
        self.total = torch.zeros_like(disparity)

    def to_right(self, lines: tuple[int, int], block: Block, attention: Tensor) -> None:
        """Attention M_right->left(j, k) for k near j - d."""
        at = slice(lines[0] - self.first_row, lines[1] - self.first_row), slice(block.first, block.last)
        for step, k in enumerate(self.near[:, *at]):
            inside = self.there[step, *at] & (k >= block.low) & (k < block.high)
            found = attention.gather(2, (k - block.low).clamp(0, block.high - block.low - 1)[..., None])
            self.mass[step, *at] = found[..., 0] * inside

    def and_back(self, lines: tuple[int, int], block: Block, attention: Tensor) -> None:
        """Times M_left->right(k, l) for l near j."""
        at = slice(lines[0] - self.first_row, lines[1] - self.first_row)
        flat = attention.flatten(1)
        span = block.high - block.low
        for step, k in enumerate(self.near[:, at]):
            passes = (k >= block.first) & (k < block.last)
            row = (k - block.first).clamp(0, block.last - block.first - 1) * span
            for shift in range(-self.reach, self.reach + 1):
                home = self.column + shift - block.low
                inside = passes & (home >= 0) & (home < span)
                found = flat.gather(1, row + home.clamp(0, span - 1)) * inside
                self.total[at] += self.mass[step, at] * found

    def confidence(self) -> Tensor:
        """(R, W) in [0, 1], of what was handed over."""
        return self.total.clamp(0, 1)
