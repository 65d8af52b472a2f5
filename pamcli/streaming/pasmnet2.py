"""PASMnet 2 in one pass down the picture, with a few rows of every map: the same disparity.

Of the matching costs those rows are held that updates still look at, or that a finer scale enlarges.

Shapes: h, w rows and columns of a scale, R rows of a strip of it; one pair at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import ResidualBlock
from pamcli.networks.error_scale import SURROUNDINGS, ErrorScale, confidence_of, with_surroundings
from pamcli.networks.neighbourhoods import convex_enlarged, mixed
from pamcli.networks.parallax import columns_near
from pamcli.networks.pasmnet import STAGE_STRIDES
from pamcli.networks.pasmnet2 import (
    LARGEST_RECEIVED,
    NEAR_COARSER,
    REACH,
    WIDTH,
    PASMnet2,
    Scale,
)
from pamcli.streaming.attention import line_bytes
from pamcli.streaming.eight_bits import reduce_to_eight_bits
from pamcli.streaming.footprint import Footprint, Pays, in_strips
from pamcli.streaming.matching import (
    Progress,
    StreamedMatching,
    Telling,
    beside_enlarged,
    decoded,
    encoded,
    lowered,
    unit,
)
from pamcli.streaming.rolling import (
    MEMORY_FORMAT,
    Convolution,
    Enlarged,
    Given,
    Leading,
    Mapped,
    Reader,
    Reads,
    RollingMap,
    Rows,
    added,
    convolution,
    joined,
    left_view,
    number_size,
    read_all,
    strips,
)
from pamcli.streaming.symmetric_attention import Attended, attended, lines_together, product
from pamcli.streaming.waiting import Rounded

PAYS = Pays(180_000, whole=920_000, multiple=32)
"""Pictures as a whole take 0.85 of their time in strips; `auto` matches most of them in this size."""

READING = 0.5  # of the time: what is done before the disparity of rows that are read is there
ENLARGED_AT_ONCE = 8  # rows of disparities: what is made of them should stay in the cache


class StreamedPASMnet2:
    """Runs a network whose batch norm is folded (`rolling.folded`) strip by strip."""

    def __init__(
        self, network: PASMnet2, precision: torch.dtype = torch.float32, *, eight_bits: bool = False
    ) -> None:
        """`precision`: of the convolutions; attention and disparity are float32.

        With `eight_bits` the 3x3 convolutions of features and updates are in 8 bits, but for those of the
        largest maps, which gain nothing, and those that mix disparities. Of two in a row the first hands on
        what the second reads.
        """
        self.stages = [
            (stage, [product(block, stage.width) for block in stage.blocks])
            for stage in (network.st1, network.st2, network.st3)
        ]
        self.network = lowered(network, precision)
        # Not where features are rounded to 8 bits: of what is rounded twice, much comes to another level.
        self.rounds = precision == torch.float32 and not eight_bits
        if eight_bits:
            reduce_to_eight_bits(
                _middle_layers(self.network),
                _readers(self.network),
                lambda views: self.match(_rows(views), *views.shape[2:]),
            )

    def footprint(self, width: int, height: int) -> Footprint:
        """What a pair takes at the peak, whether or not the confidence is asked for."""
        size, quarter = number_size(self.network), width // 4
        costs = 0.042 * width  # of all scales
        return in_strips(
            width,
            height,
            PAYS,
            picture=5,
            strip=24 * size + 112 + costs,
            # The coarsest scale is so far ahead of the result, and features of finer ones wait for it.
            waiting=[(30 * size, 240), (costs, 190), (30 if self.rounds else 15 * size, 1500)],
            line=80 * width + line_bytes(quarter, ordered=True) / 4,
            lines=4 * lines_together(quarter),
        )

    def match(
        self,
        rows: Rows,
        height: int,
        width: int,
        max_disparity: int | None = None,
        *,
        strip: int | None = None,
        confidence: bool = False,
        progress: Progress | None = None,
    ) -> StreamedMatching:
        """Match a pair as `StreamedPASMnet` does."""
        assert height % 32 == width % 32 == 0
        net, strip = self.network, height if strip is None else strip
        assert strip % 32 == 0
        telling = Telling(progress)

        def read(first: int, last: int) -> Tensor:
            if strip < height:  # else they are all read at once
                telling(READING * first / height)
            return rows(first, last)

        precision = net.x2[0].weight.dtype
        x0 = Mapped(lambda values: values.to(precision), unit(Given(read, height, strip), net.E0))

        def waiting(features: RollingMap) -> RollingMap:
            """What finer scales read while the coarsest one looks far ahead: half of the memory of strips."""
            return Rounded(features) if self.rounds and strip < height else features

        half = waiting(unit(left_view(x0, kept=True), net.x2))
        x1 = encoded(x0, net.E1)
        waiting1 = waiting(x1)
        x1 = Leading(x1, waiting1, half)  # else twice as many rows of x0 would wait for the end
        x2 = encoded(x1, net.E2)
        waiting2 = waiting(x2)
        x2 = Leading(x2, waiting2)
        x3 = encoded(x2, net.E3)
        F1 = decoded(encoded(encoded(x3, net.E4), net.D0), x3, net.D1)
        F2 = decoded(F1, waiting2, net.D2)
        F3 = beside_enlarged(F2, waiting1, net.D3)

        sizes = [(width // s, None if max_disparity is None else max_disparity // s) for s in STAGE_STRIDES]
        v1, attention1 = attended(F1, *self.stages[0], *sizes[0])
        views2 = beside_enlarged(v1, F2, net.b2)
        v2, attention2 = attended(views2, *self.stages[1], *sizes[1], attention1)
        views3 = beside_enlarged(v2, F3, net.b3)
        v3, attention3 = attended(views3, *self.stages[2], *sizes[2], attention2, finest=True)

        coarse = settled(net.s1, joined_left(v1, x3), attention1)
        middle = settled(net.s2, joined_left(v2, waiting2), attention2, coarse)
        matched = left_view(v3)
        fine = settled(net.s3, joined_left(matched, waiting1), attention3, middle)
        mixture = convolution(unit(joined(fine.hidden, matched, half), net.mask[0]), net.mask[1])

        weights, around, found = mixture.reader(), fine.disparity.reader(), attention3.reader_of_found()
        told: Reader | None = None
        if confidence:
            coarser = doubled(middle.disparity), doubled(doubled(coarse.disparity))
            told = ErrorScales(net.error_scale, fine, coarser).reader()
        disparity = torch.empty((1, 1, height, width), device=next(net.parameters()).device)
        received = disparity.new_empty((1, height // 4, width // 4))
        sure = torch.empty_like(received)
        for first, last in strips(height // 4, strip // 4):
            if told is not None:
                told.expect(last + SURROUNDINGS)
            for reader in (weights, found):
                reader.expect(last)
            around.expect(last + 1)
            d, mixing = with_edges(around, first, last, 1), weights(first, last)  # the farthest ahead first
            for low, high in strips(last - first, ENLARGED_AT_ONCE):
                enlarged = convex_enlarged(d[:, low : high + 2], mixing[:, :, low:high])
                disparity[:, :, 4 * (first + low) : 4 * (first + high)] = enlarged
            received[:, first:last] = found(first, last)[:, 2]
            if told is not None:
                scale = with_surroundings(with_edges(told, first, last, SURROUNDINGS))
                sure[:, first:last] = confidence_of(scale)
            weights.forget(last)
            found.forget(last)
            telling(READING + (1 - READING) * 4 * last / height)
        return StreamedMatching(disparity, received, None if told is None else sure)


def _middle_layers(network: PASMnet2) -> list[nn.Conv2d]:
    """3x3 convolutions from 1/4 of the pictures' size on that do not make disparities."""
    net = network
    features = [net.E1.body[1], net.E2, net.E3, net.E4, net.D0, net.D1, net.D2, net.st1, net.st2, net.st3]
    updates = [part for scale in (net.s1, net.s2, net.s3) for part in (scale.upd.a, scale.upd.b)]
    layers = [layer for part in (*features, *updates) for layer in part.modules()]
    return [layer for layer in layers if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3)]


def _readers(network: PASMnet2) -> dict[nn.Conv2d, nn.Conv2d]:
    """3x3 convolutions that alone read what other ones make."""
    parts: list[Any] = [part for part in network.modules() if isinstance(part, ResidualBlock)]
    pairs = [(part.body[0], part.body[3]) for part in parts]
    pairs += [(part.upd.a[0], part.upd.b[0]) for part in (network.s1, network.s2, network.s3)]
    heads = [block.head for stage in (network.st1, network.st2, network.st3) for block in stage.blocks]
    return dict(pairs + [(head[0], head[3]) for head in heads])


def _rows(views: Tensor) -> Rows:
    return lambda first, last: views[:, :, first:last]


def joined_left(*sources: RollingMap) -> Mapped:
    """The channels of several maps' left views, one after the other."""
    return Mapped(lambda *views: torch.cat([x[:1] for x in views], 1), *sources)


@dataclass
class Settled:
    """What a scale hands on."""

    disparity: RollingMap
    """(1, 1, h, w), pixels of the scale."""
    hidden: RollingMap
    """(1, 48, h, w)."""
    attention: Attended


def doubled(disparity: RollingMap) -> RollingMap:
    """A disparity in the pixels of the next scale: (1, 1, h, w) to (1, 1, 2h, 2w)."""
    return Mapped(lambda d: 2 * d, Enlarged(disparity))


def settled(
    scale: Scale, described: RollingMap, attention: Attended, coarser: Settled | None = None
) -> Settled:
    """Disparity at one scale, as `Scale.forward` finds it."""
    update, layer = scale.upd, scale.h0[0]
    assert isinstance(layer, nn.Conv2d)
    context = unit(described, scale.ctx)
    theirs = None
    if coarser is None:
        hidden = unit(described, scale.h0)
    else:
        # The enlargement may as well follow the convolution: a quarter of the work.
        channels = layer.in_channels - WIDTH
        own, other = (part.contiguous() for part in layer.weight.tensor_split((channels,), 1))
        enlarged = Enlarged(Convolution(coarser.hidden, other))
        hidden = added(Convolution(described, own, layer.bias), enlarged, slope=0)
        theirs = doubled(coarser.disparity)
    # A convolution of maps side by side is the sum of its parts, of which that of the context stays.
    mix = update.mix[0]
    assert isinstance(mix, nn.Conv2d)
    of_seen, of_context, of_hidden = (
        part.contiguous() for part in mix.weight.tensor_split((-2 * WIDTH, -WIDTH), 1)
    )
    context = Convolution(context, of_context, mix.bias)
    d: RollingMap = Mapped(lambda found: found[:, :1], attention)
    for _ in range(scale.updates):
        seen = unit(Seen(scale, d, theirs, attention, coarser), update.enc)
        x = added(Convolution(seen, of_seen), Convolution(hidden, of_hidden))
        x = added(x, context, slope=0)
        hidden = added(convolution(unit(x, update.a), update.b[0]), x, slope=0)
        d = Mixed(scale, d, theirs, convolution(hidden, update.out))
    return Settled(d, hidden, attention)


class Seen(RollingMap):
    """What an update sees at the current disparity (1, 36 or 57, h, w)."""

    def __init__(
        self,
        scale: Scale,
        d: RollingMap,
        theirs: RollingMap | None,
        attention: Attended,
        coarser: Settled | None,
    ) -> None:
        maps: list[RollingMap] = [attention]
        if theirs is not None and coarser is not None:
            maps += [theirs, Enlarged(LookedUp(d, coarser.attention))]
        ahead = max(d.ahead + scale.reach * d.step, *(map_.ahead for map_ in maps))
        super().__init__(d.height, d.step, ahead, d.strip)
        self.scale, self.attention, self.d = scale, attention, d.reader()
        self.found, *self.coarser = [map_.reader() for map_ in maps]

    def _reads(self, last: int) -> Reads:
        theirs = zip(self.coarser, (last + 1, last), strict=False)  # their disparity, and what is looked up
        return [(self.found, last), (self.d, last + self.scale.reach), *theirs]

    def _compute(self, first: int, last: int) -> Tensor:
        d, theirs = with_edges(self.d, first, last, self.scale.reach), None
        reach = self.scale.reach
        logs = [self.attention.looked_up(first, d[:, reach:-reach, reach:-reach], REACH)]
        if self.coarser:
            disparity, looked = self.coarser
            theirs = with_edges(disparity, first, last, 1)
            near = self.attention.looked_up(first, theirs[:, 1:-1, 1:-1], NEAR_COARSER)
            logs += [looked(first, last), near]
            looked.forget(last)
        trust = self.found(first, last)[:, 1:].clone()
        trust[:, 1].clamp_(max=LARGEST_RECEIVED)
        self.found.forget(last)
        return self.scale.seen(d, theirs, logs, trust).contiguous(memory_format=MEMORY_FORMAT)


class LookedUp(RollingMap):
    """Attention of the coarser scale near the disparity (1, 9, h/2, w/2)."""

    def __init__(self, d: RollingMap, attention: Attended) -> None:
        super().__init__(d.height // 2, 2 * d.step, max(d.ahead, attention.ahead), d.strip)
        self.d, self.attention, self.found = d.reader(), attention, attention.reader()

    def _reads(self, last: int) -> Reads:
        return [(self.d, 2 * last), (self.found, last)]

    def _compute(self, first: int, last: int) -> Tensor:
        halved = F.avg_pool2d(self.d(2 * first, 2 * last), 2)[:, 0] / 2
        self.found(first, last)
        looked = self.attention.looked_up(first, halved, REACH)
        self.d.forget(2 * last)
        self.found.forget(last)
        return looked


class Mixed(RollingMap):
    """Disparity after an update (1, 1, h, w)."""

    def __init__(self, scale: Scale, d: RollingMap, theirs: RollingMap | None, mixing: RollingMap) -> None:
        super().__init__(d.height, d.step, max(mixing.ahead, d.ahead + scale.reach * d.step), d.strip)
        self.scale, self.d, self.mixing = scale, d.reader(), mixing.reader()
        self.theirs = None if theirs is None else theirs.reader()

    def _reads(self, last: int) -> Reads:
        theirs = [] if self.theirs is None else [(self.theirs, last + 1)]
        return [(self.mixing, last), (self.d, last + self.scale.reach), *theirs]

    def _compute(self, first: int, last: int) -> Tensor:
        mixing = self.mixing(first, last)
        theirs = None if self.theirs is None else with_edges(self.theirs, first, last, 1)
        d = with_edges(self.d, first, last, self.scale.reach)
        self.mixing.forget(last)
        return mixed(self.scale.candidates(d, theirs), mixing)[:, None]


class ErrorScales(RollingMap):
    """How far off the disparity is likely to be, by what each pixel says of itself: (1, 1, h, w)."""

    def __init__(self, layer: ErrorScale, fine: Settled, coarser: Sequence[RollingMap]) -> None:
        """`coarser`: disparities of the coarser scales, in the pixels of this one."""
        sources = fine.hidden, fine.disparity, fine.attention, *coarser
        d = fine.disparity
        super().__init__(d.height, d.step, max(source.ahead for source in sources), d.strip)
        self.layer, self.attention = layer, fine.attention
        self.sources = [source.reader() for source in sources]

    def _reads(self, last: int) -> Reads:
        return [(source, last) for source in self.sources]

    def _compute(self, first: int, last: int) -> Tensor:
        hidden, own, _, *others = read_all(self.sources, first, last)
        k, counts = columns_near(own[:, 0])
        near = self.attention.logs(first, k[..., 0], k.shape[-1]).exp() * counts
        scale: Tensor = self.layer(hidden, near.sum(-1), own[:, 0], [other[:, 0] for other in others])
        for source in self.sources:
            source.forget(last)
        return scale[:, None]


def with_edges(disparity: Reader, first: int, last: int, reach: int) -> Tensor:
    """Rows of a disparity and `reach` around them, as `edged` has them: (1, R + 2 reach, w + 2 reach)."""
    low, high = max(0, first - reach), min(last + reach, disparity.height)
    rows = disparity(low, high)
    disparity.forget(max(0, last - reach) if last < disparity.height else last)
    sides = reach, reach, reach - (first - low), reach - (high - last)
    return F.pad(rows, sides, mode="replicate")[:, 0]
