"""Parallax attention whose maps are never held: only what is asked of them, a few rows at a time.

Rows of an attention map are independent of each other (an epipolar line each), and what follows needs of a
row its expectation, its product with features, and its column sums. So costs are computed for a few
epipolar lines, made into attention, used, and forgotten.

Shapes: R rows of a strip, W columns of this view, V of the other; the batch is one pair.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.parallax import Towards, out_of_order
from pamcli.streaming.rolling import coarser

MAP_BYTES = 12_000_000
"""Bytes of the piece of an attention map that is looked at at a time: it should stay in the cache."""

COLUMN_BLOCKS = {0: 4, 640: 8}
"""An ordered map is a triangle; in so many blocks of rows of it, by its least width, about half of the square
is left out."""


@dataclass(frozen=True)
class Block:
    """Pixels first ... last - 1 of this view, and columns low ... high - 1 of the other that they may see."""

    first: int
    last: int
    low: int
    high: int


def column_block_count(width: int) -> int:
    """In how many blocks an ordered map of that many columns is looked at."""
    return max(blocks for least, blocks in COLUMN_BLOCKS.items() if width >= least)


def column_blocks(width: int, other: int, towards: Towards | None, limit: int | None) -> Iterator[Block]:
    """Blocks that cover an attention map, without the columns that no pixel of the block may see.

    `towards`, `limit` (a maximum disparity in pixels of this scale): as in `parallax.attention`.
    """
    if towards is None:
        yield Block(0, width, 0, other)
        return
    size = -(-width // column_block_count(width))
    if limit is not None:
        size = max(16, min(limit, size))
    for first in range(0, width, size):
        last = min(first + size, width)
        if towards == "left":  # k <= j, j - k < limit
            yield Block(first, last, 0 if limit is None else max(0, first - limit + 1), min(last, other))
        else:  # k >= j, k - j < limit
            yield Block(first, last, first, other if limit is None else min(other, last + limit - 1))


@dataclass(frozen=True)
class CostStage:
    """Queries and keys of one scale, of a run of rows."""

    query: Tensor
    """(R, W, C) float32."""
    key: Tensor
    """(R, V, C) float32."""
    first_row: int
    """Row of the picture at this scale that the tensors begin with."""
    height: int
    """Rows of the whole picture at this scale."""


def query_of_keys(query: nn.Module, key: nn.Module, divisor: int = 1) -> tuple[Tensor, Tensor]:
    """Weight (C, C, 1, 1) and bias (C) of the 1x1 layer that makes queries of which features are the keys.

    The cost q . k of two pixels with features f, f' is (Wq f + bq) . (Wk f' + bk). What of it depends on f
    alone is the same for all k, and the softmax over k takes no notice. So f' itself is the key, and
    Wk^T (Wq f + bq) the query, divided by `divisor`.
    """
    assert isinstance(query, nn.Conv2d) and isinstance(key, nn.Conv2d)  # noqa: PT018
    assert query.bias is not None
    back = key.weight[:, :, 0, 0].double().T / divisor
    weight, bias = back @ query.weight[:, :, 0, 0].double(), back @ query.bias.double()
    return weight[:, :, None, None].to(query.weight.dtype), bias.to(query.weight.dtype)


def stage_cost(stages: tuple[CostStage, ...], rows: tuple[int, int], block: Block) -> Tensor:
    """Matching cost (R, J, K) of the last stage: its own product, and the enlarged cost of the stages before.

    Trilinear enlargement over rows and the columns of both views (Figure 7b), of no more than is needed.
    """
    *coarse, fine = stages
    at = slice(rows[0] - fine.first_row, rows[1] - fine.first_row)
    query = fine.query[at, block.first : block.last]
    key = fine.key[at, block.low : block.high].transpose(1, 2)
    if not coarse:
        return torch.bmm(query, key)
    width, other = coarse[-1].query.shape[1], coarse[-1].key.shape[1]
    row0, row1 = coarser(*rows, coarse[-1].height)
    j0, j1 = coarser(block.first, block.last, width)
    k0, k1 = coarser(block.low, block.high, other)
    cost = stage_cost(tuple(coarse), (row0, row1), Block(j0, j1, k0, k1))
    enlarged = enlarged_cost(cost)[
        rows[0] - 2 * row0 : rows[1] - 2 * row0,
        block.first - 2 * j0 : block.last - 2 * j0,
        block.low - 2 * k0 : block.high - 2 * k0,
    ]
    return torch.bmm(query, key).add_(enlarged)


def enlarged_cost(cost: Tensor) -> Tensor:
    """Trilinear enlargement by 2, (R, J, K) -> (2 R, 2 J, 2 K).

    In a third of the time that torch's own takes: over the rows first, while the other two are small.
    """
    rows = cost.new_empty((2 * len(cost), *cost.shape[1:]))
    rows[0], rows[-1] = cost[0], cost[-1]
    torch.lerp(cost[:-1], cost[1:], 0.25, out=rows[1:-1:2])
    torch.lerp(cost[:-1], cost[1:], 0.75, out=rows[2::2])
    return F.interpolate(rows[None], scale_factor=2, mode="bilinear", align_corners=False)[0]


def attention_block(cost: Tensor, block: Block, towards: Towards | None, limit: int | None) -> Tensor:
    """Attention (R, J, K) of a block from its cost, which is overwritten; zero outside of the order."""
    if towards is not None:
        j = torch.arange(block.first, block.last, device=cost.device)
        k = torch.arange(block.low, block.high, device=cost.device)
        cost = cost.masked_fill_(out_of_order(j, k, towards, limit), -torch.inf)
    return torch.softmax(cost, -1)


def lines_at_once(width: int, other: int) -> int:
    """Epipolar lines whose map (of two directions) has about `MAP_BYTES`; a multiple of 4, at least 4."""
    return max(4, MAP_BYTES // (4 * width * other) // 4 * 4)


def line_bytes(width: int, *, ordered: bool) -> int:
    """Pieces of a line's map: enlarged coarser costs, before and after they are cut; costs; attention."""
    return 4 * 4 * width**2 // (column_block_count(width) if ordered else 1)


Cost = Callable[[tuple[int, int], Block], Tensor]
"""cost(rows, block): matching cost (R, J, K) float32 of some epipolar lines, which may be overwritten."""

Use = Callable[[tuple[int, int], Block, Tensor], None]
"""use(rows, block, attention (R, J, K)): what is done with a piece of an attention map."""


def stream(
    cost: Cost,
    rows: tuple[int, int],
    width: int,
    other: int,
    towards: Towards | None,
    limit: int | None,
    use: Use,
) -> None:
    """Pass all attention of the epipolar lines `rows` (first, last) to `use`, piece by piece."""
    step = lines_at_once(width, other)
    for first in range(rows[0], rows[1], step):
        lines = first, min(first + step, rows[1])
        for block in column_blocks(width, other, towards, limit):
            use(lines, block, attention_block(cost(lines, block), block, towards, limit))
