"""Attention piece by piece is attention at once."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pamcli.networks.parallax import attention
from pamcli.streaming import attention as streamed_attention
from pamcli.streaming.attention import (
    Block,
    CostStage,
    Towards,
    attention_block,
    column_blocks,
    enlarged_cost,
    lines_at_once,
    stage_cost,
    stream,
)
from pamcli.streaming.rolling import coarser


def allowed(j: int, k: int, towards: Towards | None, limit: int | None) -> bool:
    disparity = {"left": j - k, "right": k - j, None: 0}[towards]
    return disparity >= 0 and (limit is None or towards is None or disparity < limit)


@pytest.mark.parametrize("towards", ["left", "right", None])
@pytest.mark.parametrize("limit", [None, 1, 2, 4, 5, 16, 100])
def test_column_blocks_hold_all_that_may_be_seen_and_each_pixel_once(
    towards: Towards | None, limit: int | None
) -> None:
    for width in [*range(1, 40), 70]:
        blocks = list(column_blocks(width, width, towards, limit))
        assert [j for block in blocks for j in range(block.first, block.last)] == list(range(width))
        for block in blocks:
            needed = {
                k
                for j in range(block.first, block.last)
                for k in range(width)
                if allowed(j, k, towards, limit)
            }
            assert (block.low, block.high) == (min(needed), max(needed) + 1)


def test_an_ordered_map_leaves_out_almost_half_of_the_square() -> None:
    area = sum((b.last - b.first) * (b.high - b.low) for b in column_blocks(80, 80, "left", None))
    assert area <= 0.63 * 80 * 80
    banded = sum((b.last - b.first) * (b.high - b.low) for b in column_blocks(480, 480, "right", 48))
    assert banded <= 0.2 * 480 * 480


@pytest.mark.parametrize("towards", ["left", "right", None])
@pytest.mark.parametrize("limit", [None, 3, 8])
def test_a_block_is_its_part_of_the_map(towards: Towards | None, limit: int | None) -> None:
    cost = torch.randn(1, 3, 30, 30, generator=torch.Generator().manual_seed(0)) * 4
    expected = attention(cost, towards, limit)[0]
    for block in column_blocks(30, 30, towards, limit):
        rows, columns = slice(block.first, block.last), slice(block.low, block.high)
        found = attention_block(cost[0, :, rows, columns].clone(), block, towards, limit)
        assert (found - expected[:, rows, columns]).abs().max() < 1e-6
        beyond = expected[:, rows].clone()
        beyond[..., columns] = 0
        assert torch.all(beyond == 0)


def cascade(height: int, width: int) -> tuple[list[Tensor], list[Tensor]]:
    """Queries and keys (R, W, C) of three stages for `height` x `width` pixels of the last."""
    random = torch.Generator().manual_seed(height * width)
    sizes = [(-(-height // s), -(-width // s)) for s in (4, 2, 1)]
    queries, keys = ([torch.randn(h, w, 6, generator=random) for h, w in sizes] for _ in range(2))
    return queries, keys


def plain_cost(queries: list[Tensor], keys: list[Tensor]) -> Tensor:
    cost: Tensor | None = None
    for query, key in zip(queries, keys, strict=True):
        product = torch.einsum("rwc,rvc->rwv", query, key)
        if cost is not None:
            product = product + F.interpolate(cost[None, None], scale_factor=2, mode="trilinear")[0, 0]
        cost = product
    assert cost is not None
    return cost


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5, 3), (2, 1, 7), (6, 9, 4)])
def test_the_enlargement_is_trilinear(shape: tuple[int, int, int]) -> None:
    cost = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = F.interpolate(cost[None, None], scale_factor=2, mode="trilinear", align_corners=False)[0, 0]
    assert (enlarged_cost(cost) - expected).abs().max() < 1e-6


@pytest.mark.parametrize(("height", "width"), [(4, 4), (8, 16), (12, 8), (20, 24)])
def test_the_cost_of_some_lines_and_columns_is_cut_out_of_the_whole(height: int, width: int) -> None:
    queries, keys = cascade(height, width)
    whole = plain_cost(queries, keys)
    heights = [len(query) for query in queries]
    for first, last in ((0, height), (0, 1), (1, 4), (3, 4), (height - 3, height)):
        rows = [(first, last)]
        for stage_height in reversed(heights[:-1]):
            rows.insert(0, coarser(*rows[0], stage_height))
        stages = tuple(
            CostStage(q[low:high], k[low:high], low, h)
            for q, k, (low, high), h in zip(queries, keys, rows, heights, strict=True)
        )
        for block in (
            Block(0, width, 0, width),
            Block(1, 4, 0, 3),
            Block(width - 3, width, 2, width),
            Block(2, 3, width - 1, width),
        ):
            found = stage_cost(stages, (first, last), block)
            expected = whole[first:last, block.first : block.last, block.low : block.high]
            assert found.shape == expected.shape
            assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("towards", ["left", "right", None])
@pytest.mark.parametrize("map_bytes", [1, 20_000, 10**9])
def test_every_line_and_column_is_passed_once(
    towards: Towards | None, map_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_attention, "MAP_BYTES", map_bytes)
    queries, keys = cascade(16, 24)
    stages = tuple(CostStage(q, k, 0, len(q)) for q, k in zip(queries, keys, strict=True))
    expected = attention(plain_cost(queries, keys)[None], towards)[0]
    found, times = torch.zeros_like(expected), torch.zeros(16, 24)

    def use(lines: tuple[int, int], block: Block, piece: Tensor) -> None:
        found[slice(*lines), block.first : block.last, block.low : block.high] = piece
        times[slice(*lines), block.first : block.last] += 1

    stream(partial(stage_cost, stages), (4, 15), 24, 24, towards, None, use)
    assert torch.all(times[4:15] == 1)
    assert times.sum() == 11 * 24
    assert (found - expected)[4:15].abs().max() < 1e-5


@pytest.mark.parametrize("width", [1, 24, 312, 1920, 10_000])
def test_lines_come_in_fours_and_stay_small(width: int) -> None:
    lines = lines_at_once(width, width)
    assert lines % 4 == 0
    assert lines >= 4
    assert lines == 4 or 4 * lines * width**2 <= streamed_attention.MAP_BYTES
