"""PASMnet 2: the matching of PASMnet, and a head that keeps edges in place of its output and refinement.

The attention matches well; a mean over the whole row, filling along it and plain enlargement over depth edges
lose that. So disparity is regressed in a window around the peak, and updated three times: each pixel looks up
how well the disparities near its own match, and takes a weighted mean of those of 27 neighbours, which
carries surfaces into occlusions whatever their disparity; a convex mixture enlarges the result (as in RAFT).

Shapes: B batch, C channels, H rows, W columns of a quarter of the pictures' size unless said, V columns of
the other view. Disparities are in quarter-size pixels. Attribute names of the matching are those of the
authors' checkpoints.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import conv, conv_unit, upsample
from pamcli.networks.parallax import columns_near, received_mass
from pamcli.networks.pasmnet import CascadedParallaxAttention, Hourglass, Matching, stage_maps

WINDOW = 2  # disparity is the mean of the attention within so many columns of its peak

REACH = 4  # an update looks up the attention at so many disparities to either side of its own

SMALLEST_LOG = -16.0
LOG_SCALE = 0.25
"""Logarithms of attention are cut off at the first, and multiplied by the second for the convolutions."""

DILATIONS = (1, 3, 9)  # of the 3 x 3 neighbours that an update sees and mixes

FARTHEST = max(DILATIONS)
OTHERS = [0, 1, 2, 3, 5, 6, 7, 8]  # of the 3 x 3, those that are not the pixel itself

UPDATES = 3
WIDTH = 48  # channels of the context and of the hidden state

MOVED = 10.0  # where the updates move a disparity by so many pixels, its confidence is halved

LARGEST_RECEIVED = 2.0
BORDER = 8
"""Received attention is cut off at the first; the left border of the row shows within so many pixels."""


class PASMnet2(nn.Module):
    """Disparity of the left view of a rectified pair, without a maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.hourglass = Hourglass()
        self.cas_pam = CascadedParallaxAttention()
        self.ctx = conv_unit(64 + 64, WIDTH, 1, slope=0)
        self.h0 = conv_unit(64 + 64, WIDTH, 1, slope=0)
        self.upd = Update()
        self.x2 = conv_unit(32, 32, stride=2, slope=0)
        mixture = conv(64, 9 * 16, 1, bias=True)
        self.mask = nn.Sequential(conv_unit(WIDTH + 64 + 32, 64, slope=0), mixture)
        for parameter in mixture.parameters():  # training begins with the mean of the nine
            nn.init.zeros_(parameter)

    def forward(
        self, left: Tensor, right: Tensor, max_disparity: int | None = None, *, all_stages: bool = False
    ) -> Matching:
        """`left`, `right` (B, 3, 4 H, 4 W), `max_disparity` and `all_stages` as of `PASMnet.forward`."""
        F1, F2, F3, early, half = self.hourglass(torch.cat((left, right)))
        costs, matched = self.cas_pam(F1, F2, F3)
        *coarser, eighth, quarter = stage_maps(costs if all_stages else costs[1:], max_disparity)
        initial, mass = windowed_regression(quarter.right_to_left)
        received = received_mass(quarter.left_to_right).clamp(max=LARGEST_RECEIVED)
        trust = mass.detach(), received
        early, matched, half = (x[: len(left)] for x in (early, matched, half))
        described = torch.cat((early, matched), 1)
        context, hidden = self.ctx(described), self.h0(described)
        updates, d = [], initial
        for _ in range(UPDATES):
            here = d.detach()
            log4 = looked_up(lambda k: quarter.right_to_left.gather(-1, k), here)
            coarse = F.avg_pool2d(here[:, None], 2)[:, 0] / 2
            log8 = upsample(looked_up(lambda k: eighth.right_to_left.gather(-1, k), coarse))
            seen = torch.cat((log4, log8, surroundings(here, *trust)), 1)
            hidden, mixing = self.upd(seen, context, hidden)
            d = mixed_neighbours(d, mixing)
            updates.append(d)
        mixture = self.mask(torch.cat((hidden, matched, self.x2(half)), 1))
        maps = (*coarser, eighth, quarter) if all_stages else (quarter,)
        sure = confidence(lambda k: quarter.right_to_left.gather(-1, k), d.detach(), initial.detach())
        return Matching(convex_enlarged(d, mixture), initial, maps, None, tuple(updates), sure.detach())


class Update(nn.Module):
    """Hidden state and mixing weights from what is seen at the current disparity; shared by all updates."""

    def __init__(self) -> None:
        super().__init__()
        seen = 2 * (2 * REACH + 1) + 8 * len(DILATIONS) + 3
        self.enc = conv_unit(seen, 40, 1, slope=0)
        self.mix = conv_unit(40 + 2 * WIDTH, WIDTH, slope=0)
        self.res = UpdateResidual()
        self.out = conv(WIDTH, 9 * len(DILATIONS) + 1, bias=True)
        # Training begins with an update that keeps a pixel's own disparity, the middle of its 3 x 3.
        nn.init.zeros_(self.out.weight)
        assert self.out.bias is not None
        nn.init.zeros_(self.out.bias)
        nn.init.constant_(self.out.bias[4:5], 3)

    def forward(self, seen: Tensor, context: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 45, H, W), (B, 48, H, W) twice to the new hidden state and the mixing weights (B, 28, H, W)."""
        hidden = self.res(self.mix(torch.cat((self.enc(seen), context, hidden), 1)))
        return hidden, self.out(hidden)


class UpdateResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = conv_unit(WIDTH, WIDTH, dilation=2, slope=0)
        norm = nn.BatchNorm2d(WIDTH)
        nn.init.zeros_(norm.weight)
        self.b = nn.Sequential(conv(WIDTH, WIDTH), norm)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.b(self.a(x)))


def windowed_regression(attention: Tensor, first_column: tuple[int, int] = (0, 0)) -> tuple[Tensor, Tensor]:
    """Expected disparity near the peak of M_right->left (B, H, W, V), and the attention there, (B, H, W).

    `first_column` (of this view, of the other): those that a piece of a map begins with; what it leaves out
    is zero.
    """
    first, low = first_column
    width, span = attention.shape[-2:]
    steps = torch.arange(-WINDOW, WINDOW + 1, device=attention.device)
    k = attention.argmax(-1, keepdim=True) + steps
    near = attention.gather(-1, k.clamp(0, span - 1)) * ((k >= 0) & (k < span))
    mass = near.sum(-1)
    j = torch.arange(first, first + width, device=attention.device)
    disparity = j - low - (near * k).sum(-1) / mass.clamp(min=1e-6)
    return disparity.clamp(min=0), mass


def looked_up(attention: Callable[[Tensor], Tensor], disparity: Tensor) -> Tensor:
    """Logarithm of M_right->left at d + 4 ... d - 4, linear between columns: (B, H, W) to (B, 9, H, W).

    `attention` gives M at columns k (B, H, W, n) of the other view, as many as this one has. Beyond the row
    its outermost value counts. Times `LOG_SCALE`.
    """
    width = disparity.shape[-1]
    position = torch.arange(width, device=disparity.device) - disparity
    before = position.floor()
    steps = torch.arange(-REACH, REACH + 2, device=disparity.device)
    k = (before.long()[..., None] + steps).clamp(0, width - 1)
    logs = attention(k).clamp(min=math.exp(SMALLEST_LOG)).log() * LOG_SCALE
    return torch.lerp(logs[..., :-1], logs[..., 1:], (position - before)[..., None]).permute(0, 3, 1, 2)


def confidence(attention: Callable[[Tensor], Tensor], disparity: Tensor, initial: Tensor) -> Tensor:
    """How sure a disparity is, (B, H, W) in [0, 1]: the attention that goes near where it points.

    Less where the updates have moved it far from the attention's own `initial`. `attention` as of
    `looked_up`.
    """
    k, counts = columns_near(disparity)
    near = (attention(k.clamp(0, disparity.shape[-1] - 1)) * counts).sum(-1)
    return (near / (1 + (disparity - initial).abs() / MOVED)).clamp(0, 1)


Margin = tuple[int, int]
"""Rows that a strip of disparities has above and below those that are asked for; its edges are repeated."""


def surroundings(disparity: Tensor, confidence: Tensor, received: Tensor, margin: Margin = (0, 0)) -> Tensor:
    """The shape of the disparity around each pixel, and how far it is to be trusted: (B, 27, H, W).

    The steps to its neighbours, on a scale that tells small ones apart; attention in the window, attention
    received; and how near the match is to the left border, beyond which there is none. `margin`: of
    `disparity` alone.
    """
    around = [neighbours(disparity, dilation, margin) for dilation in DILATIONS]
    own = around[0][:, 4]
    steps = torch.cat([near[:, OTHERS] for near in around], 1) - own[:, None]
    border = ((torch.arange(own.shape[-1], device=own.device) - own) / BORDER).clamp(-1, 1)
    trust = torch.stack((confidence, received, border), 1)
    return torch.cat((steps.sign() * steps.abs().log1p(), trust), 1)


def mixed_neighbours(disparity: Tensor, mixing: Tensor, margin: Margin = (0, 0)) -> Tensor:
    """Mean of 27 neighbours' disparities, weighted by softmax, plus the last of (B, 28, H, W), at least 0."""
    mixing = mixing.float()
    candidates = torch.cat([neighbours(disparity, dilation, margin) for dilation in DILATIONS], 1)
    mean = (mixing[:, :-1].softmax(1) * candidates).sum(1)
    return (mean + mixing[:, -1]).clamp(min=0)


def convex_enlarged(disparity: Tensor, mixture: Tensor, margin: Margin = (0, 0)) -> Tensor:
    """Each full-size pixel a convex mixture of the 3 x 3 disparities around it, in full-size pixels.

    (B, H, W) and (B, 9 * 16, H, W), weights before the softmax, to (B, 1, 4 H, 4 W).
    """
    count, _, height, width = mixture.shape
    weights = mixture.float().view(count, 9, 16, height, width).softmax(1)
    mixed = (weights * neighbours(4 * disparity, 1, margin)[:, :, None]).sum(1)  # (B, 16, H, W)
    return F.pixel_shuffle(mixed, 4)


def neighbours(values: Tensor, dilation: int, margin: Margin = (0, 0)) -> Tensor:
    """The 3 x 3 values around each, row by row; edge values repeated: (B, H, W) to (B, 9, H, W)."""
    above, below = margin
    height, width = values.shape[-2] - above - below, values.shape[-1]
    padded = F.pad(values[:, None], (dilation,) * 4, mode="replicate")[:, 0, above:]
    return torch.stack(
        [
            padded[:, down : down + height, right : right + width]
            for down in (0, dilation, 2 * dilation)
            for right in (0, dilation, 2 * dilation)
        ],
        1,
    )
