"""Rows that wait in 16 bits: features and attention of finer scales, while the coarsest looks far ahead."""

import torch
from torch import Tensor

from pamcli.streaming.rolling import Reads, RollingMap

SMALLEST_MAGNITUDE = 1e-20  # of a row that is rounded: rows of zeros stay zeros

SMALLEST_HELD = -20.0
HELD_STEP = (-SMALLEST_HELD) ** 0.5 / 32767
"""Logarithms of attention that wait in 16 bits are cut off at the first, which is less than updates and the
confidence notice; their roots are multiples of the second: no attention changes by more than 0.00006."""


class Rounded(RollingMap):
    """A map of float32 whose rows wait in 16 bits, for which there are more of them than memory is worth.

    Each row of a channel is rounded to multiples of its largest magnitude / 32767, so that it does not matter
    how many rows come at a time.
    """

    def __init__(self, source: RollingMap) -> None:
        super().__init__(source.height, source.step, source.ahead, source.strip)
        self.source = source.reader()

    def read(self, first: int, last: int) -> Tensor:
        """Rows first ... last - 1, as near as they are held."""
        held = super().read(first, last).permute(0, 2, 3, 1)  # (B, R, W + 2, C)
        lines, step = held[:, :, :-2], held[:, :, -2:].reshape(*held.shape[:2], 1, -1).view(torch.float32)
        return (lines * step).permute(0, 3, 1, 2)

    def _reads(self, last: int) -> Reads:
        return [(self.source, last)]

    def _compute(self, first: int, last: int) -> Tensor:
        """(B, C, R, W + 2): behind the row stand the bits of what its numbers are multiples of."""
        lines = self.source(first, last).permute(0, 2, 3, 1)
        self.source.forget(last)
        step = lines.abs().amax(2, keepdim=True).clamp_(min=SMALLEST_MAGNITUDE).div_(32767)
        bits = step.contiguous().view(torch.int16).reshape(*step.shape[:2], 2, -1)
        rounded = (lines / step).round_().to(torch.int16)
        return torch.cat((rounded, bits), 2).permute(0, 3, 1, 2)


def in_16_bits(logs: Tensor) -> Tensor:
    """Round logarithms of the attention, in place; those below `SMALLEST_HELD` are cut off."""
    return logs.clamp_(SMALLEST_HELD, 0).neg_().sqrt_().div_(HELD_STEP).to(torch.int16)


def of_16_bits(held: Tensor) -> Tensor:
    """The logarithms that `in_16_bits` was given, but for its rounding, which is downwards."""
    return held.float().add_(0.5).mul_(HELD_STEP).square_().neg_()
