"""PASMnet without whole attention maps, and with a few rows of most feature maps: the same disparity.

Shapes: B = 2 views joined in the batch, left first; H, W rows and columns of the scale in question. One
pair at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE, Decoder, Encoder, ResidualBlock, upsample
from pamcli.networks.parallax import Towards, fill_occlusions, regress_disparity, valid_mask
from pamcli.networks.pasmnet import STAGE_STRIDES, PASMnet, Stage, blended
from pamcli.streaming.attention import Block, CostStage, lines_at_once, stage_cost, stream
from pamcli.streaming.confidence import Cycle
from pamcli.streaming.rolling import (
    Convolution,
    Enlarged,
    Given,
    InPrecision,
    Joined,
    RollingMap,
    Sum,
    Whole,
    convolution,
    gathered,
    residual,
)
from pamcli.streaming.strips import Rows, coarser, strips

TOWARDS: tuple[Towards, Towards] = ("left", "right")

Costs = tuple[CostStage, ...]
"""Queries and keys of the three stages, from coarse to fine."""


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
    """(1, H/4, W/4) in [0, 1], see `cycle`."""


@dataclass(frozen=True)
class _Features:
    """Of both views."""

    sixteenth: Tensor
    """F1."""
    eighth: Tensor
    """F2."""
    quarter: Tensor
    """E1's result; that of the left view is F4."""


def lowered(network: PASMnet, precision: torch.dtype) -> PASMnet:
    """The network, all of its weights but those of the first layer brought to a lower precision.

    The rounding of the pictures is almost half of what a lower precision costs, and the layer that reads them
    a hundredth of the work.
    """
    first = network.hourglass.E0.body[0].state_dict()
    network.to(precision)
    network.hourglass.E0.body[0].float().load_state_dict(first)
    return network


class StreamedPASMnet:
    """Runs a PASMnet whose batch norm is folded (`folding.folded`) strip by strip.

    In the precision of its weights (see `lowered`); attention and disparity are float32.
    """

    def __init__(self, network: PASMnet) -> None:
        self.network = network
        cascade = network.cas_pam
        self.stages = [_StageWeights.of(stage) for stage in (cascade.stage1, cascade.stage2, cascade.stage3)]

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
        """`rows` gives both views, normalised: (first, last) -> (2, 3, last - first, width), top to bottom.

        `height`, `width`: multiples of 32. `strip`: rows of the picture that are computed at a time, a
        multiple of 32; None: all. `max_disparity` as of `PASMnet.forward`. `confidence` looks at the
        attention a second time, near the refined disparity: in one strip, what the attention is made of is
        held until then, else it is computed again.
        """
        assert height % 32 == width % 32 == 0
        strip = height if strip is None else strip
        assert strip % 32 == 0
        features = self._features(rows, height, strip)
        cascade = _Cascade(self.network, self.stages, features, strip, kept=confidence and strip >= height)
        initial, received = self._attend(cascade, max_disparity)
        valid = valid_mask(received)
        filled = fill_occlusions(initial, valid)
        disparity = self._refine(filled[:, None], features.quarter[:1], strip)
        if not confidence:
            return StreamedMatching(disparity, valid, received)
        if not cascade.kept:
            cascade = _Cascade(self.network, self.stages, features, strip)
        return StreamedMatching(
            disparity, valid, received, self._confidence(cascade, disparity, max_disparity)
        )

    def _features(self, rows: Rows, height: int, strip: int) -> _Features:
        """As `Hourglass.forward`, but for F3, which is not held."""
        net = self.network.hourglass
        quarter = gathered(_encoded(_encoded(Given(rows, height), net.E0), net.E1), strip // 4)
        eighth = gathered(_encoded(Whole(quarter), net.E2), strip // 8)
        x3 = _encoded(Whole(eighth), net.E3)
        x4 = _encoded(_encoded(x3, net.E4), net.D0)
        F1 = gathered(_decoded(x4, x3, net.D1), strip // 16)
        # F2 takes the place of E2's result, whose rows it has passed.
        F2 = gathered(_decoded(Whole(F1), Whole(eighth), net.D2), strip // 8, into=eighth)
        return _Features(F1, F2, quarter)

    def _attend(self, cascade: _Cascade, max_disparity: int | None) -> tuple[Tensor, Tensor]:
        """Initial disparity and received attention of the left view, (1, H/4, W/4) each."""
        height, width, device = cascade.height, cascade.width, self.stages[0].queries[0][0].device
        initial = torch.empty((1, height, width), device=device)
        received = torch.zeros_like(initial)
        limit = None if max_disparity is None else max_disparity // STAGE_STRIDES[2]

        def regress(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            found = regress_disparity(attention, (block.first, block.low))
            initial[0, lines[0] : lines[1], block.first : block.last] = found

        def receive(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            received[0, lines[0] : lines[1], block.low : block.high] += attention.sum(1)

        for lines, towards, costs in cascade.costs():
            use = regress if towards == "left" else receive
            stream(partial(stage_cost, costs), lines, width, width, towards, limit, use)
        return initial, received

    def _confidence(self, cascade: _Cascade, disparity: Tensor, max_disparity: int | None) -> Tensor:
        """See `cycle`: (1, H/4, W/4) in [0, 1]. `disparity` (1, 1, H, W) is the refined one."""
        width = cascade.width
        limit = None if max_disparity is None else max_disparity // STAGE_STRIDES[2]
        quarter = F.avg_pool2d(disparity, 4)[0, 0] / 4  # (H, W)
        confidence = torch.zeros_like(quarter)
        for lines, towards, costs in cascade.costs():
            if towards == "left":
                cycle = Cycle(quarter[slice(*lines)], lines[0])
            use = cycle.leave if towards == "left" else cycle.come_back
            stream(partial(stage_cost, costs), lines, width, width, towards, limit, use)
            confidence[slice(*lines)] = cycle.confidence()
        return confidence[None]

    def _refine(self, initial: Tensor, features: Tensor, strip: int) -> Tensor:
        """As `Refinement.forward`."""
        net = self.network.refine
        scaled = initial / 32
        x0 = _encoded(Joined([Whole(scaled.to(features.dtype)), Whole(features)]), net.E0)
        x1 = _encoded(x0, net.E1)
        x2 = _encoded(x1, net.E2)
        x3 = _encoded(_encoded(x2, net.E3), net.D0)
        x = _decoded(_decoded(_decoded(x3, x2, net.D1), x1, net.D2), x0, net.D3)
        x = _decoded(_decoded(x, None, net.D4), None, net.D5)
        heads = _side_by_side(x, net.confidence, net.disp)
        reader = heads.reader()
        refined = scaled.new_empty((1, 1, heads.height, 4 * scaled.shape[3]))
        for first, last in strips(heads.height, strip):
            both = reader(first, last).float()  # (1, 2, R, W)
            reader.forget(last)
            plain = _enlarged4(scaled, first // 4, last // 4)
            refined[:, :, first:last] = blended(plain, both[:, :1].sigmoid(), both[:, 1:])
        return refined


@dataclass(frozen=True)
class _StageWeights:
    """The four blocks of a stage.

    The cost q . k of two pixels with head features f, f' is (Wq f + bq) . (Wk f' + bk). What of it depends
    on f alone is the same for all k, and the softmax over k takes no notice. So f' itself is the key, and
    Wk^T (Wq f + bq) the query.
    """

    heads: tuple[nn.Sequential, ...]
    queries: tuple[tuple[Tensor, Tensor], ...]
    """Weight (C, C, 1, 1) and bias (C), with the division by C."""

    @classmethod
    def of(cls, stage: Stage) -> _StageWeights:
        blocks = (stage.pab1, stage.pab2, stage.pab3, stage.pab4)
        queries = []
        for block in blocks:
            query, key = block.query[0], block.key[0]
            assert isinstance(query, nn.Conv2d)
            assert isinstance(key, nn.Conv2d)
            assert query.bias is not None
            back = key.weight[:, :, 0, 0].double().T / stage.width  # Wk^T / C
            weight = back @ query.weight[:, :, 0, 0].double()
            bias = back @ query.bias.double()
            queries.append((weight[:, :, None, None].to(query.weight.dtype), bias.to(query.weight.dtype)))
        return cls(tuple(block.head for block in blocks), tuple(queries))


class _Cascade:
    """The three stages that go down the picture: what their matching costs are made of."""

    def __init__(
        self,
        network: PASMnet,
        weights: Sequence[_StageWeights],
        features: _Features,
        strip: int,
        *,
        kept: bool = False,
    ) -> None:
        """`kept`: all rows are held, so that `costs` can be asked a second time."""
        self.kept = kept
        F1, F2, quarter = Whole(features.sixteenth), Whole(features.eighth), Whole(features.quarter)
        stage1 = _RollingStage(F1, weights[0], kept)
        stage2 = _RollingStage(_beside_enlarged(stage1.features(), F2, network.cas_pam.b2), weights[1], kept)
        F3 = _decoded(F2, quarter, network.hourglass.D3)
        stage3 = _RollingStage(_beside_enlarged(stage2.features(), F3, network.cas_pam.b3), weights[2], kept)
        stage3.heads[-1].unit = min(strip // 4, quarter.height)
        self.stages = stage1, stage2, stage3
        self.height, self.width = quarter.height, features.quarter.shape[3]
        self.lines = min(strip // 4, lines_at_once(self.width, self.width))

    def costs(self) -> Iterator[tuple[tuple[int, int], Towards, Costs]]:
        """A few quarter-size rows at a time (first, last), and what the matching costs are made of there.

        First towards the left: the left view's queries and the right view's keys, for M_right->left. Then
        the other way round. As `CascadedParallaxAttention.forward`.
        """
        stage1, stage2, stage3 = self.stages
        for rows3 in strips(self.height, self.lines):
            rows2 = coarser(*rows3, stage2.source.height)
            rows1 = coarser(*rows2, stage1.source.height)
            for view, towards in enumerate(TOWARDS):
                # Stage 3 first: it makes the others compute what it needs, a strip at a time.
                fine = stage3.cost(view, *rows3)
                yield rows3, towards, (stage1.cost(view, *rows1), stage2.cost(view, *rows2), fine)


class _RollingStage:
    """A stage that goes down the picture."""

    def __init__(self, source: RollingMap, weights: _StageWeights, kept: bool) -> None:
        self.source, self.weights, self.kept = source, weights, kept
        self.heads: list[RollingMap] = []
        for layers in weights.heads:
            x = self.features()
            self.heads.append(convolution(convolution(x, layers[0], SLOPE), layers[3], SLOPE))
            self.source = x
        self.readers = [head.reader() for head in self.heads]

    def features(self) -> RollingMap:
        """Of the last block. Whoever asks for them must read them, for they are held until then."""
        return Sum(self.heads[-1], self.source, kept=True) if self.heads else self.source

    def cost(self, view: int, first: int, last: int) -> CostStage:
        """Queries of a view and keys of the other, rows first ... last - 1.

        The first row never decreases, unless the rows are `kept`.
        """
        for read in self.readers if not self.kept else ():
            read.forget(first)
        parts = [read(first, last) for read in reversed(self.readers)][
            ::-1
        ]  # the last makes the others go on
        _, channels, rows, width = parts[0].shape
        query, key = (parts[0].new_empty((rows, width, 4 * channels), dtype=torch.float32) for _ in range(2))
        for place, (f, (weight, bias)) in enumerate(zip(parts, self.weights.queries, strict=True)):
            these = slice(place * channels, (place + 1) * channels)
            query[..., these] = F.conv2d(f[view : view + 1], weight, bias)[0].permute(1, 2, 0)
            key[..., these] = f[1 - view].permute(1, 2, 0)
        return CostStage(query, key, first, self.source.height)


def _encoded(source: RollingMap, encoder: Encoder) -> RollingMap:
    unit, block = encoder.body
    assert isinstance(unit, nn.Sequential)
    assert isinstance(block, ResidualBlock)
    x: RollingMap = convolution(source, unit[0], SLOPE)
    precision = next(block.parameters()).dtype
    if next(unit.parameters()).dtype != precision:
        x = InPrecision(x, precision)
    return residual(x, block.body, SLOPE)


def _decoded(deeper: RollingMap, skip: RollingMap | None, decoder: Decoder) -> RollingMap:
    unit, block = decoder.body
    assert isinstance(unit, nn.Sequential)
    assert isinstance(block, ResidualBlock)
    return residual(_beside_enlarged(deeper, skip, unit), block.body, SLOPE)


def _beside_enlarged(deeper: RollingMap, skip: RollingMap | None, unit: nn.Sequential) -> RollingMap:
    """1x1 convolution unit of the enlarged `deeper` beside `skip`.

    The weights of an enlargement sum to one, so it may as well follow the convolution: a quarter of the work.
    """
    layer = unit[0]
    assert isinstance(layer, nn.Conv2d)
    if skip is None:
        return Enlarged(convolution(deeper, layer), SLOPE)
    channels = layer.in_channels - layer.out_channels  # a skip connection has as many as come out
    of_deeper, of_skip = (part.contiguous() for part in layer.weight.tensor_split((channels,), 1))
    return Sum(Convolution(skip, of_skip), Enlarged(Convolution(deeper, of_deeper, layer.bias)), SLOPE)


def _side_by_side(source: RollingMap, *heads: nn.Sequential) -> RollingMap:
    """Heads of two 3x3 convolutions, as one whose result has a channel of each."""
    layers = [[layer for layer in head if isinstance(layer, nn.Conv2d)] for head in heads]
    biases = [first.bias for first, _ in layers if first.bias is not None]
    inner = Convolution(
        source, torch.cat([first.weight for first, _ in layers]), torch.cat(biases), slope=SLOPE
    )
    apart = torch.block_diag(  # type: ignore[no-untyped-call]
        *[second.weight.flatten(1) for _, second in layers]
    )  # (2, 2 C 9)
    return Convolution(inner, apart.view(len(heads), -1, 3, 3))


def _enlarged4(scaled: Tensor, first: int, last: int) -> Tensor:
    """Rows 4 first ... 4 last - 1 of the bilinear enlargement by 4."""
    low, high = max(0, first - 1), min(scaled.shape[2], last + 1)
    return upsample(scaled[:, :, low:high], 4)[:, :, 4 * (first - low) : 4 * (last - low)]
