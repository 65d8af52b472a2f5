"""PASSRnet 2 a few rows at a time: the same pictures. Both views joined in the batch, left first."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import pointwise_dilation
from pamcli.networks.passrnet2 import (
    DETAIL_BEHIND,
    EXCHANGES,
    WIDTH,
    Exchange,
    GatedBlock,
    PASSRnet2,
    SubpixelDetail,
    bicubic,
    most_attended,
    pointwise,
)
from pamcli.streaming.attention import line_bytes, lines_at_once
from pamcli.streaming.footprint import Footprint, Pays, in_strips
from pamcli.streaming.passrnet import Write
from pamcli.streaming.rolling import (
    Given,
    Larger,
    Mapped,
    RollingMap,
    Rows,
    Shuffled,
    convolution,
    empty_map,
    number_size,
    strips,
)

AHEAD = 17  # rows of a map that wait for those below them, in all layers together

CUBIC_REACH = 2  # rows above and below that a bicubic enlargement looks at

SMALLER = 4  # times as few lines as elsewhere: their attention is passed over many times

LOG2_E = math.log2(math.e)
VANISHING = 1e-20
"""Sums of exponentials below this are of some that are no normal numbers."""


class StreamedPASSRnet2:
    """Runs a PASSRnet 2 strip by strip, in the precision of its weights; attention and result are float32."""

    def __init__(self, network: PASSRnet2, precision: torch.dtype | None = None) -> None:
        """Take a network, and bring its convolutions to a `precision`; None: as they are."""
        self.network = network if precision is None else network.to(dtype=precision)

    def footprint(self, width: int, height: int, *, both: bool) -> Footprint:
        """What a pair takes at the peak: both views are enlarged in any case."""
        each = 1030 * number_size(self.network)
        enlarged = 84 * self.network.scale**2  # of both views, before and after they are float32, and a base
        return in_strips(
            width,
            height,
            Pays(30_000),
            picture=0,
            strip=max(each, enlarged),
            waiting=[(each, AHEAD)],
            line=line_bytes(width, ordered=False),
            lines=_lines_at_once(width),
            ahead=AHEAD,
        )

    def enlarge(
        self, rows: Rows, height: int, width: int, write: Write, *, both: bool, strip: int | None = None
    ) -> None:
        """Enlarge a pair, as `StreamedPASSRnet.enlarge` does."""
        strip = height if strip is None else strip
        network = self.network
        given = Given(rows, height)
        x: RollingMap = convolution(given, network.first)
        for depth, block in enumerate(network.blocks):
            x = Gated(x, block)
            if depth in EXCHANGES:
                detail = network.detail if depth == DETAIL_BEHIND else None
                sources = (x,) if detail is None else (x, given)
                x = Mapped(_exchanged(network.exchanges[str(depth)], detail), *sources)
        scale = network.scale
        base = Larger(given, scale, CUBIC_REACH * scale, lambda x: bicubic(x.float(), scale), unit=scale)
        learned = Shuffled(convolution(x, network.last), scale)
        picture = Mapped(lambda own, base: own.float() + base, learned, base).reader()
        for first, last in strips(picture.height, scale * strip):
            enlarged = picture(first, last)
            for view in range(2 if both else 1):
                write(view, first, enlarged[view])
            picture.forget(last)


class Gated(RollingMap):
    """What a gated block makes of a map, as `GatedBlock.forward` does.

    One view after the other, and each half of a gate by itself: more of what is computed stays in the cache.
    """

    def __init__(self, source: RollingMap, block: nn.Module) -> None:
        super().__init__(source.height, source.step, source.ahead + source.step, source.strip)
        assert isinstance(block, GatedBlock)
        self.source, self.block = source.reader(), block

    def _compute(self, first: int, last: int) -> Tensor:
        low, high = max(0, first - 1), min(self.height, last + 1)
        views, own = self.source(low, high), slice(first - low, last - low)
        made = empty_map((*views.shape[:2], last - first, views.shape[3]), views)
        for place, view in zip(made.chunk(len(made)), views.chunk(len(views)), strict=True):
            self._run(view, own, place)
        self.source.forget(self.height if last == self.height else last - 1)
        return made

    def _run(self, view: Tensor, own: slice, place: Tensor) -> None:
        """Compute rows `own` of a view into their `place`."""
        block = self.block
        normal, x = block.norm1(view), view[:, :, own]
        one, other = (
            F.conv2d(_half(block.widen, half, normal), weight, bias, padding=1, groups=WIDTH)
            for half, (weight, bias) in enumerate(_halves(block.mix))
        )
        gate = one[:, :, own].mul_(other[:, :, own])
        x = pointwise(block.narrow, gate, block.scale1).add_(x)
        normal = block.norm2(x)
        gate = _half(block.widen2, 0, normal).mul_(_half(block.widen2, 1, normal))
        torch.add(pointwise(block.narrow2, gate, block.scale2), x, out=place)


def _halves(layer: nn.Conv2d) -> list[tuple[Tensor, Tensor]]:
    """Weights and bias of both halves of the channels that a layer makes."""
    assert layer.bias is not None
    return list(zip(layer.weight.chunk(2), layer.bias.chunk(2), strict=True))


def _half(layer: nn.Conv2d, half: int, x: Tensor) -> Tensor:
    """Half of the channels that a 1x1 convolution makes of x."""
    return F.conv2d(x, *_halves(layer)[half], dilation=pointwise_dilation(x))


def _exchanged(exchange: nn.Module, detail: SubpixelDetail | None) -> Callable[..., Tensor]:
    """Compute what `Exchange.forward` does, a few lines at a time, for their maps are large.

    With `detail`, of features and pictures, and what that makes of both is added.
    """
    assert isinstance(exchange, Exchange)

    def run(views: Tensor, *pictures: Tensor) -> Tensor:
        left, right = (x.permute(0, 2, 3, 1).float() for x in exchange.described(views))  # (B, H, W, C)
        values = [x.permute(0, 2, 3, 1) for x in reversed(exchange.values(views))]
        given = empty_map(views.shape, views)
        for first, last in strips(views.shape[2], _lines_at_once(views.shape[3])):
            lines = slice(first, last)
            shares = _shares(left[:, lines], right[:, lines])
            for place, value, (weights, total) in zip(given.chunk(2), values, shares, strict=True):
                gathered = torch.matmul(weights.to(value.dtype), value[:, lines]) / total[..., None]
                place[:, :, lines] = gathered.permute(0, 3, 1, 2)
            if detail is not None:
                most = [most_attended(weights) for weights, _ in shares]
                totals = (total[..., None] for _, total in shares)
                one, other = ((at, near / total) for (at, near), total in zip(most, totals, strict=True))
                given[:, :, lines] += detail.seen(pictures[0][:, :, lines], (one, other))
        return given.add_(views)

    return run


def _lines_at_once(width: int) -> int:
    return max(4, lines_at_once(width, width) // SMALLER)


def _shares(queries: Tensor, keys: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Attention of either view (B, H, W, C) on the other: weights (B, H, W, V), and their sums, its divisors.

    Both are of the same exponentials, unless those of a pixel that fits nowhere would vanish.
    """
    cost = torch.matmul(LOG2_E * queries, keys.mT)
    weights = cost.sub_(cost.amax((2, 3), keepdim=True)).exp2_()  # faster than exp_
    sums = weights.sum(3), weights.sum(2)
    if min(float(each.min()) for each in sums) > VANISHING:
        return [(weights, sums[0]), (weights.mT, sums[1])]
    cost = torch.matmul(queries, keys.mT)
    return [(x, x.sum(3)) for x in (cost.softmax(3), cost.softmax(2).mT)]
