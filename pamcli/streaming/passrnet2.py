"""PASSRnet 2 a few rows at a time: the same pictures. Both views joined in the batch, left first."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.passrnet2 import (
    WIDTH,
    Exchange,
    GatedBlock,
    PASSRnet2,
    PixelNorm,
    SubpixelDetail,
    bicubic,
    most_attended,
)
from pamcli.onednn import add_convolved, convolved, product, times_convolved
from pamcli.streaming.attention import line_bytes, lines_at_once
from pamcli.streaming.footprint import Footprint, Pays, in_strips
from pamcli.streaming.passrnet import Write
from pamcli.streaming.rolling import (
    MEMORY_FORMAT,
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

CUBIC_REACH = 2  # rows above and below that a bicubic enlargement looks at

SMALLER = 2  # times as few lines as elsewhere: their attention is passed over many times

LOG2_E = math.log2(math.e)
VANISHING = 1e-20
"""Sums of exponentials below this are of some that are no normal numbers."""


class StreamedPASSRnet2:
    """Runs a PASSRnet 2 strip by strip, in the precision of its weights; attention and result are float32."""

    def __init__(self, network: PASSRnet2, precision: torch.dtype | None = None) -> None:
        """Take a network, and bring its convolutions to a `precision`; None: as they are."""
        self.blocks = [Layers.of(block, precision) for block in network.blocks]
        self.exchanges = {
            depth: Exchanging.of(network.exchanges[str(depth)], precision)
            for depth in network.exchange_behind
        }
        self.network = network if precision is None else network.to(dtype=precision)

    def footprint(self, width: int, height: int, *, both: bool) -> Footprint:
        """What a pair takes at the peak: both views are enlarged in any case."""
        ahead = len(self.blocks) + 1  # rows of a map that wait for those below them, in all layers together
        each = 760 * number_size(self.network)
        enlarged = 84 * self.network.scale**2  # of both views, before and after they are float32, and a base
        return in_strips(
            width,
            height,
            Pays(30_000),
            picture=0,
            strip=max(each, enlarged),
            waiting=[(each, ahead)],
            line=line_bytes(width, ordered=False),
            lines=_lines_at_once(width),
            ahead=ahead,
        )

    def enlarge(
        self, rows: Rows, height: int, width: int, write: Write, *, both: bool, strip: int | None = None
    ) -> None:
        """Enlarge a pair, as `StreamedPASSRnet.enlarge` does."""
        strip = height if strip is None else strip
        network = self.network
        given = Given(rows, height)
        x: RollingMap = convolution(given, network.first)
        for depth, block in enumerate(self.blocks):
            x = Gated(x, block)
            if depth in network.exchange_behind:
                detail = network.detail if depth == network.detail_behind else None
                sources = (x,) if detail is None else (x, given)
                x = Mapped(_exchanged(self.exchanges[depth], detail), *sources)
        scale = network.scale
        base = Larger(given, 1, CUBIC_REACH, _enlargement(scale))
        learned = Mapped(lambda base, own: base.add_(own), base, convolution(x, network.last))
        picture = Shuffled(learned, scale).reader()
        for first, last in strips(picture.height, scale * strip):
            enlarged = picture(first, last)
            for view in range(2 if both else 1):
                write(view, first, enlarged[view])
            picture.forget(last)


def _enlargement(scale: int) -> Callable[[Tensor], Tensor]:
    """Bicubic enlargement before channels become pixels: (B, 3, H, W) to (B, 3 scale^2, H, W).

    As a convolution by what the enlargement makes of a single pixel: a sixth of the time of torch's own.
    """
    reach, middle = CUBIC_REACH, 2 * CUBIC_REACH
    impulse = torch.zeros(1, 1, 2 * middle + 1, 2 * middle + 1)
    impulse[..., middle, middle] = 1
    made = bicubic(impulse, scale)[0, 0].view(2 * middle + 1, scale, 2 * middle + 1, scale)
    near = slice(middle - reach, middle + reach + 1)
    kernel = made[near, :, near].permute(1, 3, 0, 2).flatten(0, 1).flip(1, 2)  # (scale^2, 5, 5)
    weight = torch.zeros(3, scale**2, 3, *kernel.shape[1:])
    weight[range(3), :, range(3)] = kernel
    weight = weight.flatten(0, 1)

    def run(x: Tensor) -> Tensor:
        padded = F.pad(x.float(), (reach,) * 4, mode="replicate")
        return F.conv2d(padded.contiguous(memory_format=MEMORY_FORMAT), weight.to(padded))

    return run


Layer = tuple[Tensor, Tensor]
"""Weight and bias."""


@dataclass(frozen=True)
class Layers:
    """What a gated block multiplies by, each half of what becomes a gate by itself.

    A norm's weight and bias, and that it takes away the mean, are in the layer behind it: what is left of the
    norm is to divide each pixel by its deviation.
    """

    widen: list[Layer]
    mix: list[Layer]
    narrow: Layer
    widen2: list[Layer]
    narrow2: Layer

    @classmethod
    def of(cls, block: nn.Module, precision: torch.dtype | None) -> "Layers":
        """Take them from a block, in the `precision` given, or its own."""
        assert isinstance(block, GatedBlock)
        kind = block.widen.weight.dtype if precision is None else precision

        def halves(weight: Tensor, bias: Tensor) -> list[Layer]:
            both = zip(weight.chunk(2), bias.chunk(2), strict=True)
            return [(each.to(kind), its_bias.to(kind)) for each, its_bias in both]

        return cls(
            halves(*behind(block.norm1, block.widen)),
            halves(block.mix.weight.detach(), bias_of(block.mix)),
            scaled(block.narrow, block.scale1, kind),
            halves(*behind(block.norm2, block.widen2)),
            scaled(block.narrow2, block.scale2, kind),
        )


def bias_of(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None
    return layer.bias.detach().double()


def behind(norm: PixelNorm, layer: nn.Conv2d) -> Layer:
    """A 1x1 layer with the norm before it, all but the division; float64."""
    weight = layer.weight.detach().double() * norm.weight.detach().double()[:, None, None]
    bias = bias_of(layer) + layer.weight.detach().double()[:, :, 0, 0] @ norm.bias.detach().double()
    return weight - weight.mean(1, keepdim=True), bias


def scaled(layer: nn.Conv2d, scale: Tensor, kind: torch.dtype) -> Layer:
    """A 1x1 layer with the scale (C, 1, 1) of its result."""
    each = scale.detach().double()
    return (layer.weight.detach() * each[..., None]).to(kind), (bias_of(layer) * each[:, 0, 0]).to(kind)


@dataclass(frozen=True)
class Exchanging:
    """What an exchange multiplies by; costs come in powers of two, whose exponentials are faster."""

    describe: Layer
    """Queries of one view and keys of the other: each has the root of the cost's scale."""
    value: Layer

    @classmethod
    def of(cls, exchange: nn.Module, precision: torch.dtype | None) -> "Exchanging":
        """Take them from an exchange, in the `precision` given, or its own."""
        assert isinstance(exchange, Exchange)
        kind = exchange.value.weight.dtype if precision is None else precision
        root = (LOG2_E * WIDTH**-0.5) ** 0.5
        weight, bias = behind(exchange.norm, exchange.describe)
        return cls(
            ((root * weight).to(kind), (root * bias).to(kind)), scaled(exchange.value, exchange.scale, kind)
        )


class Gated(RollingMap):
    """What a gated block makes of a map, as `GatedBlock.forward` does.

    One view after the other, and each half of a gate by itself: more of what is computed stays in the cache.
    """

    def __init__(self, source: RollingMap, layers: Layers) -> None:
        super().__init__(source.height, source.step, source.ahead + source.step, source.strip)
        self.source, self.layers = source.reader(), layers

    def _compute(self, first: int, last: int) -> Tensor:
        low, high = max(0, first - 1), min(self.height, last + 1)
        views, own = self.source(low, high), slice(first - low, last - low)
        made = views  # as a whole in their memory, for nothing else reads them
        if last - first < self.height:
            made = empty_map((*views.shape[:2], last - first, views.shape[3]), views)
            made.copy_(views[:, :, own])
        for place, view in zip(made.chunk(len(made)), views.chunk(len(views)), strict=True):
            self._run(view, own, place)
        self.source.forget(self.height if last == self.height else last - 1)
        return made

    def _run(self, view: Tensor, own: slice, place: Tensor) -> None:
        """Compute rows `own` of a view into their `place`, which holds these rows."""
        layers, normal = self.layers, over_deviation(view)
        one, other = (
            F.conv2d(convolved(normal, *widen), *mix, padding=1, groups=WIDTH)
            for widen, mix in zip(layers.widen, layers.mix, strict=True)
        )
        gate = one[:, :, own].mul_(other[:, :, own])
        add_convolved(place, gate, *layers.narrow)
        normal = over_deviation(place)
        gate = times_convolved(convolved(normal, *layers.widen2[0]), normal, *layers.widen2[1])
        add_convolved(place, gate, *layers.narrow2)


def over_deviation(x: Tensor) -> Tensor:
    """Divide each pixel of x (B, C, H, W) by the deviation of its channels, their mean left in it.

    By its length and its mean: half of the time of a layer norm.
    """
    pixels = x.permute(0, 2, 3, 1)
    exact = pixels.float()
    mean = exact.mean(-1, keepdim=True)
    variance = torch.linalg.vector_norm(exact, dim=-1, keepdim=True).square_().div_(x.shape[1])
    factor = variance.addcmul_(mean, mean, value=-1).clamp_(min=0).add_(1e-6).rsqrt_()
    normal: Tensor = (pixels * factor.to(x.dtype)).permute(0, 3, 1, 2)
    return normal


def _exchanged(layers: Exchanging, detail: SubpixelDetail | None) -> Callable[..., Tensor]:
    """Compute what `Exchange.forward` does, a few lines at a time, for their maps are large.

    With `detail`, of features and pictures, and what that makes of both is added.
    """

    def run(views: Tensor, *pictures: Tensor) -> Tensor:
        described = convolved(over_deviation(views), *layers.describe).permute(0, 2, 3, 1).float()
        left, right = described.chunk(2)  # (B, H, W, C)
        values = convolved(views, *layers.value).permute(0, 2, 3, 1).chunk(2)[::-1]
        given = empty_map(views.shape, views)
        both = [of.permute(0, 2, 3, 1).chunk(2) for of in (views, given)]
        for first, last in strips(views.shape[2], _lines_at_once(views.shape[3])):
            lines = slice(first, last)
            shares = _shares(left[:, lines], right[:, lines], views.dtype)
            for own, place, value, share in zip(*both, values, shares, strict=True):
                gathered, total = product(share.lowered, value[:, lines]), share.total[..., None]
                torch.addcdiv(own[:, lines], gathered, total.to(views.dtype), out=place[:, lines])
            if detail is not None:
                most = [most_attended(share.weights) for share in shares]
                totals = (share.total[..., None] for share in shares)
                one, other = ((at, near / total) for (at, near), total in zip(most, totals, strict=True))
                seen = detail.sorted(pictures[0][:, :, lines], (one, other)).to(views.dtype)
                seen = seen.contiguous(memory_format=MEMORY_FORMAT)
                for place, each in zip(given.chunk(2), seen.chunk(2), strict=True):
                    assert detail.join.bias is not None
                    add_convolved(place[:, :, lines], each, detail.join.weight, detail.join.bias)
        return given

    return run


def _lines_at_once(width: int) -> int:
    return max(4, lines_at_once(width, width) // SMALLER)


@dataclass(frozen=True)
class Share:
    """Attention of a view on the other: weights (B, H, W, V), and their sums (B, H, W), its divisors."""

    weights: Tensor
    lowered: Tensor
    """The weights in the precision of features."""
    total: Tensor


def _shares(queries: Tensor, keys: Tensor, precision: torch.dtype) -> list[Share]:
    """Attention of either view (B, H, W, C) on the other, of costs to which 2 is raised.

    Both are of the same exponentials, unless those of a pixel that fits nowhere would vanish.
    """
    cost = product(queries, keys.mT)
    weights = cost.sub_(cost.amax((2, 3), keepdim=True)).exp2_()  # faster than exp_
    sums = weights.sum(3), weights.sum(2)
    if min(float(each.min()) for each in sums) > VANISHING:
        lowered = weights.to(precision)
        return [Share(weights, lowered, sums[0]), Share(weights.mT, lowered.mT, sums[1])]
    cost = product(queries, keys.mT) / LOG2_E
    return [Share(x, x.to(precision), x.sum(3)) for x in (cost.softmax(3), cost.softmax(2).mT)]
