"""The symmetric attention of PASMnet 2, down the picture: what it says, and its costs while they are needed.

Shapes: h, w rows and columns of a scale, R rows of a strip of it; one pair at a time.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.parallax import out_of_order
from pamcli.networks.pasmnet import ParallaxAttentionBlock
from pamcli.networks.pasmnet2 import REACH, WINDOW, Stage, between_columns, expected_disparity
from pamcli.onednn import add_product, convolved
from pamcli.onednn import product as of_matrices
from pamcli.streaming.attention import Block, column_blocks, lines_at_once
from pamcli.streaming.matching import unit
from pamcli.streaming.rolling import Reader, Reads, RollingMap, added, coarser, read_all, strips
from pamcli.streaming.waiting import in_16_bits, of_16_bits

SMALLEST_TOTAL = 1e-30  # of the attention to a right column, of the most that a left pixel has to give

BEFORE, AFTER = 2 * REACH + 2, REACH + 1
"""Columns beside costs that are held: so what is looked up lies within them, wherever it begins."""

Product = tuple[Tensor, Tensor]
"""Weight (C + 1, C, 1, 1) and bias (C + 1) of a block's cost, see `product`."""


def lines_together(width: int) -> int:
    """Lines whose costs are made and used at a time: twice as many as elsewhere, for the steps are many."""
    return 2 * lines_at_once(width, width)


def product(block: ParallaxAttentionBlock, width: int) -> Product:
    """Form the layer L so that the cost of left features f and right ones f' is L f . (f', 1).

    With queries W f + w and keys V f + v it is (W f + w) . (V f' + v) + (V f + v) . (W f' + w), over 2C.
    """
    query, key = block.query[0], block.key[0]
    assert isinstance(query, nn.Conv2d) and isinstance(key, nn.Conv2d)  # noqa: PT018
    assert query.bias is not None and key.bias is not None  # noqa: PT018
    W, V = (layer.weight[:, :, 0, 0].double() for layer in (query, key))
    w, v = query.bias.double(), key.bias.double()
    vector = (W.T @ v + V.T @ w)[None]
    weight = torch.cat((W.T @ V + V.T @ W, vector))
    bias = torch.cat((vector[0], 2 * (w @ v)[None]))
    return (weight / (2 * width)).float()[..., None, None], (bias / (2 * width)).float()


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
    """(R, J, BEFORE + K + AFTER) each: the row's outermost beyond it. Where no pixel may look -inf, not so of
    a scale that a finer one enlarges. Of 16 bits: logarithms of the attention instead, see `in_16_bits`."""
    totals: Tensor
    """Logarithm of the sum over k of their exponentials (R, w), where a pixel may look."""


class Attended(RollingMap):
    """Disparity by the attention, the attention in its window, and that which is received: (1, 3, h, w).

    Beside these it holds the costs of the same rows.
    """

    unit = 2
    """The rows of a coarser scale's row are computed together."""

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
        # Many of its rows wait, and would take a fifth of the memory of strips.
        self.brief = finest and self.strip < self.height * self.step
        self.held: list[Costs] = []
        self._of_found: set[int] = set()

    def reader_of_found(self) -> Reader:
        """A place from which only what is found is read, not the costs."""
        self._of_found.add(len(self._needed))
        return self.reader()

    def _reads(self, last: int) -> Reads:
        coarse = [] if self.reader_of_coarser is None else [(self.reader_of_coarser, last // 2 + 1)]
        return [*((head, last) for head in self.heads), *coarse]

    def _compute(self, first: int, last: int) -> Tensor:
        parts = [part.float() for part in read_all(self.heads, first, last)]
        # As a convolution it takes half of the time of `F.linear`.
        lefts = [
            convolved(part[:1], *of).permute(0, 2, 3, 1)
            for part, of in zip(parts, self.products, strict=True)
        ]
        rights = [F.pad(part[1:].permute(0, 2, 3, 1), (0, 1, BEFORE, AFTER), value=1) for part in parts]
        left, right = (of[0][0] if len(of) == 1 else torch.cat(of, -1)[0] for of in (lefts, rights))
        outside = [self._outside(block, left) for block in self.blocks]
        new = left.new_empty((3, last - first, self.width))
        for low, high in strips(last - first, lines_together(self.width)):
            lines = slice(low, high)
            new[:, lines] = self._attend(first + low, left[lines], right[lines], outside)
        for head in self.heads:
            head.forget(last)
        return new[None]

    def _outside(self, block: Block, like: Tensor) -> Tensor:
        """What keeps pixels from looking where they may not: 0 or -inf (J, K), of the last K columns."""
        column = torch.arange(self.width, device=like.device)
        low = block.low if self.limit is not None else block.first  # to the left of it all may be looked at
        order = out_of_order(column[block.first : block.last], column[low : block.high], "left", self.limit)
        return like.new_zeros(order.shape).masked_fill_(order, -torch.inf)

    def _attend(self, first: int, left: Tensor, right: Tensor, outside: list[Tensor]) -> Tensor:
        """(3, R, w) of the rows from `first` on, whose costs are products of left and right.

        These are (R, w, C) and (R, BEFORE + w + AFTER, C).
        """
        rows, width, _ = left.shape
        coarse = None if self.coarser is None else self._coarse(first, first + rows)
        held, maps, found = [], [], left.new_empty((3, rows, width))
        totals = left.new_empty((rows, width))
        for block, mask in zip(self.blocks, outside, strict=True):
            rows_of = slice(block.first, block.last)
            padded = self._cost(block, left, right, coarse)
            padded[..., :BEFORE], padded[..., -AFTER:] = -torch.inf, -torch.inf
            seen_costs = padded if self.finest else padded.clone()
            seen_costs[..., -mask.shape[1] - AFTER : -AFTER] += mask
            attention = seen_costs.softmax(-1)
            largest, peak = attention.max(-1)
            totals[:, rows_of] = padded.gather(-1, peak[..., None])[..., 0] - largest.log()
            k = peak[..., None] + torch.arange(-WINDOW, WINDOW + 1, device=peak.device)
            near = windows(attention, k[..., 0], k.shape[-1])
            k += block.low - block.first - BEFORE
            found[0, :, rows_of], found[1, :, rows_of] = expected_disparity(near, k)
            maps.append(attention[..., BEFORE:-AFTER])
            cost = padded[..., BEFORE:-AFTER]
            if block.low == 0:
                padded[..., :BEFORE] = cost[..., :1]
            if block.high == width:
                padded[..., -AFTER:] = cost[..., -1:]
            held.append(in_16_bits(padded - totals[:, rows_of, None]) if self.brief else padded)
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

    def _coarse(self, first: int, last: int) -> Tensor:
        """The coarser scale's costs around these rows, k enlarged: (R/2 + 2, w/2 + 2, w), with edges."""
        assert self.coarser is not None and self.reader_of_coarser is not None  # noqa: PT018
        low, high = coarser(first, last, self.coarser.height)
        self.reader_of_coarser(low, high)
        costs = self.coarser.costs(low, high)
        self.reader_of_coarser.forget(self.coarser.height if last == self.height else low)
        around = torch.arange(first // 2 - low - 1, last // 2 - low + 1, device=costs.device)
        costs = costs.index_select(0, around.clamp_(0, len(costs) - 1))
        padded = F.pad(costs[None], (1, 1, 1, 1), mode="replicate")[0]
        wider = costs.new_empty((*padded.shape[:2], self.width))
        doubled_within(padded, 2, wider)
        return wider

    def _cost(self, block: Block, left: Tensor, right: Tensor, coarse: Tensor | None) -> Tensor:
        """Compute (R, J, BEFORE + K + AFTER), of no meaning before and after; `coarse`: see `_coarse`."""
        own = left[:, block.first : block.last]
        other = right[:, block.low : block.high + BEFORE + AFTER].mT
        if coarse is None:
            return of_matrices(own, other)
        around = coarse[:, block.first // 2 : block.last // 2 + 2, block.low : block.high]
        beside = coarse.new_empty((len(coarse), block.last - block.first, block.high - block.low))
        doubled_within(around, 1, beside)
        cost = coarse.new_empty((*own.shape[:2], other.shape[2]))
        doubled_within(beside, 0, cost[..., BEFORE:-AFTER])
        add_product(cost, own, other)
        return cost

    def costs(self, first: int, last: int) -> Tensor:
        """Rows first ... last - 1 of the costs (R, w, w), of a scale that is not the finest."""
        return torch.cat(
            [
                held.blocks[0][max(first - held.first, 0) : last - held.first, :, BEFORE:-AFTER]
                for held in self.held
                if held.first < last and held.last > first
            ]
        )

    def logs(self, first: int, k: Tensor, count: int) -> Tensor:
        """Logarithm of M_right->left of the rows from `first` on: (1, R, w, count).

        At `count` columns (at most `BEFORE`) from k (1, R, w) on, which may begin beyond the row.
        """
        last, found = first + k.shape[1], []
        assert self.held and self.held[0].first <= first, "these rows are forgotten"  # noqa: PT018
        for held in self.held:
            low, high = max(first, held.first), min(last, held.last)
            if low >= high:
                continue
            rows, at = slice(low - held.first, high - held.first), k[0, low - first : high - first]
            parts = [
                windows(cost[rows], at[:, b.first : b.last] - (b.low - BEFORE), count)
                for b, cost in zip(self.blocks, held.blocks, strict=True)
            ]
            near = torch.cat(parts, 1)
            found.append(of_16_bits(near) if self.brief else near - held.totals[rows, :, None])
        logs = torch.cat(found)
        if not self.finest:
            row, step = (torch.arange(many, device=k.device) for many in (self.width, count))
            columns = (k[0, ..., None] + step).clamp_(0, self.width - 1)
            logs.masked_fill_(out_of_order(row, columns, "left", self.limit), -torch.inf)
        return logs[None]

    def looked_up(self, first: int, disparity: Tensor, reach: int) -> Tensor:
        """What `pasmnet2.looked_up` finds of the rows from `first` on, whose disparity (1, R, w) is given."""
        position = torch.arange(self.width, device=disparity.device) - disparity
        before = position.floor()
        logs = self.logs(first, before.long() - reach, 2 * reach + 2)
        return between_columns(logs, (position - before)[..., None])

    def forget(self, reader: int, before: int) -> None:
        super().forget(reader, before)
        needed = [rows for number, rows in enumerate(self._needed) if number not in self._of_found]
        while self.held and self.held[0].last <= min(needed):
            del self.held[0]


def windows(values: Tensor, first: Tensor, count: int) -> Tensor:
    """`count` values of each row (R, J, K), side by side, from column `first` (R, J) on: (R, J, count)."""
    rows, width, columns = values.shape
    row = torch.arange(0, values.numel(), columns, device=values.device).view(rows, width)
    at = first.clamp(0, columns - count) + row
    overlapping = values.as_strided((values.numel() - count + 1, count), (1, 1))
    return overlapping.index_select(0, at.flatten()).view(rows, width, count)


def doubled_within(x: Tensor, dim: int, into: Tensor) -> None:
    """Enlarge by 2, linearly, along a dimension, all but its ends: from (n + 2) to (2n) values."""
    size = x.shape[dim] - 2
    before, here, after = (x.narrow(dim, start, size) for start in range(3))
    even, odd = torch.unflatten(into, dim, (size, 2)).unbind(dim + 1)
    torch.lerp(before, here, 0.75, out=even)
    torch.lerp(here, after, 0.25, out=odd)
