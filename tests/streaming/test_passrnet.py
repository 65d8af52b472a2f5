"""PASSRnet in strips gives PASSRnet's pictures."""

from __future__ import annotations

import pytest
import torch
from in_strips import enlarged
from random_networks import passrnet, picture_pair
from reference import reference_super_resolution
from torch import Tensor

from pamcli.networks.parallax import VALID_MASS, received_mass
from pamcli.networks.passrnet import PASSRnet
from pamcli.streaming import attention as streamed_attention
from pamcli.streaming.passrnet import StreamedPASSRnet
from pamcli.streaming.rolling import folded

SIZES = [(8, 8), (9, 31), (7, 50), (33, 20), (61, 17)]


def run(scale: int, views: Tensor, strip: int | None, both: bool = True) -> Tensor:
    return enlarged(StreamedPASSRnet(folded(passrnet(scale))), views, strip, both)


@pytest.mark.parametrize("scale", [2, 4])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_strips_of_any_height_give_the_plain_pictures(scale: int, height: int, width: int) -> None:
    views = picture_pair(height, width, shift=3)
    with torch.inference_mode():
        plain = passrnet(scale)(views[:1], views[1:], both=True)
    for mass in (received_mass(plain.maps.left_to_right), received_mass(plain.maps.right_to_left)):
        assert not ((mass - VALID_MASS).abs() < 1e-5).any()
    expected = torch.cat((plain.left, plain.right))
    for strip in (1, 2, 5, 16, None):
        found = run(scale, views, strip)
        assert (found - expected).abs().max() < 1e-5
    assert (run(scale, views, 16, both=False) - plain.left).abs().max() < 1e-5


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
def test_the_last_layers_as_one_at_every_scale(scale: int) -> None:
    torch.manual_seed(scale)
    network = folded(PASSRnet(scale))
    views = picture_pair(9, 13, shift=3)
    found = enlarged(StreamedPASSRnet(network), views, 4, both=False)
    with torch.inference_mode():
        expected = network(views[:1], views[1:]).left
    assert expected.std() > 0.01
    assert (found - expected).abs().max() < 1e-5


def test_the_valid_masks_matter_in_these_tests() -> None:
    views = picture_pair(33, 20, shift=3)
    with torch.inference_mode():
        maps = passrnet(2)(views[:1], views[1:]).maps
    assert 0 < maps.valid_left.float().mean() < 1
    assert not torch.equal(maps.valid_left, maps.valid_right)


def test_it_equals_the_authors_order_of_operations() -> None:
    views = picture_pair(24, 30, shift=3, seed=11)
    with torch.inference_mode():
        reference = reference_super_resolution(passrnet(2), views[:1], views[1:])
    assert (run(2, views, 8)[:1] - reference).abs().max() < 1e-5


@pytest.mark.parametrize("map_bytes", [1, 10**9])
def test_how_many_lines_are_looked_at_at_once_does_not_matter(
    map_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = picture_pair(33, 20, shift=3)
    expected = run(2, views, None)
    monkeypatch.setattr(streamed_attention, "MAP_BYTES", map_bytes)
    assert (run(2, views, 16) - expected).abs().max() < 1e-5


def test_another_precision_of_the_network_gives_float32_pictures() -> None:
    views = picture_pair(16, 20, shift=3)
    exact = run(2, views, None)
    half = StreamedPASSRnet(folded(passrnet(2)).bfloat16())
    found = enlarged(half, views.bfloat16(), 4)
    assert 0 < (found - exact).abs().mean() < 0.02
