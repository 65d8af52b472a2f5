"""Define PASMnet 2, which matches from coarse to fine, for training, inference and export.

The coarsest scale decides about large surfaces and occlusions; finer scales use its result as one more
candidate and correct the edges. At each scale one symmetric matching cost serves both directions of the
attention (`symmetric_attention`). An initial disparity is regressed in a window around the attention's peak
and then updated: each pixel looks up the attention near its disparity and updates a hidden state, which gives
weights for a mean of neighbouring disparities and those of the coarser scale, and a correction (`mix`). A
convex mixture upsamples the last disparity (as in RAFT).

Shapes: B batch, C channels, h rows, w columns of a scale, 1/16, 1/8 or 1/4 of the image size (H, W); `views`
holds both images joined in the batch, left first: (2B, C, h, w). Columns of the left image are j, of the
right one k. Disparities are in px of their scale unless stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.convolutions import convolve
from pamcli.networks.blocks import (
    FusedConvolution,
    MatchingNetwork,
    ResidualUnit,
    UpsamplingUnit,
    conv,
    conv_unit,
    upsample,
)
from pamcli.networks.parallax import ParallaxMaps
from pamcli.networks.symmetric_attention import Stage, SymmetricAttention, attend, attend_in_blocks

WIDTH = 48  # channels of the context and of the hidden state of every scale
ENCODED = 40  # channels that an update encodes what it sees in

UPDATES = 5, 3, 7  # of the disparity at 1/16, 1/8 and 1/4 of the images' size

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

ROWS = 8  # rows to upsample at a time on CPUs, so that the weights stay in the cache

CORRECT = 3.0  # confidence is the probability of an error below this, px of the images
SURROUNDINGS = 6  # distance to each side over which expected errors are averaged, px of the scale
SMALLEST_NEAR = 1e-7  # lower bound of attention
LARGEST_LOG_SCALE = 5.0


class ScaleResult(NamedTuple):
    """The result at one scale."""

    attention: SymmetricAttention
    updates: tuple[Tensor, ...]  # disparity after each update (B, h, w); the finer scale uses the last
    hidden: Tensor  # the last hidden state (B, 48, h, w)


@dataclass(frozen=True)
class PASMnet2Matching:
    """The outputs of PASMnet 2 for a batch of pairs."""

    disparity: Tensor  # disparity of the left image (B, 1, H, W), pixels of the images, >= 0
    scales: tuple[ScaleResult, ...] = field(repr=False)  # results at 1/16, 1/8 and 1/4 of the size
    log_expected_error: Tensor | None  # (B, H/4, W/4), see `expect_error`; None if not requested

    estimate: None = None  # only PASMnet's refinement has an estimate

    @property
    def confidence(self) -> Tensor:
        """Probability of an error below `CORRECT`, (B, H/4, W/4), detached; must have been requested."""
        assert self.log_expected_error is not None
        return 1 - torch.exp(-CORRECT * torch.exp(-self.log_expected_error.detach()))

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
    fused = False

    def __init__(self, inner: str = "narrow") -> None:
        """Make the network; `inner`: "narrow", or "wide" as before version 17 (see `INNER`)."""
        super().__init__()
        parts: Mapping[str, int] = INNER if inner == "narrow" else {}
        self.E0 = conv_unit(3, 32, stride=2)
        self.E1 = ResidualUnit(conv_unit(32, 64, stride=2), parts.get("E1"))
        self.E2 = ResidualUnit(conv_unit(64, 96, stride=2), parts.get("E2"))
        self.E3 = ResidualUnit(conv_unit(96, 128, stride=2), parts.get("E3"))
        self.E4 = ResidualUnit(conv_unit(128, 160, stride=2), parts.get("E4"))
        self.D0 = ResidualUnit(conv_unit(160, 160), parts.get("D0"))
        self.D1 = ResidualUnit(UpsamplingUnit(160 + 128, 128), parts.get("D1"))
        self.D2 = ResidualUnit(UpsamplingUnit(128 + 96, 96), parts.get("D2"))
        self.D3 = UpsamplingUnit(96 + 64, 64)
        self.st1 = Stage(128, parts.get("st1"), blocks=2)
        self.st2 = Stage(96, parts.get("st2"), blocks=1)
        self.st3 = Stage(64, parts.get("st3"), blocks=1)
        self.b2 = UpsamplingUnit(128 + 96, 96, bias=True)
        self.b3 = UpsamplingUnit(96 + 64, 64, bias=True)
        self.s1 = Scale(128 + 128, updates=UPDATES[0], dilations=(1, 2, 4), coarsest=True)
        self.s2 = Scale(96 + 96, updates=UPDATES[1], dilations=(1, 2, 4))
        self.s3 = Scale(64 + 64, updates=UPDATES[2], dilations=(1, 3, 9))
        self.x2 = conv_unit(32, 32, stride=2, slope=0)
        self.mask = nn.Sequential(conv_unit(WIDTH + 64 + 32, 64, 1, slope=0), conv(64, 9 * 16, 1, bias=True))
        see = conv(WIDTH + 3, WIDTH, 1, bias=True)
        self.error_scale = nn.ModuleDict({"see": see, "out": conv(WIDTH, 1, 1, bias=True)})
        for parameter in self.mask[1].parameters():  # start with the mean of the nine
            nn.init.zeros_(parameter)

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
        find = attend_in_blocks if self.fused else attend
        v1, features = self.st1(F1)
        attention1 = find(features, None, limits[0])
        v2, features = self.st2(self.b2(v1, F2))
        attention2 = find(features, attention1, limits[1])
        v3, features = self.st3(self.b3(v2, F3))
        v1, v2, v3 = _copy_left(v1), _copy_left(v2), _copy_left(v3)
        del F1, F2, F3
        attention3 = find(features, attention2, limits[2], finest=True)
        del features

        coarse = self.s1(torch.cat((v1, x3), 1), attention1)
        middle = self.s2(torch.cat((v2, x2), 1), attention2, coarse)
        fine = self.s3(torch.cat((v3, x1), 1), attention3, middle)

        mixture = self.mask(torch.cat((fine.hidden, v3, half), 1))
        disparity = convex_upsample(fine.updates[-1], mixture)
        error_scale = self._estimate_error(coarse, middle, fine) if confidence else None
        return PASMnet2Matching(disparity, (coarse, middle, fine), error_scale)

    def _estimate_error(self, coarse: ScaleResult, middle: ScaleResult, fine: ScaleResult) -> Tensor:
        """Return the logarithm of the expected error (B, H/4, W/4), trained without influence on the rest."""
        d = fine.updates[-1].detach()
        first, second = coarse.updates[-1].detach()[:, None], middle.updates[-1].detach()[:, None]
        coarser = [2 * upsample(second)[:, 0], 4 * upsample(upsample(first))[:, 0]]
        near = fine.attention.mass_near(d).detach()
        return average_surroundings(expect_error(self.error_scale, fine.hidden.detach(), near, d, coarser))


def _copy_left(views: Tensor) -> Tensor:
    """Copy the features of the left images, so that the right ones' memory is freed."""
    return views[: len(views) // 2].clone()


class Scale(nn.Module):
    """Disparity at one scale, regressed from the attention and then updated."""

    def __init__(
        self, features: int, *, updates: int, dilations: tuple[int, int, int], coarsest: bool = False
    ) -> None:
        """Make a scale; `features`: channels, `dilations`: of the 3 x 3 neighbours that an update sees."""
        super().__init__()
        self.updates, self.dilations = updates, dilations
        self.ctx = conv_unit(features, WIDTH, 1, slope=0)
        if coarsest:
            self.h0: nn.Module = conv_unit(features, WIDTH, 1, slope=0)
        else:
            self.h0 = UpsamplingUnit(WIDTH + features, WIDTH, slope=0, skip_first=True)
        neighbours, own = 9 * len(dilations), 2 * REACH + 1
        seen = own + neighbours - len(dilations) + 3
        self.upd = Update(seen, neighbours) if coarsest else Update(seen + own + 9 + 3, neighbours + 9)

    def forward(
        self, features: Tensor, attention: SymmetricAttention, coarser: ScaleResult | None = None
    ) -> ScaleResult:
        """Compute the disparity; `features` (B, C, h, w) of the left image."""
        layer = cast("nn.Conv2d", self.upd.mix[0])  # all updates share what it computes from the context
        context = convolve(self.ctx(features), layer.weight[:, ENCODED:-WIDTH], layer.bias)
        trust = torch.stack(
            (attention.mass.detach(), attention.attention_mass.clamp(max=LARGEST_RECEIVED)), 1
        )
        column = torch.arange(features.shape[-1], device=features.device)
        if coarser is None:
            hidden = self.h0(features)
        else:
            hidden = self.h0(coarser.hidden, features)
            upsampled = 2 * upsample(coarser.updates[-1][:, None])[:, 0]
            coarse = neighbours(upsampled)  # (B, 9, h, w)
            coarse_match = attention.lookup(upsampled.detach(), NEAR_COARSER)
        d, updates = attention.initial, []
        for _ in range(self.updates):
            around, others = [], []
            for dilation in self.dilations:
                near = neighbours(d, dilation)
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

    fused = False

    def __init__(self, seen: int, candidates: int) -> None:
        super().__init__()
        self.seen = seen
        self.enc = conv_unit(seen, ENCODED, 1, slope=0)
        self.mix = conv_unit(ENCODED + 2 * WIDTH, WIDTH, 1, slope=0)  # of what is seen, context, hidden state
        self.a = conv_unit(WIDTH, WIDTH, dilation=2, slope=0)
        self.b = conv_unit(WIDTH, WIDTH, slope=0)
        self.out = conv(WIDTH, candidates + 1, bias=True)
        # Start with updates in which a pixel's own disparity has about half of the weight.
        for weight in (cast("nn.BatchNorm2d", self.b[1]).weight, *self.out.parameters()):
            nn.init.zeros_(weight)
        assert self.out.bias is not None
        nn.init.constant_(self.out.bias[4:5], 3)

    def forward(self, seen: Sequence[Tensor], context: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the hidden state (B, 48, h, w) and mixing weights from parts seen (B, 36 or 57, h, w)."""
        # context: its part of the mixing convolution
        layer = cast("nn.Conv2d", self.mix[0])
        seen_weight, hidden_weight = layer.weight[:, :ENCODED], layer.weight[:, -WIDTH:]
        if self.fused:
            count, _, height, width = hidden.shape
            joined = torch.empty(
                (count, self.seen, height, width),
                dtype=layer.weight.dtype,
                device=hidden.device,
                memory_format=torch.channels_last,
            )
            torch.cat(list(seen), 1, out=joined)
            x = convolve(self.enc(joined), seen_weight, add_to=context.clone())
            x = convolve(hidden, hidden_weight, slope=0, add_to=x)
        else:
            x = context + convolve(self.enc(torch.cat(list(seen), 1)), seen_weight)
            _, norm, rectifier = self.mix
            x = rectifier(norm(x + convolve(hidden, hidden_weight)))
        hidden = self.b(self.a(x), add_to=x)
        return hidden, self.out(hidden)

    def fuse(self) -> None:
        self.out.__class__ = FusedConvolution


def neighbours(values: Tensor, dilation: int = 1) -> Tensor:
    """Return the 3 x 3 values around each, row by row, edges repeated: (B, h, w) to (B, 9, h, w)."""
    height, width = values.shape[-2:]
    padded = F.pad(values[:, None], (dilation,) * 4, mode="replicate")[:, 0]
    around = []
    for row in (0, dilation, 2 * dilation):
        for column in (0, dilation, 2 * dilation):
            around.append(padded.narrow(1, row, height).narrow(2, column, width))
    return torch.stack(around, 1)


def signed_log(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # ONNX lacks the operations below, which make fewer passes over memory
        return x.sign() * x.abs().log1p()
    return x.abs().add_(1).log_().copysign_(x)


def mix(candidates: Tensor, mixing: Tensor) -> Tensor:
    """Return the mean of candidates (B, n, h, w), weighted by softmax, plus a correction: (B, h, w)."""
    # mixing: (B, n + 1, h, w), weights before the softmax, and the correction as the last channel.
    pixels = mixing.permute(0, 2, 3, 1).float()
    mean = torch.einsum("bhwn,bnhw->bhw", pixels[..., :-1].softmax(-1), candidates)
    return (mean + pixels[..., -1]).clamp(min=0)


def convex_upsample(disparity: Tensor, mixture: Tensor) -> Tensor:
    """Upsample (B, h, w) to (B, 1, 4h, 4w): each pixel is a convex mixture of the 3 x 3 around it."""
    # mixture: (B, 9 * 16, h, w), weights before the softmax.
    around = neighbours(4 * disparity).permute(0, 2, 3, 1)[..., None]  # (B, h, w, 9, 1)
    weights = mixture.permute(0, 2, 3, 1)
    pieces = [(weights, around)]
    if not mixture.is_cuda and not torch.compiler.is_compiling():
        pieces = [*zip(weights.split(ROWS, 1), around.split(ROWS, 1), strict=True)]  # type: ignore[no-untyped-call]
    parts = []
    for some, near in pieces:
        shares = torch.unflatten(some.float(), -1, (9, 16)).softmax(-2)
        pixels = (shares * near).sum(-2).unflatten(-1, (4, 4))  # type: ignore[no-untyped-call]
        parts.append(pixels.transpose(2, 3).flatten(3).flatten(1, 2))
    return torch.cat(parts, 1)[:, None]


def expect_error(
    layers: nn.ModuleDict, hidden: Tensor, near: Tensor, disparity: Tensor, coarser: Sequence[Tensor]
) -> Tensor:
    """Return the logarithm of the scale of a Laplace distribution of errors, px of the images, (B, h, w)."""
    # near: attention near the disparity. coarser: disparities of the coarser scales, in px of this one.
    see, out = cast("tuple[nn.Conv2d, nn.Conv2d]", (layers["see"], layers["out"]))
    signs = [near.clamp(min=SMALLEST_NEAR).log() / 4]
    for other in coarser:
        signs.append(signed_log(disparity - other))
    seen = torch.cat((hidden, torch.stack(signs, 1).to(hidden.dtype)), 1)
    scale: Tensor = out(F.relu(see(seen.to(see.weight.dtype))))
    return scale[:, 0].float().clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)


def average_surroundings(error_scale: Tensor) -> Tensor:
    """Average a pixel's scale with the mean around it, as logarithms (B, h, w)."""
    # Errors come in patches, in which a single pixel may look correct.
    scale = error_scale.exp()
    padded = F.pad(scale[:, None], (SURROUNDINGS,) * 4, mode="replicate")
    return ((scale + F.avg_pool2d(padded, 2 * SURROUNDINGS + 1, stride=1)[:, 0]) / 2).log()
