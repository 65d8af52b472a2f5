"""PASMnet 2: parallax attention and disparity from coarse to fine.

The coarsest scale settles walls and occlusions, where 64 pixels of the pictures are four of its own; finer
ones take its answer as one more candidate and put the edges right. At each scale one symmetric matrix of
costs serves both directions of the attention. A first disparity is regressed in a window around its peak, and
then updated: each pixel looks up how well the disparities near its own match; a hidden state, which that
changes, gives weights for a mean of its neighbours' disparities and the coarser scale's, and a correction
that is added (`neighbourhoods.mixed`). A convex mixture enlarges the last one (as in RAFT).

Shapes: B batch, C channels, h rows, w columns of a scale, which is 1/16, 1/8 or 1/4 of the pictures' size
(H, W); `views` holds both views joined in the batch, left first: (2B, C, h, w). Columns of the left view are
j, those of the right one k. Disparities are in pixels of their scale unless said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import Decoder, Encoder, conv, conv_unit, upsample, upsample_cost
from pamcli.networks.error_scale import SURROUNDINGS, ErrorScale, confidence_of, with_surroundings
from pamcli.networks.neighbourhoods import convex_enlarged, edged, mixed, neighbours, signed_log
from pamcli.networks.parallax import (
    ParallaxMaps,
    columns_near,
    matching_cost,
    out_of_order,
    received_mass,
    valid_mask,
)
from pamcli.networks.pasmnet import STAGE_STRIDES, ParallaxAttentionBlock

WIDTH = 48  # channels of the context and of the hidden state of every scale

UPDATES = 5, 2, 4  # of the disparity at 1/16, 1/8 and 1/4 of the pictures' size

WINDOW = 2  # a scale's own disparity is the mean of the attention within so many columns of its peak

REACH = 4  # an update looks up the attention at so many disparities to either side of its own
NEAR_COARSER = 1  # and of the coarser scale's

SMALLEST_LOG = -16.0
LOG_SCALE = 0.25
"""Logarithms of attention are cut off at the first, and multiplied by the second for the convolutions."""

IMPOSSIBLE = -1e4  # the cost of columns that no pixel can match: an attention of exactly 0

OTHERS = [0, 1, 2, 3, 5, 6, 7, 8]  # of 3 x 3 neighbours, those that are not the pixel itself

LARGEST_RECEIVED = 2.0
BORDER = 8
"""Received attention is cut off at the first; the left border of the row shows within so many pixels."""


class FoundAtScale(NamedTuple):
    """What is found out at one scale."""

    right_to_left: Tensor
    """log M_right->left (B, h, w, w): rows are left pixels j; about `IMPOSSIBLE` where k > j."""
    left_to_right: Tensor
    """log M_left->right (B, h, w, w): rows are right pixels k; about `IMPOSSIBLE` where j < k."""
    received: Tensor
    """Attention that each left pixel receives (B, h, w), detached."""
    initial: Tensor
    """Disparity from this scale's attention alone (B, h, w)."""
    updates: tuple[Tensor, ...]
    """Disparity after each update (B, h, w); the finer scale takes up the last."""

    def maps(self) -> ParallaxMaps:
        """Attention itself, with its valid masks."""
        there, back = self.right_to_left.exp(), self.left_to_right.exp()
        return ParallaxMaps(there, back, valid_mask(self.received), valid_mask(received_mass(there)))


@dataclass(frozen=True)
class PASMnet2Matching:
    """What PASMnet 2 finds out about a batch of pairs."""

    disparity: Tensor
    """Disparity of the left view (B, 1, H, W), pixels of the pictures, >= 0."""
    scales: tuple[FoundAtScale, ...]
    """What is found at 1/16, 1/8 and 1/4 of the size."""
    error_scale: Tensor
    """Logarithm of how far off the disparity is likely to be (B, H/4, W/4), see `ErrorScale`."""

    @property
    def confidence(self) -> Tensor:
        """(B, H/4, W/4) in [0, 1], see `confidence_of`; detached."""
        return confidence_of(self.error_scale.detach())

    @property
    def received(self) -> Tensor:
        """Attention that each left pixel receives at the finest scale (B, H/4, W/4), detached."""
        return self.scales[-1].received

    @property
    def initial(self) -> Tensor:
        """Disparity from the attention of the finest scale alone (B, H/4, W/4)."""
        return self.scales[-1].initial

    @cached_property
    def maps(self) -> tuple[ParallaxMaps, ...]:
        """Attention and masks of each scale, made when they are asked for."""
        return tuple(scale.maps() for scale in self.scales)


class PASMnet2(nn.Module):
    """Disparity of the left view of a rectified pair, without a maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.E0 = conv_unit(3, 32, stride=2)
        self.E1 = Encoder(32, 64, down=True)
        self.E2 = Encoder(64, 96, down=True)
        self.E3 = Encoder(96, 128, down=True)
        self.E4 = Encoder(128, 160, down=True)
        self.D0 = Encoder(160, 160)
        self.D1 = Decoder(160 + 128, 128)
        self.D2 = Decoder(128 + 96, 96)
        self.D3 = conv_unit(96 + 64, 64, 1)
        self.st1 = Stage(128, blocks=2)
        self.st2 = Stage(96, blocks=1)
        self.st3 = Stage(64, blocks=1)
        self.b2 = conv_unit(128 + 96, 96, 1, bias=True)
        self.b3 = conv_unit(96 + 64, 64, 1, bias=True)
        self.s1 = Scale(128 + 128, updates=UPDATES[0], dilations=(1, 2, 4), coarsest=True)
        self.s2 = Scale(96 + 96, updates=UPDATES[1], dilations=(1, 2, 4))
        self.s3 = Scale(64 + 64, updates=UPDATES[2], dilations=(1, 3, 9))
        self.x2 = conv_unit(32, 32, stride=2, slope=0)
        self.mask = nn.Sequential(conv_unit(WIDTH + 64 + 32, 64, 1, slope=0), conv(64, 9 * 16, 1, bias=True))
        self.error_scale = ErrorScale(WIDTH)
        for parameter in self.mask[1].parameters():  # training begins with the mean of the nine
            nn.init.zeros_(parameter)

    def forward(
        self, left: Tensor, right: Tensor, max_disparity: int | None = None, *, all_stages: bool = True
    ) -> PASMnet2Matching:
        """`left`, `right` (B, 3, H, W), RGB less ImageNet's mean and over its deviation.

        Sides are multiples of 32. `max_disparity`, a multiple of 16, in pixels: the attention then considers
        only disparities below it. `all_stages`, which `PASMnet` needs to be told, is of no effect: every
        scale is returned.
        """
        x0 = self.E0(torch.cat((left, right)))  # (2B, 32, H/2, W/2)
        x1 = self.E1(x0)  # 1/4
        x2 = self.E2(x1)  # 1/8
        x3 = self.E3(x2)  # 1/16
        F1 = self.D1(self.D0(self.E4(x3)), x3)
        F2 = self.D2(F1, x2)
        F3 = self.D3(torch.cat((upsample(F2), x1), 1))

        v1, cost1 = self.st1(F1)
        v2, cost2 = self.st2(self.b2(torch.cat((upsample(v1), F2), 1)))
        v3, cost3 = self.st3(self.b3(torch.cat((upsample(v2), F3), 1)))
        cost2 = cost2 + upsample_cost(cost1)
        cost3 = cost3 + upsample_cost(cost2)

        limits = [None if max_disparity is None else max_disparity // stride for stride in STAGE_STRIDES]
        only = slice(len(left))  # the left view of both
        coarse, hidden = self.s1(torch.cat((v1, x3), 1)[only], *attention_logs(cost1, limits[0]))
        first = coarser_of(coarse, hidden)
        middle, hidden = self.s2(torch.cat((v2, x2), 1)[only], *attention_logs(cost2, limits[1]), first)
        second = coarser_of(middle, hidden)
        fine, hidden = self.s3(torch.cat((v3, x1), 1)[only], *attention_logs(cost3, limits[2]), second)

        d = fine.updates[-1]
        mixture = self.mask(torch.cat((hidden, v3[only], self.x2(x0[only])), 1))
        told = second.disparity, 2 * upsample(first.disparity[:, None])[:, 0]
        near = attention_near(fine.right_to_left, d)
        own = self.error_scale(hidden.detach(), near.detach(), d.detach(), [x.detach() for x in told])
        error_scale = with_surroundings(edged(own, SURROUNDINGS))
        return PASMnet2Matching(convex_enlarged(edged(d, 1), mixture), (coarse, middle, fine), error_scale)


class Stage(nn.Module):
    """Blocks of one scale, and its matching cost, which is one for both directions.

    The cost of left column j and right column k is (q_l(j) k_r(k) + k_l(j) q_r(k)) / 2C, summed over the
    blocks: one product of the queries and keys of both views, side by side.
    """

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.width = width
        self.blocks = cast(
            "Sequence[ParallaxAttentionBlock]",
            nn.ModuleList(ParallaxAttentionBlock(width) for _ in range(blocks)),
        )

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """(2B, C, h, w) to features (2B, C, h, w) and cost (B, h, w of the left view, w of the right)."""
        queries, keys = [], []
        for block in self.blocks:
            views, query, key = block(views)
            queries.append(query)
            keys.append(key)
        query_left, query_right = torch.cat(queries, 1).chunk(2)
        key_left, key_right = torch.cat(keys, 1).chunk(2)
        left = torch.cat((query_left, key_left), 1) / (2 * self.width)
        return views, matching_cost(left, torch.cat((key_right, query_right), 1))


class Coarser(NamedTuple):
    """What a scale is told by the one before it, which has half of its size."""

    disparity: Tensor
    """Its last disparity (B, h, w), enlarged, in pixels of this scale."""
    hidden: Tensor
    """Its last hidden state (B, 48, h, w), enlarged."""
    right_to_left: Tensor
    """Its log M_right->left (B, h/2, w/2, w/2)."""


def coarser_of(found: FoundAtScale, hidden: Tensor) -> Coarser:
    """What the next scale is told of this one."""
    return Coarser(2 * upsample(found.updates[-1][:, None])[:, 0], upsample(hidden), found.right_to_left)


class Scale(nn.Module):
    """Disparity at one scale: that of its attention, then updates, with the coarser scale's as candidates."""

    def __init__(
        self, described: int, *, updates: int, dilations: tuple[int, int, int], coarsest: bool = False
    ) -> None:
        """`described`: channels of its features. `dilations`: of the 3 x 3 neighbours that an update sees."""
        super().__init__()
        self.updates, self.dilations, self.coarsest = updates, dilations, coarsest
        self.ctx = conv_unit(described, WIDTH, 1, slope=0)
        self.h0 = conv_unit(described + (0 if coarsest else WIDTH), WIDTH, 1, slope=0)
        neighbours, own = 9 * len(dilations), 2 * REACH + 1
        seen = own + neighbours - len(dilations) + 3
        self.upd = Update(seen, neighbours) if coarsest else Update(seen + own + 9 + 3, neighbours + 9)

    def forward(
        self, described: Tensor, right_to_left: Tensor, left_to_right: Tensor, coarser: Coarser | None = None
    ) -> tuple[FoundAtScale, Tensor]:
        """What is found out at this scale, and the last hidden state (B, 48, h, w).

        `described` (B, C, h, w): features of the left view; `right_to_left`, `left_to_right`: see
        `attention_logs`; `coarser`: all but the coarsest have it.
        """
        context = self.ctx(described)
        hidden = self.h0(described if coarser is None else torch.cat((described, coarser.hidden), 1))
        received = received_mass(left_to_right.detach().exp())
        initial, mass = windowed_regression(right_to_left)
        trust = torch.stack((mass.detach(), received.clamp(max=LARGEST_RECEIVED)), 1)
        theirs = None if coarser is None else edged(coarser.disparity, 1)
        d, updates = initial, []
        for _ in range(self.updates):
            here = d.detach()
            logs = [looked_up(right_to_left, here, REACH)]
            if coarser is not None:
                halved = F.avg_pool2d(here[:, None], 2)[:, 0] / 2
                logs.append(upsample(looked_up(coarser.right_to_left, halved, REACH)))
                logs.append(looked_up(right_to_left, coarser.disparity.detach(), NEAR_COARSER))
            hidden, mixing = self.upd(
                self.seen(edged(here, self.reach), theirs, logs, trust), context, hidden
            )
            d = mixed(self.candidates(edged(d, self.reach), theirs), mixing)
            updates.append(d)
        return FoundAtScale(right_to_left, left_to_right, received, initial, tuple(updates)), hidden

    def seen(self, d: Tensor, theirs: Tensor | None, logs: Sequence[Tensor], trust: Tensor) -> Tensor:
        """What an update sees at the disparity `d`: (B, 36 or 57, h, w).

        Its shape, and its steps to the coarser scale's; how well both match; and how near the match is to the
        left border, beyond which there is none. `d`, `theirs`: see `candidates`. `logs`: what `looked_up`
        finds at `d`, and where there is a coarser scale, there at `d` and here at `theirs`. `trust` (B, 2, h,
        w): attention in the window, and received.
        """
        around = [neighbours(d, self.reach, dilation) for dilation in self.dilations]
        own = around[0][:, 4:5]
        border = ((torch.arange(own.shape[-1], device=own.device) - own) / BORDER).clamp(-1, 1)
        steps = torch.cat([near[:, OTHERS] for near in around], 1) - own
        parts = [logs[0], signed_log(steps), trust, border]
        if theirs is not None:
            to_theirs = signed_log(neighbours(theirs.detach(), 1, 1) - own)
            parts += [logs[1], to_theirs, logs[2]]
        return torch.cat(parts, 1)

    def candidates(self, d: Tensor, theirs: Tensor | None) -> Tensor:
        """Disparities among which an update chooses: (B, 27 or 36, h, w).

        `d` (B, h + 2 `reach`, w + 2 `reach`): disparity, and what is around it; `theirs` (B, h + 2, w + 2):
        the coarser scale's.
        """
        around = [neighbours(d, self.reach, dilation) for dilation in self.dilations]
        return torch.cat(around if theirs is None else [*around, neighbours(theirs, 1, 1)], 1)

    @property
    def reach(self) -> int:
        """How far away the farthest of the neighbours are."""
        return max(self.dilations)


class Update(nn.Module):
    """Hidden state, mixing weights and correction from what is seen; one serves all updates of a scale."""

    def __init__(self, seen: int, candidates: int) -> None:
        super().__init__()
        self.enc = conv_unit(seen, 40, 1, slope=0)
        self.mix = conv_unit(40 + 2 * WIDTH, WIDTH, 1, slope=0)
        self.a = conv_unit(WIDTH, WIDTH, dilation=2, slope=0)
        norm = nn.BatchNorm2d(WIDTH)
        self.b = nn.Sequential(conv(WIDTH, WIDTH), norm)
        self.out = conv(WIDTH, candidates + 1, bias=True)
        # Training begins with an update in which a pixel's own disparity, amid its 3 x 3, counts about half.
        for weight in (norm.weight, *self.out.parameters()):
            nn.init.zeros_(weight)
        assert self.out.bias is not None
        nn.init.constant_(self.out.bias[4:5], 3)

    def forward(self, seen: Tensor, context: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 36 or 57, h, w), (B, 48, h, w) twice to the new hidden state, and the mixing weights with
        the correction as their last channel."""
        x = self.mix(torch.cat((self.enc(seen), context, hidden), 1))
        hidden = F.relu(x + self.b(self.a(x)))
        return hidden, self.out(hidden)


def attention_logs(cost: Tensor, limit: int | None) -> tuple[Tensor, Tensor]:
    """log M_right->left and log M_left->right, (B, h, w, w) each, of one cost (B, h, w, w).

    Of rows j and columns k <= j of the cost; the softmax runs over k, and over j. `limit` keeps only
    disparities below it.
    """
    column = torch.arange(cost.shape[-1], device=cost.device)
    cost = cost.masked_fill(out_of_order(column, column, "left", limit), IMPOSSIBLE)
    return cost.log_softmax(-1), cost.log_softmax(-2).transpose(-1, -2)


def windowed_regression(logs: Tensor) -> tuple[Tensor, Tensor]:
    """Expected disparity near the peak of M_right->left (B, h, w, w), and the attention there, (B, h, w)."""
    k, inside = columns_of_window(logs.argmax(-1), logs.shape[-1])
    near = logs.gather(-1, k.clamp(0, logs.shape[-1] - 1)).exp() * inside
    return expected_disparity(near, k)


def columns_of_window(peak: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Columns within `WINDOW` of a peak (B, h, w): (B, h, w, 5), and which of them there are."""
    k = peak[..., None] + torch.arange(-WINDOW, WINDOW + 1, device=peak.device)
    return k, (k >= 0) & (k < width)


def expected_disparity(attention: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Disparity of columns k (B, h, w, n), weighted by their attention, and the sum of that, (B, h, w)."""
    mass = attention.sum(-1)
    column = torch.arange(k.shape[-2], device=k.device)
    return (column - (attention * k).sum(-1) / mass.clamp(min=1e-6)).clamp(min=0), mass


def looked_up(logs: Tensor, disparity: Tensor, reach: int) -> Tensor:
    """log M_right->left (B, h, w, w) at d + `reach` ... d - `reach`: (B, 2 reach + 1, h, w)."""
    columns, share = columns_around(disparity, reach)
    return between_columns(logs.gather(-1, columns), share)


def columns_around(disparity: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """Right columns around the match of d + `reach` ... d - `reach`, and how far each is from the one before.

    (B, h, w, 2 reach + 2) and (B, h, w, 1). Beyond the row its outermost column counts.
    """
    width = disparity.shape[-1]
    position = torch.arange(width, device=disparity.device) - disparity
    before = position.floor()
    steps = torch.arange(-reach, reach + 2, device=disparity.device)
    return (before.long()[..., None] + steps).clamp(0, width - 1), (position - before)[..., None]


def between_columns(logs: Tensor, share: Tensor) -> Tensor:
    """Values between the columns of `columns_around`, of logarithms there: (B, 2 reach + 1, h, w)."""
    logs = logs.clamp(min=SMALLEST_LOG) * LOG_SCALE
    return torch.lerp(logs[..., :-1], logs[..., 1:], share).permute(0, 3, 1, 2)


def attention_near(logs: Tensor, disparity: Tensor) -> Tensor:
    """Attention that goes near where a disparity (B, h, w) points, of log M_right->left (B, h, w, w)."""
    k, counts = columns_near(disparity)
    return (logs.gather(-1, k.clamp(0, disparity.shape[-1] - 1)).exp() * counts).sum(-1)
