"""How far off a disparity may be, and the confidence that follows: what PASMnet 2 says of its own result.

Shapes: B batch, h rows, w columns of the scale whose disparity is judged.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import conv
from pamcli.networks.neighbourhoods import signed_log

RIGHT = 3.0
"""Confidence is the probability that a disparity is off by less, in pixels of the pictures."""

SURROUNDINGS = 6
"""Pixels to each side, in those of the scale, whose errors tell something of a pixel's own."""

SMALLEST_NEAR = 1e-7  # attention below it counts as this much
LARGEST_LOG_SCALE = 5.0  # of an error's distribution


class ErrorScale(nn.Module):
    """How far off a disparity is likely to be: the scale of a Laplace distribution of its error.

    It is learned beside the rest, which learns nothing of it.
    """

    def __init__(self, width: int) -> None:
        """`width`: channels of the hidden state."""
        super().__init__()
        self.see = conv(width + 3, width, 1, bias=True)
        self.out = conv(width, 1, 1, bias=True)

    def forward(self, hidden: Tensor, near: Tensor, disparity: Tensor, coarser: Sequence[Tensor]) -> Tensor:
        """Return the logarithm of the scale in pixels of the images, (B, h, w) float32.

        Args:
            hidden: The last hidden state (B, C, h, w).
            near: Attention near the disparity (B, h, w).
            disparity: (B, h, w), pixels of this scale.
            coarser: Disparities of both coarser scales (B, h, w), in pixels of this one.
        """
        attention = near.clamp(min=SMALLEST_NEAR).log() / 4
        apart = [signed_log(disparity - other) for other in coarser]
        seen = torch.cat((hidden, torch.stack((attention, *apart), 1).to(hidden.dtype)), 1)
        scale: Tensor = self.out(F.relu(self.see(seen.to(self.see.weight.dtype))))
        return scale[:, 0].float().clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)


def with_surroundings(error_scale: Tensor) -> Tensor:
    """Mean of a pixel's scale and of what is the mean around it: (B, h + 2 r, w + 2 r) to (B, h, w).

    Logarithms both; r is `SURROUNDINGS`. Errors come in patches, in which a single pixel may look right.
    """
    scale, r = error_scale.exp(), SURROUNDINGS
    around = F.avg_pool2d(scale[:, None], 2 * r + 1, stride=1)[:, 0]
    return ((scale[:, r:-r, r:-r] + around) / 2).log()


def confidence_of(error_scale: Tensor) -> Tensor:
    """Probability that an error is below `RIGHT` pixels, by the logarithm of its distribution's scale."""
    return 1 - torch.exp(-RIGHT * torch.exp(-error_scale))
