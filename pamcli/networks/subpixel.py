"""Add detail of the other image between the pixels of this one, for PASSRnet 2.

Shapes: B batch, C channels, H rows, W columns of the low-resolution images, V columns of the other image.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PHASES = 4  # positions between two pixels that `SubpixelDetail` distinguishes
DETAIL_GAIN = 10.0  # factor from differences of colors in [0, 1] to the magnitude of features

Attended = tuple[Tensor, Tensor]  # columns attended to most (B, H, W, 1); attention on these and neighbors


class SubpixelDetail(nn.Module):
    """Detail of the other image between the pixels of this one.

    The most attended pixel of the other image has a subpixel offset (its phase), which follows from the
    attention to it and its neighbours. The difference of its color and the interpolated color of this image
    is the missing detail. It is sorted by phase, weighted by attention, and joined to the features by a layer
    that starts at 0.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.join = nn.Conv2d(4 * PHASES, width, 1)
        nn.init.zeros_(self.join.weight)
        nn.init.zeros_(self.join.bias)  # type: ignore[arg-type]

    def forward(self, images: Tensor, attended: Sequence[Attended]) -> Tensor:
        """Compute features (2B, C, H, W) from images (2B, 3, H, W) and their most attended columns."""
        left, right = images.float().chunk(2)
        detail = torch.cat(
            (_gather_detail(left, right, *attended[0]), _gather_detail(right, left, *attended[1]))
        )
        return self.join(detail.to(self.join.weight.dtype))  # type: ignore[no-any-return]


def find_most_attended(attention_map: Tensor) -> Attended:
    """Find the most attended columns of a map (B, H, W, V), which need not be normalized."""
    width = attention_map.shape[-1]
    attention_map = attention_map.contiguous()
    attended = attention_map.argmax(-1, keepdim=True)
    beside = attended + torch.arange(-1, 2, device=attended.device)
    near = beside.clamp(0, width - 1)
    return attended, attention_map.gather(-1, near) * (near == beside)


def _gather_detail(own: Tensor, other: Tensor, attended: Tensor, weights: Tensor) -> Tensor:
    """Compute weights and detail by phase (B, 4 PHASES, H, W) of `own` and `other` images (B, 3, H, W)."""
    near = attended + torch.arange(-1, 2, device=own.device)
    mass = weights.sum(-1)
    phase = (attended[..., 0] - (weights * near).sum(-1) / mass).clamp(-0.5, 0.5)[:, None]
    seen = other.gather(3, attended[..., 0][:, None].expand_as(own))
    padded = F.pad(own, (1, 1, 0, 0), mode="replicate")
    slope = torch.where(phase > 0, padded[..., 2:] - own, own - padded[..., :-2])
    beyond = DETAIL_GAIN * (seen - (own + phase * slope))
    centres = ((torch.arange(PHASES, device=own.device) + 0.5) / PHASES - 0.5).view(-1, 1, 1)
    distance = (phase.clamp(0.5 / PHASES - 0.5, 0.5 - 0.5 / PHASES) - centres).abs()
    by_phase = (1 - PHASES * distance).clamp(min=0) * mass[:, None]  # (B, PHASES, H, W)
    return torch.cat((by_phase, (beyond[:, :, None] * by_phase[:, None]).flatten(1, 2)), 1)
