"""PASMnet 2 in strips gives PASMnet 2's results."""

from __future__ import annotations

import pytest
import torch
from in_strips import matched, matched_whole
from random_networks import normalised, pasmnet2, picture_pair

from pamcli.networks.parallax import received_mass
from pamcli.streaming import attention as streamed_attention
from pamcli.streaming import pasmnet2 as module
from pamcli.streaming.matching import lowered
from pamcli.streaming.pasmnet2 import KeptAttention, StreamedPASMnet2
from pamcli.streaming.rolling import folded

SIZES = [(32, 32), (32, 160), (64, 96), (224, 32), (352, 64)]


@pytest.fixture(scope="module")
def streamed() -> StreamedPASMnet2:
    return StreamedPASMnet2(folded(pasmnet2()))


@pytest.mark.parametrize("prior", [None, 16, 48])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_strips_of_any_height_give_the_plain_result(
    streamed: StreamedPASMnet2, height: int, width: int, prior: int | None
) -> None:
    views = normalised(picture_pair(height, width))
    expected = matched_whole(pasmnet2(), views, prior)
    mass = received_mass(expected.maps[-1].left_to_right)
    for strip in (32, 96, None):
        found = matched(streamed, views, prior, strip, confidence=True)
        assert found.disparity.dtype == torch.float32
        assert (found.disparity - expected.disparity).abs().max() < 2e-3
        assert ((found.received - mass).abs() / mass.clamp(min=1)).max() < 1e-4
        assert found.confidence is not None
        assert expected.confidence is not None
        assert (found.confidence - expected.confidence).abs().max() < 1e-4


@pytest.mark.parametrize("map_bytes", [1, 10**9])
def test_how_many_lines_are_looked_at_at_once_does_not_matter(
    streamed: StreamedPASMnet2, map_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = normalised(picture_pair(288, 64))
    expected = matched_whole(pasmnet2(), views, None)
    monkeypatch.setattr(streamed_attention, "MAP_BYTES", map_bytes)
    for strip in (32, None):
        assert (matched(streamed, views, None, strip).disparity - expected.disparity).abs().max() < 2e-3


def test_no_more_rows_of_attention_are_kept_than_are_looked_up(
    streamed: StreamedPASMnet2, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = normalised(picture_pair(480, 32))
    monkeypatch.setattr(streamed_attention, "MAP_BYTES", 1)
    matched(streamed, views, None, 32)
    monkeypatch.setattr(module, "LAG", module.LAG - 16)
    with pytest.raises(AssertionError, match="forgotten"):
        matched(streamed, views, None, 32)


def test_what_no_pixel_may_look_at_is_zero_in_what_is_kept() -> None:
    attention = torch.rand(3, 40, 40)
    for limit in (None, 6):
        kept = KeptAttention(40, limit, 3, attention)
        for block in kept.places:
            kept.keep((6, 9), block, attention[:, block.first : block.last, block.low : block.high])
        k = torch.arange(40).expand(1, 2, 40, 40)
        found = kept.at(7)(k)[0]
        column = torch.arange(40)
        near = column[:, None] - column
        wanted = (near >= 0) & (near < (limit or 40))
        assert torch.equal(found[:, wanted], attention[1:, wanted])
        assert ((found == attention[1:]) | (found == 0)).all()
    with pytest.raises(AssertionError, match="forgotten"):
        kept.at(5)


def test_a_lower_precision_is_near_and_leaves_disparity_in_float32() -> None:
    views = normalised(picture_pair(64, 96))
    found = matched(StreamedPASMnet2(lowered(folded(pasmnet2()), torch.bfloat16)), views, None, 32, True)
    assert found.disparity.dtype == torch.float32
    assert (found.disparity - matched_whole(pasmnet2(), views, None).disparity).abs().median() < 2
