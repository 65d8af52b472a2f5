"""PASMnet 2 in strips gives PASMnet 2's results."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from in_strips import matched
from random_networks import normalised, pasmnet2, picture_pair
from torch import Tensor, nn

from pamcli.networks.pasmnet import ParallaxAttentionBlock
from pamcli.networks.pasmnet2 import PASMnet2Matching
from pamcli.streaming.matching import lowered
from pamcli.streaming.pasmnet2 import Attended, StreamedPASMnet2, product
from pamcli.streaming.rolling import Given, folded
from pamcli.streaming.symmetric_attention import windows

SIZES = [(32, 32), (32, 160), (64, 96), (224, 32), (352, 64), (1184, 32)]
"""Heights and widths; the last is higher than what any row of the disparity depends on."""


@pytest.fixture(scope="module")
def streamed() -> StreamedPASMnet2:
    return StreamedPASMnet2(folded(pasmnet2()))


def views_of(height: int, width: int) -> Tensor:
    return normalised(picture_pair(height, width))


@cache
def plain(height: int, width: int, prior: int | None) -> PASMnet2Matching:
    views = views_of(height, width)
    with torch.inference_mode():
        found: PASMnet2Matching = pasmnet2()(views[:1], views[1:], prior)
    return found


@pytest.mark.parametrize("prior", [None, 16, 48])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_strips_of_any_height_give_the_plain_result(
    streamed: StreamedPASMnet2, height: int, width: int, prior: int | None
) -> None:
    expected = plain(height, width, prior)
    mass = expected.scales[-1].received
    for strip in (32, 96, None):
        found = matched(streamed, views_of(height, width), prior, strip, confidence=True)
        assert found.disparity.dtype == torch.float32
        assert (found.disparity - expected.disparity).abs().max() < 2e-3
        assert ((found.received - mass).abs() / mass.clamp(min=1)).max() < 1e-4
        assert found.confidence is not None
        assert (found.confidence - expected.confidence).abs().max() < 1e-4


@pytest.mark.parametrize("map_bytes", [1, 10**9])
def test_how_many_lines_are_looked_at_at_once_does_not_matter(
    streamed: StreamedPASMnet2, map_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pamcli.streaming.attention.MAP_BYTES", map_bytes)
    for strip in (32, None):
        found = matched(streamed, views_of(352, 64), None, strip)
        assert (found.disparity - plain(352, 64, None).disparity).abs().max() < 2e-3


def test_few_lines_of_costs_are_held(streamed: StreamedPASMnet2, monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[float, int] = {}
    attend = Attended._attend

    def noted(self: Attended, *given: Tensor) -> Tensor:
        found: Tensor = attend(self, *given)
        lines = self.held[-1].last - self.held[0].first
        held[self.step] = max(lines, held.get(self.step, 0))
        return found

    monkeypatch.setattr(Attended, "_attend", noted)
    monkeypatch.setattr("pamcli.streaming.attention.MAP_BYTES", 1)
    matched(streamed, views_of(1184, 32), None, 32)
    assert held == {16: 62, 8: 44, 4: 64}
    assert all(lines < 1184 / step for step, lines in held.items())


def test_the_cost_of_features_alone_is_that_of_queries_and_keys() -> None:
    torch.manual_seed(0)
    block = ParallaxAttentionBlock(8)
    for norm in (block.query[1], block.key[1]):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    block = folded(nn.Sequential(block))[0]
    assert isinstance(block, ParallaxAttentionBlock)
    views = torch.randn(2, 8, 1, 5)
    _, queries, keys = block(views)
    query, key = (x[:, :, 0] for x in (queries, keys))
    expected = (query[0].T @ key[1] + key[0].T @ query[1]) / 16
    left, right = block.head(views)[:, :, 0].mT
    weight, bias = product(block, 8)
    found = F.linear(left, weight[..., 0, 0], bias) @ F.pad(right, (0, 1), value=1).T
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("limit", [None, 6])
@pytest.mark.parametrize("finest", [True, False])
def test_costs_that_are_looked_up_become_the_attention(finest: bool, limit: int | None) -> None:
    heads = torch.randn(2, 8, 12, 40, generator=torch.Generator().manual_seed(0))
    identity = torch.eye(9)[:, :8, None, None], torch.zeros(9)
    attended = Attended([Given(lambda a, b: heads[:, :, a:b], 12)], [identity], 40, limit, None, finest)
    reader = attended.reader()
    found = reader(0, 12)
    cost = torch.einsum("chj,chk->hjk", *heads)
    column = torch.arange(40)
    disparity = column[:, None] - column
    beyond = (disparity < 0) | (disparity >= (limit or 40))
    logs = cost.masked_fill(beyond, -torch.inf).log_softmax(-1)
    logs = F.pad(logs, (9, 0), mode="replicate")  # beyond the row its outermost column counts
    for reach in range(-9, 40):
        k = (column - reach).clamp(-9, 38).expand(1, 5, 40)
        looked = attended.logs(3, k, 2)[0]
        expected = windows(logs[3:8].contiguous(), k[0] + 9, 2)
        assert torch.allclose(looked.exp(), expected.exp(), atol=1e-6)
        assert torch.allclose(looked[expected.isfinite()], expected[expected.isfinite()], atol=1e-4)
    received = cost.masked_fill(beyond, -torch.inf).softmax(-2).sum(-1)
    assert torch.allclose(found[0, 2], received, atol=1e-5)
    if not finest:  # what a finer scale enlarges is the cost itself
        assert torch.allclose(attended.costs(2, 9), cost[2:9], atol=1e-5)
    reader.forget(12)
    with pytest.raises(AssertionError, match="forgotten"):
        attended.logs(3, k, 2)


def test_a_lower_precision_is_near_and_leaves_disparity_in_float32() -> None:
    network = StreamedPASMnet2(folded(pasmnet2()), torch.bfloat16)
    found = matched(network, views_of(64, 96), None, 32, True)
    assert found.disparity.dtype == torch.float32
    assert (found.disparity - plain(64, 96, None).disparity).abs().median() < 2
    kinds = {value.dtype for key, value in network.network.state_dict().items() if key.startswith("E0.")}
    assert kinds == {torch.float32}
    assert network.network.E1.body[0][0].weight.dtype == torch.bfloat16
    assert {tensor.dtype for _, products in network.stages for each in products for tensor in each} == {
        torch.float32
    }


def test_lowering_leaves_the_layer_that_reads_the_pictures_as_it_is() -> None:
    exact, network = folded(pasmnet2()), folded(pasmnet2())
    lower = lowered(network, torch.bfloat16)
    assert torch.equal(lower.E0[0].weight, exact.E0[0].weight)
    assert lower.s3.upd.out.weight.dtype == torch.bfloat16


def test_there_is_progress_with_every_strip(streamed: StreamedPASMnet2) -> None:
    told: list[float] = []
    views = views_of(1184, 32)
    with torch.inference_mode():
        streamed.match(lambda a, b: views[:, :, a:b], 1184, 32, strip=96, progress=told.append)
    assert told == sorted(told)
    assert len(told) >= 1184 // 96
    assert told[-1] == 1
