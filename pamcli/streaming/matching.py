"""The matching of both networks row by row: features of the whole picture, then costs as they are needed.

Shapes: B = 2 views joined in the batch, left first; H, W rows and columns of the scale in question. One
pair at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE, Decoder, Encoder, ResidualBlock
from pamcli.networks.parallax import Towards
from pamcli.networks.pasmnet import STAGE_STRIDES, Hourglass, PASMnet
from pamcli.streaming.attention import CostStage, Use, lines_at_once, query_of_keys, stage_cost, stream
from pamcli.streaming.rolling import (
    Convolution,
    Enlarged,
    Given,
    Mapped,
    RollingMap,
    Rows,
    Whole,
    added,
    coarser,
    convolution,
    gathered,
    residual,
    strips,
)

TOWARDS: tuple[Towards, Towards] = ("left", "right")

Costs = tuple[CostStage, ...]  # queries and keys of the three stages, from coarse to fine

MatchingNetwork = TypeVar("MatchingNetwork", bound=PASMnet)


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
    """(1, H/4, W/4) in [0, 1], see `pasmnet`."""


Features = tuple[Tensor, Tensor, Tensor]
"""F1, F2 and E1's result, which is F4 of the left view; of both views."""


def lowered(network: MatchingNetwork, precision: torch.dtype) -> MatchingNetwork:
    """The network, all of its weights but those of the first layer brought to a lower precision.

    The rounding of the pictures is almost half of what a lower precision costs, and the layer that reads them
    a hundredth of the work.
    """
    first = network.hourglass.E0.body[0].state_dict()
    network.to(precision)
    network.hourglass.E0.body[0].float().load_state_dict(first)
    return network


def features_below(net: Hourglass, quarter: Tensor, strip: int) -> Features:
    """As `Hourglass.forward` from E1's result on, but for F3, which is not held."""
    eighth = gathered(encoded(Whole(quarter), net.E2), strip // 8)
    x3 = encoded(Whole(eighth), net.E3)
    x4 = encoded(encoded(x3, net.E4), net.D0)
    F1 = gathered(decoded(x4, x3, net.D1), strip // 16)
    # F2 takes the place of E2's result, whose rows it has passed.
    F2 = gathered(decoded(Whole(F1), Whole(eighth), net.D2), strip // 8, into=eighth)
    return F1, F2, quarter


StageWeights = list[tuple[nn.Sequential, tuple[Tensor, Tensor]]]
"""Of each block of a stage, four or fewer: the head, whose features are the keys, and weight (C, C, 1, 1) and
bias (C) of what makes queries of them, divided by C (see `attention.query_of_keys`)."""


class StreamedMatchingNetwork(ABC, Generic[MatchingNetwork]):
    """Runs a network whose batch norm is folded (`rolling.folded`) strip by strip.

    In the precision of its weights (see `lowered`); attention and disparity are float32.
    """

    def __init__(self, network: MatchingNetwork) -> None:
        self.network: MatchingNetwork = network
        cascade = network.cas_pam
        self.stages: list[StageWeights] = [
            [(pab.head, query_of_keys(pab.query[0], pab.key[0], stage.width)) for pab in stage.blocks]
            for stage in (cascade.stage1, cascade.stage2, cascade.stage3)
        ]

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
        multiple of 32; None: all. `max_disparity` as of `PASMnet.forward`.
        """
        assert height % 32 == width % 32 == 0
        strip = height if strip is None else strip
        assert strip % 32 == 0
        return self._matched(Given(rows, height), max_disparity, strip, confidence)

    @abstractmethod
    def _matched(
        self, pictures: RollingMap, max_disparity: int | None, strip: int, confidence: bool
    ) -> StreamedMatching: ...


class Cascade:
    """The three stages that go down the picture: what their matching costs are made of."""

    def __init__(
        self,
        of: StreamedMatchingNetwork[MatchingNetwork],
        features: Features,
        max_disparity: int | None,
        strip: int,
        *,
        kept: bool = False,
    ) -> None:
        """`kept`: all rows are held, so that `costs` can be asked a second time."""
        network, weights, self.kept = of.network, of.stages, kept
        self.limits = [None if max_disparity is None else max_disparity // s for s in STAGE_STRIDES]
        F1, F2, quarter = map(Whole, features)
        stage1 = RollingStage(F1, weights[0], kept)
        stage2 = RollingStage(beside_enlarged(stage1.features(), F2, network.cas_pam.b2), weights[1], kept)
        F3 = decoded(F2, quarter, network.hourglass.D3)
        stage3 = RollingStage(beside_enlarged(stage2.features(), F3, network.cas_pam.b3), weights[2], kept)
        stage3.heads[-1].unit = min(strip // 4, quarter.height)
        self.stages = stage1, stage2, stage3
        self.height, self.width = quarter.height, features[2].shape[3]
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

    def attend(self, costs: Costs, rows: tuple[int, int], towards: Towards, use: Use, stage: int = 3) -> None:
        """Pass the attention of a stage to `use`, piece by piece; `rows` of that stage."""
        width = self.width >> (3 - stage)
        cost = partial(stage_cost, costs[:stage])
        stream(cost, rows, width, width, towards, self.limits[stage - 1], use)


class RollingStage:
    """A stage that goes down the picture."""

    def __init__(self, source: RollingMap, weights: StageWeights, kept: bool) -> None:
        self.source, self.weights, self.kept = source, weights, kept
        self.heads: list[RollingMap] = []
        for layers, _ in weights:
            x = self.features()
            self.heads.append(convolution(convolution(x, layers[0], SLOPE), layers[3], SLOPE))
            self.source = x
        self.readers = [head.reader() for head in self.heads]

    def features(self) -> RollingMap:
        """Of the last block. Whoever asks for them must read them, for they are held until then."""
        return added(self.heads[-1], self.source, kept=True) if self.heads else self.source

    def cost(self, view: int, first: int, last: int) -> CostStage:
        """Queries of a view and keys of the other, rows first ... last - 1.

        The first row never decreases, unless the rows are `kept`.
        """
        for read in self.readers if not self.kept else ():
            read.forget(first)
        parts = [read(first, last) for read in reversed(self.readers)][::-1]  # the last: it drives the others
        _, channels, rows, width = parts[0].shape
        shape = rows, width, len(parts) * channels
        query, key = (parts[0].new_empty(shape, dtype=torch.float32) for _ in range(2))
        for place, (f, (_, (weight, bias))) in enumerate(zip(parts, self.weights, strict=True)):
            these = slice(place * channels, (place + 1) * channels)
            query[..., these] = F.conv2d(f[view : view + 1], weight, bias)[0].permute(1, 2, 0)
            key[..., these] = f[1 - view].permute(1, 2, 0)
        return CostStage(query, key, first, self.source.height)


def encoded(source: RollingMap, encoder: Encoder) -> RollingMap:
    unit, block = cast("tuple[nn.Sequential, ResidualBlock]", tuple(encoder.body))
    x: RollingMap = convolution(source, unit[0], SLOPE)
    precision = next(block.parameters()).dtype
    if next(unit.parameters()).dtype != precision:
        x = Mapped(lambda values: values.to(precision), x)
    return residual(x, block.body, SLOPE)


def decoded(deeper: RollingMap, skip: RollingMap | None, decoder: Decoder) -> RollingMap:
    unit, block = cast("tuple[nn.Sequential, ResidualBlock]", tuple(decoder.body))
    return residual(beside_enlarged(deeper, skip, unit), block.body, SLOPE)


def beside_enlarged(deeper: RollingMap, skip: RollingMap | None, unit: nn.Sequential) -> RollingMap:
    """1x1 convolution unit of the enlarged `deeper` beside `skip`.

    The weights of an enlargement sum to one, so it may as well follow the convolution: a quarter of the work.
    """
    layer = unit[0]
    assert isinstance(layer, nn.Conv2d)
    if skip is None:
        return Enlarged(convolution(deeper, layer), SLOPE)
    channels = layer.in_channels - layer.out_channels  # a skip connection has as many as come out
    of_deeper, of_skip = (part.contiguous() for part in layer.weight.tensor_split((channels,), 1))
    return added(Convolution(skip, of_skip), Enlarged(Convolution(deeper, of_deeper, layer.bias)), SLOPE)
