"""PASMnet 2 in one pass down the picture, with a few rows of every map: the same disparity.

Of the matching costs those rows are held that updates still look at, or that a finer scale enlarges.

Shapes: h, w rows and columns of a scale, R rows of a strip of it; one pair at a time.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.parallax import columns_near, out_of_order, valid_mask
from pamcli.networks.pasmnet import STAGE_STRIDES
from pamcli.networks.pasmnet2 import (
    IMPOSSIBLE,
    LARGEST_RECEIVED,
    NEAR_COARSER,
    REACH,
    WIDTH,
    PASMnet2,
    Scale,
    Stage,
    between_columns,
    columns_around,
    columns_of_window,
    confidence_of,
    convex_enlarged,
    expected_disparity,
    mixed,
)
from pamcli.networks.pasmnet2 import Block as AttentionBlock
from pamcli.streaming.attention import Block, column_blocks, enlarged_cost, lines_at_once
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
    RollingMap,
    Rows,
    added,
    coarser,
    convolution,
    joined,
    left_view,
    read_all,
    strips,
)

READING = 0.5  # of the time: what is done before the disparity of rows that are read is there
ENLARGED_AT_ONCE = 8  # rows of disparities: what is made of them should stay in the cache
SMALLEST_TOTAL = 1e-30  # of the attention to a right column, of the most that a left pixel has to give

Product = tuple[Tensor, Tensor, Tensor]
"""Weight (C, C), bias (C) and constant (1) of a block's cost, see `product`."""


class StreamedPASMnet2:
    """Runs a network whose batch norm is folded (`rolling.folded`) strip by strip."""

    def __init__(self, network: PASMnet2, precision: torch.dtype = torch.float32) -> None:
        """`precision`: of the convolutions; attention and disparity are float32."""
        self.stages = [
            (stage, [product(block, stage.width) for block in stage.blocks])
            for stage in (network.st1, network.st2, network.st3)
        ]
        self.network = lowered(network, precision)

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
        """As of `StreamedPASMnet.match`."""
        assert height % 32 == width % 32 == 0
        net, strip = self.network, height if strip is None else strip
        assert strip % 32 == 0
        telling = Telling(progress)

        def read(first: int, last: int) -> Tensor:
            if strip < height:  # else they are all read at once
                telling(READING * first / height)
            return rows(first, last)

        x0 = unit(Given(read, height, strip), net.E0)
        half = unit(left_view(x0), net.x2)
        x1 = Leading(encoded(x0, net.E1), half)  # else twice as many rows of x0 would wait for the end
        x2 = encoded(x1, net.E2)
        x3 = encoded(x2, net.E3)
        F1 = decoded(encoded(encoded(x3, net.E4), net.D0), x3, net.D1)
        F2 = decoded(F1, x2, net.D2)
        F3 = beside_enlarged(F2, x1, net.D3)

        sizes = [(width // s, None if max_disparity is None else max_disparity // s) for s in STAGE_STRIDES]
        v1, attention1 = attended(F1, *self.stages[0], *sizes[0])
        views2 = beside_enlarged(v1, F2, net.b2)
        v2, attention2 = attended(views2, *self.stages[1], *sizes[1], attention1)
        views3 = beside_enlarged(v2, F3, net.b3)
        v3, attention3 = attended(views3, *self.stages[2], *sizes[2], attention2, finest=True)

        coarse = settled(net.s1, joined_left(v1, x3), attention1)
        middle = settled(net.s2, joined_left(v2, x2), attention2, coarse)
        matched = left_view(v3)
        fine = settled(net.s3, joined_left(matched, x1), attention3, middle)
        mixture = convolution(unit(joined(fine.hidden, matched, half), net.mask[0]), net.mask[1])

        weights, around, found = mixture.reader(), fine.disparity.reader(), attention3.reader()
        disparity = torch.empty((1, 1, height, width), device=next(net.parameters()).device)
        received = disparity.new_empty((1, height // 4, width // 4))
        sure = torch.empty_like(received) if confidence else None
        for first, last in strips(height // 4, strip // 4):
            d, mixing = with_edges(around, first, last, 1), weights(first, last)  # the farthest ahead first
            for low, high in strips(last - first, ENLARGED_AT_ONCE):
                enlarged = convex_enlarged(d[:, low : high + 2], mixing[:, :, low:high])
                disparity[:, :, 4 * (first + low) : 4 * (first + high)] = enlarged
            initial, _, received[:, first:last] = found(first, last).unbind(1)
            if sure is not None:
                own = d[:, 1:-1, 1:-1]
                k, counts = columns_near(own)
                near = attention3.logs(first, k.clamp(0, width // 4 - 1)).exp() * counts
                sure[:, first:last] = confidence_of(near.sum(-1), own - initial)
            weights.forget(last)
            found.forget(last)
            telling(READING + (1 - READING) * 4 * last / height)
        return StreamedMatching(disparity, valid_mask(received), received, sure)


def product(block: AttentionBlock, width: int) -> Product:
    """Form S, vector u and constant c so that the cost of left features f and right ones f' is

    (S f + u) . f' + u . f + c. With queries W f + w and keys V f + v it is that of
    (W f + w) . (V f' + v) + (V f + v) . (W f' + w), over 2C.
    """
    query, key = block.query[0], block.key[0]
    assert isinstance(query, nn.Conv2d) and isinstance(key, nn.Conv2d)  # noqa: PT018
    assert query.bias is not None and key.bias is not None  # noqa: PT018
    W, V = (layer.weight[:, :, 0, 0].double() for layer in (query, key))
    w, v = query.bias.double(), key.bias.double()
    form, vector, constant = W.T @ V + V.T @ W, W.T @ v + V.T @ w, 2 * (w @ v)
    return (form / (2 * width)).float(), (vector / (2 * width)).float(), (constant / (2 * width)).float()


def joined_left(*sources: RollingMap) -> Mapped:
    """The channels of several maps' left views, one after the other."""
    return Mapped(lambda *views: torch.cat([x[:1] for x in views], 1), *sources)


def attended(
    views: RollingMap,
    stage: Stage,
    products: list[Product],
    width: int,
    limit: int | None,
    coarser: "Attended | None" = None,
    *,
    finest: bool = False,
) -> tuple[RollingMap, "Attended"]:
    """A stage's features of both views, and what its attention says."""
    heads = []
    for block in stage.blocks:
        head = unit(unit(views, block.head[:3]), block.head[3:])
        heads.append(head)
        views = added(head, views, kept=True)
    return views, Attended(heads, products, width, limit, coarser, finest)


@dataclass
class Costs:
    """Matching costs of some rows."""

    first: int
    last: int
    blocks: list[Tensor]
    """(R, J, K) each; those of the coarser scales one whole (R, w, w)."""
    totals: Tensor
    """Logarithm of the sum over k of their exponentials (R, w)."""


class Attended(RollingMap):
    """Disparity by the attention, the attention in its window, and that which is received: (1, 3, h, w).

    Beside these it holds the costs of the same rows.
    """

    def __init__(
        self,
        heads: list[RollingMap],
        products: list[Product],
        width: int,
        limit: int | None,
        coarser: "Attended | None",
        finest: bool,
    ) -> None:
        ahead = heads[-1].ahead if coarser is None else max(heads[-1].ahead, coarser.ahead + coarser.step)
        super().__init__(heads[-1].height, heads[-1].step, ahead, heads[-1].strip)
        self.heads, self.products, self.width, self.limit = (
            [head.reader() for head in heads],
            products,
            width,
            limit,
        )
        self.coarser, self.finest = coarser, finest
        self.reader_of_coarser = None if coarser is None else coarser.reader()
        # A finer scale enlarges costs of columns beside those that may be looked at, too.
        self.blocks = [*column_blocks(width, width, "left", limit)] if finest else [Block(0, width, 0, width)]
        self.held: list[Costs] = []

    def _compute(self, first: int, last: int) -> Tensor:
        parts = [part.permute(0, 2, 3, 1).float() for part in read_all(self.heads, first, last)]
        each = [(*f, *of) for f, of in zip(parts, self.products, strict=True)]
        left = torch.cat([F.linear(f, form, vector) for f, _, form, vector, _ in each], -1)
        own = torch.stack([f @ vector + constant for f, _, _, vector, constant in each]).sum(0)
        right = torch.cat([f for _, f, *_ in each], -1)
        new = left.new_empty((3, last - first, self.width))
        for low, high in strips(last - first, lines_at_once(self.width, self.width)):
            lines = slice(low, high)
            new[:, lines] = self._attend(first + low, left[lines], right[lines], own[lines])
        for head in self.heads:
            head.forget(last)
        return new[None]

    def _attend(self, first: int, left: Tensor, right: Tensor, own: Tensor) -> Tensor:
        """(3, R, w) of the rows from `first` on: products of left and right (R, w, C), plus `own` (R, w)."""
        rows, width, _ = left.shape
        enlarged = None
        if self.coarser is not None and self.reader_of_coarser is not None:
            low, high = coarser(first, first + rows, self.coarser.height)
            self.reader_of_coarser(low, high)
            enlarged = self.coarser.costs(low, high)
            self.reader_of_coarser.forget(self.coarser.height if first + rows == self.height else low)
        held, maps, found = [], [], left.new_empty((3, rows, width))
        totals = left.new_empty((rows, width))
        for block in self.blocks:
            rows_of = slice(block.first, block.last)
            cost = self._cost(block, first, left, right, enlarged).add_(own[:, rows_of, None])
            held.append(cost)
            attention = self._softmax(block, cost)
            largest, peak = attention.max(-1)
            totals[:, rows_of] = cost.gather(-1, peak[..., None])[..., 0] - largest.log()
            k, inside = columns_of_window(peak, block.high - block.low)
            near = attention.gather(-1, k.clamp(0, block.high - block.low - 1)) * inside
            found[0, :, rows_of], found[1, :, rows_of] = expected_disparity(near, k + block.low - block.first)
            maps.append(attention)
        self.held.append(Costs(first, first + rows, held, totals))
        # What a right column gives to a left pixel is the attention there times its total, over the sum of
        # these products.
        shares = (totals - totals.amax(-1, keepdim=True)).exp()
        given = torch.zeros_like(totals)
        for block, attention in zip(self.blocks, maps, strict=True):
            rows_of, seen = slice(block.first, block.last), slice(block.low, block.high)
            given[:, seen] += torch.bmm(shares[:, None, rows_of], attention)[:, 0]
        given = 1 / given.clamp(min=SMALLEST_TOTAL)
        for block, attention in zip(self.blocks, maps, strict=True):
            rows_of, seen = slice(block.first, block.last), slice(block.low, block.high)
            taken = torch.bmm(given[:, None, seen], attention.mT)[:, 0]  # this order is six times as fast
            found[2, :, rows_of] = shares[:, rows_of] * taken
        return found

    def _cost(self, block: Block, first: int, left: Tensor, right: Tensor, coarse: Tensor | None) -> Tensor:
        """(R, J, K); `coarse`: the coarser scale's, of the rows that they depend on."""
        own, other = left[:, block.first : block.last], right[:, block.low : block.high].mT
        if coarse is None:
            return torch.bmm(own, other)
        row, _ = coarser(first, first + len(left), self.height // 2)
        j0, j1 = coarser(block.first, block.last, self.width // 2)
        k0, k1 = coarser(block.low, block.high, self.width // 2)
        enlarged = enlarged_cost(coarse[:, j0:j1, k0:k1])[
            first - 2 * row : first - 2 * row + len(left),
            block.first - 2 * j0 : block.last - 2 * j0,
            block.low - 2 * k0 : block.high - 2 * k0,
        ]
        return enlarged.contiguous().baddbmm_(own, other)

    def _softmax(self, block: Block, cost: Tensor) -> Tensor:
        """Attention (R, J, K), zero where no pixel may look."""
        column = torch.arange(self.width, device=cost.device)
        low = block.low if self.limit is not None else block.first  # to the left of it all may be looked at
        outside = out_of_order(column[block.first : block.last], column[low : block.high], "left", self.limit)
        if not self.finest:
            cost = cost.clone()
        cost[:, :, low - block.low :].masked_fill_(outside, -torch.inf)
        return cost.softmax(-1)

    def costs(self, first: int, last: int) -> Tensor:
        """Rows first ... last - 1 of the costs (R, w, w), of a scale that is not the finest."""
        return torch.cat(
            [
                held.blocks[0][max(first - held.first, 0) : last - held.first]
                for held in self.held
                if held.first < last and held.last > first
            ]
        )

    def logs(self, first: int, k: Tensor) -> Tensor:
        """Logarithm of M_right->left of the rows from `first` on, at columns k (1, R, w, n)."""
        last, found = first + k.shape[1], []
        assert self.held and self.held[0].first <= first, "these rows are forgotten"  # noqa: PT018
        for held in self.held:
            low, high = max(first, held.first), min(last, held.last)
            if low >= high:
                continue
            rows, at = slice(low - held.first, high - held.first), k[0, low - first : high - first]
            parts = [
                cost[rows].gather(-1, (at[:, b.first : b.last] - b.low).clamp(0, b.high - b.low - 1))
                for b, cost in zip(self.blocks, held.blocks, strict=True)
            ]
            found.append(torch.cat(parts, 1) - held.totals[rows, :, None])
        logs = torch.cat(found)[None]
        disparity = torch.arange(self.width, device=k.device)[:, None] - k
        beyond = disparity < 0
        if self.limit is not None:
            beyond |= disparity >= self.limit
        return logs.masked_fill_(beyond, IMPOSSIBLE)

    def forget(self, reader: int, before: int) -> None:
        super().forget(reader, before)
        while self.held and self.held[0].last <= self._first:
            del self.held[0]


@dataclass
class Settled:
    """What a scale hands on."""

    disparity: RollingMap
    """(1, 1, h, w), pixels of the scale."""
    hidden: RollingMap
    """(1, 48, h, w)."""
    attention: Attended


def settled(
    scale: Scale, described: RollingMap, attention: Attended, coarser: Settled | None = None
) -> Settled:
    """As `Scale.forward`."""
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
        theirs = Mapped(lambda d: 2 * d, Enlarged(coarser.disparity))
    d: RollingMap = Mapped(lambda found: found[:, :1], attention)
    for _ in range(scale.updates):
        seen = Seen(scale, d, theirs, attention, coarser)
        x = unit(joined(unit(seen, update.enc), context, hidden), update.mix)
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

    def _compute(self, first: int, last: int) -> Tensor:
        d, theirs = with_edges(self.d, first, last, self.scale.reach), None
        reach = self.scale.reach
        logs = [self._looked_up(first, d[:, reach:-reach, reach:-reach], REACH)]
        if self.coarser:
            disparity, looked = self.coarser
            theirs = with_edges(disparity, first, last, 1)
            logs += [looked(first, last), self._looked_up(first, theirs[:, 1:-1, 1:-1], NEAR_COARSER)]
            looked.forget(last)
        trust = self.found(first, last)[:, 1:].clone()
        trust[:, 1].clamp_(max=LARGEST_RECEIVED)
        self.found.forget(last)
        return self.scale.seen(d, theirs, logs, trust).contiguous(memory_format=MEMORY_FORMAT)

    def _looked_up(self, first: int, d: Tensor, reach: int) -> Tensor:
        k, share = columns_around(d, reach)
        return between_columns(self.attention.logs(first, k), share)


class LookedUp(RollingMap):
    """Attention of the coarser scale near the disparity (1, 9, h/2, w/2)."""

    def __init__(self, d: RollingMap, attention: Attended) -> None:
        super().__init__(d.height // 2, 2 * d.step, max(d.ahead, attention.ahead), d.strip)
        self.d, self.attention, self.found = d.reader(), attention, attention.reader()

    def _compute(self, first: int, last: int) -> Tensor:
        halved = F.avg_pool2d(self.d(2 * first, 2 * last), 2)[:, 0] / 2
        self.found(first, last)
        k, share = columns_around(halved, REACH)
        looked = between_columns(self.attention.logs(first, k), share)
        self.d.forget(2 * last)
        self.found.forget(last)
        return looked


class Mixed(RollingMap):
    """Disparity after an update (1, 1, h, w)."""

    def __init__(self, scale: Scale, d: RollingMap, theirs: RollingMap | None, mixing: RollingMap) -> None:
        super().__init__(d.height, d.step, max(mixing.ahead, d.ahead + scale.reach * d.step), d.strip)
        self.scale, self.d, self.mixing = scale, d.reader(), mixing.reader()
        self.theirs = None if theirs is None else theirs.reader()

    def _compute(self, first: int, last: int) -> Tensor:
        mixing = self.mixing(first, last)
        theirs = None if self.theirs is None else with_edges(self.theirs, first, last, 1)
        d = with_edges(self.d, first, last, self.scale.reach)
        self.mixing.forget(last)
        return mixed(self.scale.candidates(d, theirs), mixing)[:, None]


def with_edges(disparity: Reader, first: int, last: int, reach: int) -> Tensor:
    """Rows of a disparity and `reach` around them, as `edged` has them: (1, R + 2 reach, w + 2 reach)."""
    low, high = max(0, first - reach), min(last + reach, disparity.height)
    rows = disparity(low, high)
    disparity.forget(max(0, last - reach) if last < disparity.height else last)
    sides = reach, reach, reach - (first - low), reach - (high - last)
    return F.pad(rows, sides, mode="replicate")[:, 0]
