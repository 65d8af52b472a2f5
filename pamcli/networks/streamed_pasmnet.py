"""PASMnet without whole attention maps, and with no more feature maps than fit: the same disparity.

Shapes: B = 2 views joined in the batch, left first; H, W rows and columns of the scale in question. One
pair at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from pamcli.networks.blocks import upsample
from pamcli.networks.parallax import VALID_MASS, clean_mask, fill_occlusions
from pamcli.networks.pasmnet import STAGE_STRIDES, PASMnet
from pamcli.networks.pasmnet import Stage as StageLayers
from pamcli.networks.streamed_attention import Block, CostStage, stage_cost, stream
from pamcli.networks.strips import Rows, coarser, in_strips, strips, with_halo

# Rows around a strip that its layers can see, at the scale of the strip.
ENCODER_HALO = 4  # E0 and E1 together, E2 alone: rows of what comes out
DECODER_HALO = 4  # an enlargement and a residual block
STAGE_HALO = 8  # four blocks of two 3x3 convolutions
HEAD_HALO = 8  # D3, D4, D5 and the heads: quarter-size rows

NEAR = 1.5
"""Attention counts as near the estimate within this many quarter-size pixels."""


@dataclass(frozen=True)
class StreamedMatching:
    """What `Matching` says, without the maps."""

    disparity: Tensor
    """Refined disparity of the left view (1, 1, H, W), pixels, >= 0, float32."""
    valid_left: Tensor
    """(1, H/4, W/4) bool, see `ParallaxMaps`."""
    received: Tensor
    """Attention that each left pixel receives (1, H/4, W/4), from which `valid_left` was made."""
    confidence: Tensor | None = None
    """(1, H/4, W/4) in [0, 1], see `_confidence`."""


class StreamedPASMnet:
    """Runs a PASMnet whose batch norm is folded (`folding.folded`) strip by strip."""

    def __init__(self, network: PASMnet) -> None:
        self.network = network

    def match(
        self,
        rows: Rows,
        height: int,
        width: int,
        max_disparity: int | None = None,
        *,
        strip: int | None = None,
        confidence: bool = False,
    ) -> StreamedMatching:
        """`rows` gives both views, normalised: (first, last) -> (2, 3, last - first, width).

        `height`, `width`: multiples of 32. `strip`: rows of the picture that are computed at a time, a
        multiple of 32; None: all. `max_disparity` as of `PASMnet.forward`. `confidence` costs the attention
        a second time: it looks near the refined disparity.
        """
        strip = height if strip is None else strip
        features = self._features(rows, height, strip)
        initial, received = self._attend(features, max_disparity, strip)
        valid = clean_mask(received > VALID_MASS)
        filled = fill_occlusions(initial, valid)
        disparity = self._refine(filled[:, None], features.quarter[:1], strip)
        sure = self._confidence(features, disparity, max_disparity, strip) if confidence else None
        return StreamedMatching(disparity, valid, received, sure)

    def _features(self, rows: Rows, height: int, strip: int) -> _Features:
        net = self.network.hourglass
        quarter = in_strips(
            lambda first, last: net.E1(net.E0(rows(4 * first, 4 * last))),
            height // 4,
            strip // 4,
            ENCODER_HALO,
            align=8,
        )
        eighth = in_strips(
            lambda first, last: net.E2(quarter[:, :, 2 * first : 2 * last]),
            height // 8,
            strip // 8,
            ENCODER_HALO,
            align=2,
        )
        x3 = net.E3(eighth)
        F1 = net.D1(net.D0(net.E4(x3)), x3)
        F2 = in_strips(
            lambda first, last: net.D2(F1[:, :, first // 2 : last // 2], eighth[:, :, first:last]),
            height // 8,
            strip // 8,
            DECODER_HALO,
            align=2,
        )
        return _Features(F1, F2, quarter)

    def _attend(self, features: _Features, max_disparity: int | None, strip: int) -> tuple[Tensor, Tensor]:
        """Initial disparity and received attention of the left view, (1, H/4, W/4) each."""
        _, _, height, width = features.quarter.shape
        initial = features.quarter.new_empty((1, height, width), dtype=torch.float32)
        received = torch.zeros_like(initial)
        limit = None if max_disparity is None else max_disparity // STAGE_STRIDES[2]
        for first, last in strips(height, strip // 4):
            left, right = self._cost_stages(features, first, last)

            def regress(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
                k = torch.arange(block.low, block.high, device=attention.device, dtype=torch.float32)
                j = torch.arange(block.first, block.last, device=attention.device)
                initial[0, lines[0] : lines[1], block.first : block.last] = j - attention @ k

            def receive(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
                received[0, lines[0] : lines[1], block.low : block.high] += attention.sum(1)

            lines = (first, last)
            stream(partial(stage_cost, left), lines, width, width, "left", limit, regress)
            stream(partial(stage_cost, right), lines, width, width, "right", limit, receive)
        return initial, received

    def _confidence(
        self, features: _Features, disparity: Tensor, max_disparity: int | None, strip: int
    ) -> Tensor:
        """Attention that goes to the estimate and comes back, (1, H/4, W/4) in [0, 1].

        The cycle attention of Section 3.2, counted only where it passes near the estimated position in the
        right view and returns near the pixel: sum over k near j - d of M_right->left(j, k) times the sum over
        l near j of M_left->right(k, l). One where both maps are sure and agree with the result, near zero
        where either is spread out or contradicts.
        """
        height, width = features.quarter.shape[2:]
        limit = None if max_disparity is None else max_disparity // STAGE_STRIDES[2]
        column = torch.arange(width, device=disparity.device)
        target = column - F.avg_pool2d(disparity, 4)[0, 0] / 4  # (H, W)
        reach = int(NEAR)
        steps = torch.arange(2 * reach + 1 + (NEAR % 1 > 0), device=disparity.device)
        near = (target - NEAR).ceil().long() + steps[:, None, None]  # (steps, H, W) columns k
        there = (near >= 0) & (near < width) & ((near - target).abs() <= NEAR)
        mass = torch.zeros(near.shape, device=disparity.device)
        total = torch.zeros_like(target)

        def leave(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            at = slice(*lines), slice(block.first, block.last)
            for step, k in enumerate(near[:, *at]):
                inside = there[step, *at] & (k >= block.low) & (k < block.high)
                found = attention.gather(2, (k - block.low).clamp(0, block.high - block.low - 1)[..., None])
                mass[step, *at] = found[..., 0] * inside

        def come_back(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            flat = attention.flatten(1)
            span = block.high - block.low
            for step, k in enumerate(near[:, slice(*lines)]):
                passes = (k >= block.first) & (k < block.last)
                row = (k - block.first).clamp(0, block.last - block.first - 1) * span
                for shift in range(-reach, reach + 1):
                    home = column + shift - block.low
                    inside = passes & (home >= 0) & (home < span)
                    found = flat.gather(1, row + home.clamp(0, span - 1)) * inside
                    total[slice(*lines)] += mass[step, slice(*lines)] * found

        for first, last in strips(height, strip // 4):
            left, right = self._cost_stages(features, first, last)
            lines = (first, last)
            stream(partial(stage_cost, left), lines, width, width, "left", limit, leave)
            stream(partial(stage_cost, right), lines, width, width, "right", limit, come_back)
        return total.clamp(0, 1)[None]

    def _cost_stages(
        self, features: _Features, first: int, last: int
    ) -> tuple[tuple[CostStage, ...], tuple[CostStage, ...]]:
        """Queries and keys of the three stages for the quarter-size rows first ... last - 1.

        Of each stage the rows that the enlargements between the stages need, and no more; first the left
        view's queries with the right view's keys (right->left), then the other way round.
        """
        net = self.network
        cascade = net.cas_pam
        F1, F2, quarter = features.sixteenth, features.eighth, features.quarter
        heights = (F1.shape[2], F2.shape[2], quarter.shape[2])
        # Rows of which each stage must be right, from fine to coarse; a stage's features enter the next one.
        rows3 = with_halo(first, last, STAGE_HALO, heights[2])
        decoded3 = with_halo(*rows3, DECODER_HALO, heights[2], align=2)
        rows2 = coarser(*decoded3, heights[1])
        wide2 = with_halo(*rows2, STAGE_HALO, heights[1])
        rows1 = coarser(*wide2, heights[0])
        wide1 = with_halo(*rows1, STAGE_HALO, heights[0])

        views, queries1, keys1 = _stage(cascade.stage1, F1[:, :, slice(*wide1)])
        enlarged = _enlarged(views, wide1, wide2)
        views, queries2, keys2 = _stage(
            cascade.stage2, cascade.b2(torch.cat((enlarged, F2[:, :, slice(*wide2)]), 1))
        )
        enlarged = _enlarged(views, wide2, rows3)
        low, high = decoded3[0] // 2, decoded3[1] // 2
        F3 = net.hourglass.D3(F2[:, :, low:high], quarter[:, :, slice(*decoded3)])
        F3 = F3[:, :, rows3[0] - decoded3[0] : rows3[1] - decoded3[0]]
        _, queries3, keys3 = _stage(cascade.stage3, cascade.b3(torch.cat((enlarged, F3), 1)))
        described = list(
            zip(
                (queries1, queries2, queries3),
                (keys1, keys2, keys3),
                (wide1[0], wide2[0], rows3[0]),
                heights,
                strict=True,
            )
        )
        to_left = tuple(CostStage(q[0], k[1], row, height) for q, k, row, height in described)
        to_right = tuple(CostStage(q[1], k[0], row, height) for q, k, row, height in described)
        return to_left, to_right

    def _refine(self, initial: Tensor, features: Tensor, strip: int) -> Tensor:
        """As `Refinement.forward`."""
        net = self.network.refine
        scaled = initial / 32
        height = scaled.shape[2]

        def encode(first: int, last: int) -> Tensor:
            rows = slice(first, last)
            return net.E0(torch.cat((scaled[:, :, rows].to(features.dtype), features[:, :, rows]), 1))

        x0 = in_strips(encode, height, strip // 4, ENCODER_HALO)
        x1 = in_strips(
            lambda first, last: net.E1(x0[:, :, 2 * first : 2 * last]),
            height // 2,
            strip // 8,
            ENCODER_HALO,
            align=2,
        )
        x2 = net.E2(x1)
        x3 = net.D0(net.E3(x2))
        coarse = net.D2(net.D1(x3, x2), x1)  # H/8 of the picture

        def decode(first: int, last: int) -> Tensor:
            """Quarter-size rows in, full-size rows out."""
            x = net.D3(coarse[:, :, first // 2 : last // 2], x0[:, :, first:last])
            x = net.D5(net.D4(x))
            blend = net.confidence(x).float()
            residual = net.disp(x).float().clamp_(min=0)
            plain = _enlarged4(scaled, first, last)
            return torch.lerp(plain, residual, blend).mul_(128)

        return in_strips(decode, height, strip // 4, HEAD_HALO, align=2, factor=4)


@dataclass(frozen=True)
class _Features:
    """Of both views."""

    sixteenth: Tensor
    """F1."""
    eighth: Tensor
    """F2."""
    quarter: Tensor
    """E1's result; that of the left view is F4."""


def _stage(layers: StageLayers, views: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features (B, C, R, W), queries (B, R, W, 4C) and keys (B, R, 4C, W) in float32, of the four blocks."""
    batch, channels, rows, width = views.shape
    queries = views.new_empty((batch, rows, width, 4 * channels), dtype=torch.float32)
    keys = views.new_empty((batch, rows, 4 * channels, width), dtype=torch.float32)
    for place, block in enumerate((layers.pab1, layers.pab2, layers.pab3, layers.pab4)):
        views, query, key = block(views)
        these = slice(place * channels, (place + 1) * channels)
        queries[..., these] = query.permute(0, 2, 3, 1)
        keys[:, :, these] = key.permute(0, 2, 1, 3)
    queries /= channels
    return views, queries, keys


def _enlarged(views: Tensor, rows: tuple[int, int], wanted: tuple[int, int]) -> Tensor:
    """Rows `wanted` of the enlargement by 2 of a map of which `views` holds `rows`."""
    return upsample(views)[:, :, wanted[0] - 2 * rows[0] : wanted[1] - 2 * rows[0]]


def _enlarged4(scaled: Tensor, first: int, last: int) -> Tensor:
    """Rows 4 first ... 4 last - 1 of the bilinear enlargement by 4."""
    low, high = with_halo(first, last, 1, scaled.shape[2])
    return upsample(scaled[:, :, low:high], 4)[:, :, 4 * (first - low) : 4 * (last - low)]
