"""PASMnet 2 in strips gives PASMnet 2's results."""

from __future__ import annotations

import pytest
import torch
from in_strips import matched, matched_whole
from random_networks import normalised, pasmnet2, picture_pair

from pamcli.streaming.pasmnet2 import StreamedPASMnet2
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
    mass = expected.scales[-1].received
    for strip in (32, 96, None):
        found = matched(streamed, views, prior, strip, confidence=True)
        assert found.disparity.dtype == torch.float32
        assert (found.disparity - expected.disparity).abs().max() < 2e-3
        assert ((found.received - mass).abs() / mass.clamp(min=1)).max() < 1e-4
        assert found.confidence is not None
        assert (found.confidence - expected.confidence).abs().max() < 1e-4
