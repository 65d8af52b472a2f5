"""PASMnet in strips gives PASMnet's results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from in_strips import matched, matched_whole
from random_networks import normalised, pasmnet, picture_pair
from reference import reference_matching
from torch import Tensor

from pamcli import winograd
from pamcli.networks.parallax import VALID_MASS, clean_mask, cycle_confidence, received_mass
from pamcli.streaming import attention as streamed_attention
from pamcli.streaming.matching import lowered
from pamcli.streaming.pasmnet import StreamedPASMnet
from pamcli.streaming.rolling import folded

SIZES = [(32, 32), (32, 160), (64, 96), (96, 64), (160, 96), (224, 32)]


@pytest.fixture(scope="module")
def streamed() -> StreamedPASMnet:
    return StreamedPASMnet(folded(pasmnet()))


@pytest.mark.parametrize("prior", [None, 16, 32, 64])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_strips_of_any_height_give_the_plain_result(
    streamed: StreamedPASMnet, height: int, width: int, prior: int | None
) -> None:
    views = normalised(picture_pair(height, width))
    expected = matched_whole(pasmnet(), views, prior)
    mass = received_mass(expected.maps[-1].left_to_right)
    for strip in (32, 64, 96, None):
        found = matched(streamed, views, prior, strip, confidence=True)
        assert found.disparity.dtype == torch.float32
        assert (found.disparity - expected.disparity).abs().max() < 1e-3
        # Of what little a pixel near the threshold receives, and of the sums of many larger shares.
        assert ((found.received - mass).abs() / mass.clamp(min=1)).max() < 1e-5
        unsure = (mass - VALID_MASS).abs() < 1e-5
        assert torch.equal((found.received > VALID_MASS) | unsure, (mass > VALID_MASS) | unsure)
        if not unsure.any():
            assert torch.equal(found.valid_left, expected.maps[-1].valid_left)
        assert found.confidence is not None
        sure = cycle_confidence(expected.disparity, expected.maps[-1])
        assert (found.confidence - sure).abs().max() < 1e-5


def test_the_prior_and_the_mask_matter_in_these_tests() -> None:
    views = normalised(picture_pair(64, 96))
    expected = matched_whole(pasmnet(), views, None)
    assert (matched_whole(pasmnet(), views, 32).disparity - expected.disparity).abs().max() > 1
    assert 0.05 < expected.maps[-1].valid_left.float().mean() < 0.95


def test_it_equals_the_authors_order_of_operations(streamed: StreamedPASMnet) -> None:
    views = normalised(picture_pair(64, 96, seed=8))
    with torch.inference_mode():
        reference = reference_matching(pasmnet(), views[:1], views[1:])
    found = matched(streamed, views, None, 32)
    assert (found.disparity - reference.disparity).abs().max() < 1e-3
    assert torch.equal(found.valid_left, reference.stages[-1].valid_left)


@pytest.mark.parametrize("map_bytes", [1, 10**9])
def test_how_many_lines_are_looked_at_at_once_does_not_matter(
    streamed: StreamedPASMnet, map_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = normalised(picture_pair(96, 64))
    expected = matched_whole(pasmnet(), views, None)
    monkeypatch.setattr(streamed_attention, "MAP_BYTES", map_bytes)
    for strip in (32, None):
        found = matched(streamed, views, None, strip, confidence=True)
        assert (found.disparity - expected.disparity).abs().max() < 1e-3
        assert found.confidence is not None
        sure = cycle_confidence(expected.disparity, expected.maps[-1])
        assert (found.confidence - sure).abs().max() < 1e-5


@pytest.mark.parametrize("strip", [32, 64, None])
def test_at_the_threshold_of_the_valid_mask(
    streamed: StreamedPASMnet, strip: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threshold is moved onto one pixel's own sum, then a hair to either side of it."""
    views = normalised(picture_pair(64, 96))
    mass = received_mass(matched_whole(pasmnet(), views, None).maps[-1].left_to_right)
    ordered = mass.flatten().sort().values
    gaps = ordered[1:] - ordered[:-1]
    near = (ordered[:-1] - VALID_MASS).abs() + (gaps < 4e-5) * 10
    place = int(near.argmin())
    below, above = float(ordered[place]), float(ordered[place + 1])
    assert above - below >= 4e-5
    for threshold, share in ((below - 1e-5, 0), (below + 1e-5, 1), (above - 1e-5, 1)):
        monkeypatch.setattr("pamcli.networks.parallax.VALID_MASS", threshold)
        found = matched(streamed, views, None, strip)
        assert int((found.received <= threshold).sum()) == place + share
        assert torch.equal(found.received > threshold, mass > threshold)
        assert torch.equal(found.valid_left, clean_mask(mass > threshold))


def test_exactly_at_the_threshold_a_pixel_is_not_valid(
    streamed: StreamedPASMnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = normalised(picture_pair(64, 96))
    received = matched(streamed, views, None, 32).received
    threshold = float(received[0, 8, 12])
    seen: list[Tensor] = []
    monkeypatch.setattr("pamcli.networks.parallax.VALID_MASS", threshold)
    monkeypatch.setattr("pamcli.networks.parallax.clean_mask", lambda valid, _: seen.append(valid) or valid)
    matched(streamed, views, None, 32)
    assert not seen[0][0, 8, 12]
    assert torch.equal(seen[0], received > threshold)


def test_attention_in_float32_in_any_precision_of_the_network() -> None:
    views = normalised(picture_pair(64, 96))
    half = StreamedPASMnet(folded(pasmnet()).bfloat16())
    found = matched(half, views.bfloat16(), None, 32, confidence=True)
    assert found.confidence is not None
    for values in (found.disparity, found.received, found.confidence):
        assert values.dtype == torch.float32
        assert torch.isfinite(values).all()
    # Column sums of softmax rows: a float32 softmax's sum to the number of rows to many digits.
    assert torch.allclose(found.received.sum(-1), torch.tensor(24.0), atol=1e-4)


def test_a_lower_precision_spares_the_layer_that_reads_the_pictures() -> None:
    network = folded(pasmnet())
    first = network.hourglass.E0.body[0][0].weight.clone()
    lower = lowered(network, torch.bfloat16)
    kept = {key for key, value in lower.state_dict().items() if value.dtype == torch.float32}
    assert {key.rsplit(".", 1)[0] for key in kept} == {"hourglass.E0.body.0.0"}
    assert torch.equal(lower.hourglass.E0.body[0][0].weight, first)
    views = normalised(picture_pair(64, 96))
    assert matched(StreamedPASMnet(lower), views, None, 32).disparity.isfinite().all()


def test_channels_lie_side_by_side_wherever_a_convolution_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other layout takes the large layers three times as long."""
    seen: list[bool] = []
    convolve = F.conv2d

    def noted(x: Tensor, weight: Tensor, *rest: Any, **named: Any) -> Tensor:
        if weight.shape[1] > 1:  # not the cleaning of masks
            seen.append(x.stride(1) == 1)
        return convolve(x, weight, *rest, **named)

    monkeypatch.setattr(F, "conv2d", noted)
    monkeypatch.setattr(winograd, "_library", lambda: None)
    streamed = StreamedPASMnet(folded(pasmnet()))
    matched(streamed, normalised(picture_pair(64, 96)), None, 32)
    assert len(seen) > 100
    assert all(seen)


def test_the_network_itself_is_left_alone() -> None:
    network = pasmnet()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    views = normalised(picture_pair(32, 64))
    expected = matched_whole(pasmnet(), views, None)
    matched(StreamedPASMnet(folded(network)), views, None, 32)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert torch.equal(matched_whole(pasmnet(), views, None).disparity, expected.disparity)


def test_the_confidence_matters_in_these_tests() -> None:
    views = normalised(picture_pair(64, 96))
    expected = matched_whole(pasmnet(), views, None)
    sure = cycle_confidence(expected.disparity, expected.maps[-1])
    assert (sure - cycle_confidence(expected.disparity + 8, expected.maps[-1])).abs().max() > 0.01
