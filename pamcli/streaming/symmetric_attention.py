"""The symmetric attention of PASMnet 2, down the picture: what it says, and its costs while they are needed.

Shapes: h, w rows and columns of a scale, R rows of a strip of it; one pair at a time.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.parallax import out_of_order
from pamcli.networks.pasmnet import ParallaxAttentionBlock
from pamcli.networks.pasmnet2 import IMPOSSIBLE, Stage, columns_of_window, expected_disparity
from pamcli.streaming.attention import Block, column_blocks, enlarged_cost, lines_at_once
from pamcli.streaming.matching import unit
from pamcli.streaming.rolling import RollingMap, added, coarser, read_all, strips

SMALLEST_TOTAL = 1e-30  # of the attention to a right column, of the most that a left pixel has to give

Product = tuple[Tensor, Tensor, Tensor]
"""Weight (C, C), bias (C) and constant (1) of a block's cost, see `product`."""


def product(block: ParallaxAttentionBlock, width: int) -> Product:
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
