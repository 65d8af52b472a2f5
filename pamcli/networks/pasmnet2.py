"""Define PASMnet 2, which matches from coarse to fine, for training, inference and export.

The coarsest scale decides about large surfaces and occlusions; finer scales use its result as one more
candidate and correct the edges. At each scale one symmetric matching cost serves both directions of the
attention (`symmetric_attention`). An initial disparity is regressed in a window around the attention's peak
and then updated: each pixel looks up the attention near its disparity and updates a hidden state, which gives
weights for a mean of neighbouring disparities and those of the coarser scale, and a correction
(`updates.mix`). A convex mixture upsamples the last disparity (as in RAFT).

Shapes: B batch, C channels, h rows, w columns of a scale, 1/16, 1/8 or 1/4 of the image size (H, W); `views`
holds both images joined in the batch, left first: (2B, C, h, w). Columns of the left image are j, of the
right one k. Disparities are in px of their scale unless stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import (
    Convolutions,
    Decoder,
    Encoder,
    MatchingNetwork,
    ParallaxAttentionBlock,
    conv,
    conv_unit,
    pointwise,
    upsample,
    upsampling_unit,
)
from pamcli.networks.parallax import ParallaxMaps
from pamcli.networks.pasmnet2_fused import FusedUpdate, MergedStage, split_mixing
from pamcli.networks.symmetric_attention import SymmetricAttention, attend, attend_in_blocks
from pamcli.networks.updates import (
    SURROUNDINGS,
    ErrorScale,
    average_surroundings,
    convex_upsample,
    mix,
    neighbours,
    repeat_edges,
    signed_log,
    to_confidence,
)

WIDTH = 48  # channels of the context and of the hidden state of every scale

UPDATES = 5, 2, 6  # of the disparity at 1/16, 1/8 and 1/4 of the images' size

INNER = {
    "E1": 32,
    "E2": 48,
    "E3": 64,
    "E4": 80,
    "D0": 80,
    "D1": 64,
    "D2": 64,
    "st1": 64,
    "st2": 64,
    "st3": 48,
}
"""Channels between the two convolutions of each part's blocks. Before version 17 they were as many as
outside, but half to three quarters suffice (scripts/training/prune.py)."""

REACH = 4  # disparities to either side at which an update looks up the attention
NEAR_COARSER = 1  # the same around the coarser scale's disparity

LARGEST_RECEIVED = 2.0  # upper bound of the attention mass
BORDER = 8  # distance within which an update sees the left border, px


@dataclass(frozen=True)
class ScaleResult:
    """The result at one scale."""

    attention: SymmetricAttention
    updates: tuple[Tensor, ...]  # disparity after each update (B, h, w); the finer scale uses the last
    hidden: Tensor  # the last hidden state (B, 48, h, w)

    @property
    def disparity(self) -> Tensor:
        return self.updates[-1]


@dataclass(frozen=True)
class PASMnet2Matching:
    """The outputs of PASMnet 2 for a batch of pairs."""

    disparity: Tensor  # disparity of the left image (B, 1, H, W), pixels of the images, >= 0
    scales: tuple[ScaleResult, ...] = field(repr=False)  # results at 1/16, 1/8 and 1/4 of the size
    log_expected_error: Tensor | None  # (B, H/4, W/4), see `ErrorScale`; None if not requested

    estimate: None = None  # only PASMnet's refinement has an estimate

    @property
    def confidence(self) -> Tensor:
        """(B, H/4, W/4) in [0, 1], see `to_confidence`; detached; must have been requested."""
        assert self.log_expected_error is not None
        return to_confidence(self.log_expected_error.detach())

    @property
    def attention_mass(self) -> Tensor:
        """Attention that each left pixel receives at the finest scale (B, H/4, W/4), detached."""
        return self.scales[-1].attention.attention_mass

    @property
    def initial(self) -> Tensor:
        """Disparity from the attention of the finest scale alone (B, H/4, W/4)."""
        return self.scales[-1].attention.initial

    @cached_property
    def maps(self) -> tuple[ParallaxMaps, ...]:
        return tuple(scale.attention.maps() for scale in self.scales)


class PASMnet2(MatchingNetwork):
    """The network for matching with sharp edges."""

    HALO = 160

    def __init__(self, inner: str = "narrow") -> None:
        """Make the network; `inner`: "narrow", or "wide" as before version 17 (see `INNER`)."""
        super().__init__()
        parts: Mapping[str, int] = INNER if inner == "narrow" else {}
        self.E0 = conv_unit(3, 32, stride=2)
        self.E1 = Encoder(32, 64, parts.get("E1"), down=True)
        self.E2 = Encoder(64, 96, parts.get("E2"), down=True)
        self.E3 = Encoder(96, 128, parts.get("E3"), down=True)
        self.E4 = Encoder(128, 160, parts.get("E4"), down=True)
        self.D0 = Encoder(160, 160, parts.get("D0"))
        self.D1 = Decoder(160 + 128, 128, parts.get("D1"))
        self.D2 = Decoder(128 + 96, 96, parts.get("D2"))
        self.D3 = upsampling_unit(96 + 64, 64)
        self.st1 = Stage(128, parts.get("st1"), blocks=2)
        self.st2 = Stage(96, parts.get("st2"), blocks=1)
        self.st3 = Stage(64, parts.get("st3"), blocks=1)
        self.b2 = upsampling_unit(128 + 96, 96, bias=True)
        self.b3 = upsampling_unit(96 + 64, 64, bias=True)
        self.s1 = Scale(128 + 128, updates=UPDATES[0], dilations=(1, 2, 4), coarsest=True)
        self.s2 = Scale(96 + 96, updates=UPDATES[1], dilations=(1, 2, 4))
        self.s3 = Scale(64 + 64, updates=UPDATES[2], dilations=(1, 3, 9))
        self.x2 = conv_unit(32, 32, stride=2, slope=0)
        self.mask = nn.Sequential(conv_unit(WIDTH + 64 + 32, 64, 1, slope=0), conv(64, 9 * 16, 1, bias=True))
        self.error_scale = ErrorScale(WIDTH)
        for parameter in self.mask[1].parameters():  # start with the mean of the nine
            nn.init.zeros_(parameter)

        self.attend = attend

    def prepare(self, dtype: torch.dtype) -> Self:
        """Return a copy for inference, see `MatchingNetwork`."""
        network = super().prepare(dtype)
        network.attend = attend_in_blocks
        return network

    def forward(
        self,
        left: Tensor,
        right: Tensor,
        max_disparity: int | None = None,
        *,
        all_stages: bool = True,
        confidence: bool = True,
    ) -> PASMnet2Matching:
        """Match a batch of pairs, see `MatchingNetwork`; always returns all scales."""
        x0 = self.E0(torch.cat((left, right)))  # (2B, 32, H/2, W/2)
        half, x1 = self.x2(x0[: len(left)]), self.E1(x0)  # 1/4
        del x0  # half of the peak memory
        x2 = self.E2(x1)  # 1/8
        x3 = self.E3(x2)  # 1/16
        F1 = self.D1(self.D0(self.E4(x3)), x3)
        F2 = self.D2(F1, x2)
        F3 = self.D3(F2, x1)
        x1, x2, x3 = _copy_left(x1), _copy_left(x2), _copy_left(x3)

        limits: list[int | None] = [None, None, None]
        if max_disparity is not None:
            limits = [max_disparity // 16, max_disparity // 8, max_disparity // 4]
        v1, features = self.st1(F1)
        attention1 = self.attend(features, None, limits[0])
        v2, features = self.st2(self.b2(v1, F2))
        attention2 = self.attend(features, attention1.cost, limits[1])
        v3, features = self.st3(self.b3(v2, F3))
        v1, v2, v3 = _copy_left(v1), _copy_left(v2), _copy_left(v3)
        del F1, F2, F3
        attention3 = self.attend(features, attention2.cost, limits[2], finest=True)
        del features
        for attention in (attention1, attention2):
            attention.mask_columns()

        coarse = self.s1(torch.cat((v1, x3), 1), attention1)
        middle = self.s2(torch.cat((v2, x2), 1), attention2, coarse)
        fine = self.s3(torch.cat((v3, x1), 1), attention3, middle)

        mixture = self.mask(torch.cat((fine.hidden, v3, half), 1))
        disparity = convex_upsample(repeat_edges(fine.disparity, 1), mixture)
        error_scale = self._estimate_error(coarse, middle, fine) if confidence else None
        return PASMnet2Matching(disparity, (coarse, middle, fine), error_scale)

    def _estimate_error(self, coarse: ScaleResult, middle: ScaleResult, fine: ScaleResult) -> Tensor:
        """Return the logarithm of the expected error (B, H/4, W/4), trained without influence on the rest."""
        d = fine.disparity.detach()
        first, second = (scale.disparity.detach()[:, None] for scale in (coarse, middle))
        coarser = [2 * upsample(second)[:, 0], 4 * upsample(upsample(first))[:, 0]]
        near = fine.attention.mass_near(d).detach()
        return average_surroundings(
            repeat_edges(self.error_scale(fine.hidden.detach(), near, d, coarser), SURROUNDINGS)
        )


def _copy_left(views: Tensor) -> Tensor:
    """Copy the features of the left images, so that the right ones' memory is freed."""
    return views[: len(views) // 2].clone()


class Stage(nn.Module):
    """Blocks of one scale, and the features whose products are the cost of both directions.

    The cost of left column j and right column k is (q_l(j) k_r(k) + k_l(j) q_r(k)) / 2C, summed over the
    blocks, in one product of concatenated queries and keys.
    """

    def __init__(self, width: int, inner: int | None = None, *, blocks: int) -> None:
        super().__init__()
        self.width = width
        self.blocks = cast(
            "Sequence[ParallaxAttentionBlock]",
            nn.ModuleList(ParallaxAttentionBlock(width, inner) for _ in range(blocks)),
        )

    def forward(self, views: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Compute (2B, C, h, w) to features (2B, C, h, w), and left and right features of the cost."""
        lefts, rights = [], []
        for block in self.blocks:
            f = block.head(views)
            views = views + f
            query, key = block.query(f).chunk(2), block.key(f).chunk(2)
            lefts += [query[0] / (2 * self.width), key[0] / (2 * self.width)]
            rights += [key[1], query[1]]
        return views, (torch.cat(lefts, 1), torch.cat(rights, 1))

    def make_fused(self) -> nn.Module:
        return MergedStage(self.blocks, self.width)


class Scale(nn.Module):
    """Disparity at one scale, regressed from the attention and then updated."""

    def __init__(
        self, features: int, *, updates: int, dilations: tuple[int, int, int], coarsest: bool = False
    ) -> None:
        """Make a scale; `features`: channels, `dilations`: of the 3 x 3 neighbours that an update sees."""
        super().__init__()
        self.updates, self.dilations, self.coarsest = updates, dilations, coarsest
        self.ctx = conv_unit(features, WIDTH, 1, slope=0)
        if coarsest:
            self.h0 = conv_unit(features, WIDTH, 1, slope=0)
        else:
            self.h0 = upsampling_unit(WIDTH + features, WIDTH, slope=0, skip_first=True)
        neighbours, own = 9 * len(dilations), 2 * REACH + 1
        seen = own + neighbours - len(dilations) + 3
        self.upd = Update(seen, neighbours) if coarsest else Update(seen + own + 9 + 3, neighbours + 9)

    def forward(
        self, features: Tensor, attention: SymmetricAttention, coarser: ScaleResult | None = None
    ) -> ScaleResult:
        """Compute the disparity; `features` (B, C, h, w) of the left image."""
        context = self.upd.context_part(self.ctx(features))
        trust = torch.stack(
            (attention.mass.detach(), attention.attention_mass.clamp(max=LARGEST_RECEIVED)), 1
        )
        column = torch.arange(features.shape[-1], device=features.device)
        if coarser is None:
            hidden = self.h0(features)
        else:
            hidden = self.h0(coarser.hidden, features)
            upsampled = 2 * upsample(coarser.disparity[:, None])[:, 0]
            coarse = neighbours(repeat_edges(upsampled, 1), 1, 1)  # (B, 9, h, w)
            coarse_match = attention.lookup(upsampled.detach(), NEAR_COARSER)
        d, updates, reach = attention.initial, [], max(self.dilations)
        for _ in range(self.updates):
            padded, around, others = repeat_edges(d, reach), [], []
            for dilation in self.dilations:
                near = neighbours(padded, reach, dilation)
                around.append(near)
                others += [near[:, :4].detach(), near[:, 5:].detach()]
            here = d.detach()[:, None]
            seen = [
                attention.lookup(d.detach(), REACH),
                signed_log(torch.cat(others, 1) - here),  # the shape of the disparity
                trust,
                ((column - here) / BORDER).clamp(-1, 1),  # no matches beyond the left border
            ]
            if coarser is not None:
                half = F.avg_pool2d(here, 2)[:, 0] / 2
                seen.append(upsample(coarser.attention.lookup(half, REACH)))
                seen += [signed_log(coarse.detach() - here), coarse_match]
                around.append(coarse)
            hidden, mixing = self.upd(seen, context, hidden)
            d = mix(torch.cat(around, 1), mixing)
            updates.append(d)
        return ScaleResult(attention, tuple(updates), hidden)


class Update(nn.Module):
    """Hidden state, mixing weights and correction; all updates of a scale share the weights."""

    def __init__(self, seen: int, candidates: int) -> None:
        super().__init__()
        self.enc = conv_unit(seen, 40, 1, slope=0)
        self.mix = conv_unit(40 + 2 * WIDTH, WIDTH, 1, slope=0)
        self.a = conv_unit(WIDTH, WIDTH, dilation=2, slope=0)
        norm = nn.BatchNorm2d(WIDTH)
        self.b = Convolutions(conv(WIDTH, WIDTH), norm)
        self.out = conv(WIDTH, candidates + 1, bias=True)
        # Start with updates in which a pixel's own disparity has about half of the weight.
        for weight in (norm.weight, *self.out.parameters()):
            nn.init.zeros_(weight)
        assert self.out.bias is not None
        nn.init.constant_(self.out.bias[4:5], 3)

    def context_part(self, context: Tensor) -> Tensor:
        """Return the part of the mixing convolution that depends on the context (B, 48, h, w) only."""
        layer = self.mix[0]
        assert isinstance(layer, nn.Conv2d)
        return pointwise(context, split_mixing(layer.weight, context)[1], layer.bias)

    def forward(self, seen: Sequence[Tensor], context: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the hidden state (B, 48, h, w) and mixing weights from parts seen (B, 36 or 57, h, w)."""
        layer, norm, rectifier = self.mix
        assert isinstance(layer, nn.Conv2d)
        seen_weight, _, hidden_weight = split_mixing(layer.weight, hidden)
        x = context + pointwise(self.enc(torch.cat(list(seen), 1)), seen_weight)
        x = rectifier(norm(x + pointwise(hidden, hidden_weight)))
        hidden = F.relu(x + self.b(self.a(x)))
        return hidden, self.out(hidden)

    def make_fused(self) -> nn.Module:
        return FusedUpdate(self)
