"""PASSRnet as it is prepared for inference."""

from __future__ import annotations

import pytest
import torch
from random_networks import passrnet, picture_pair

from pamcli.networks import passrnet as module
from pamcli.networks.parallax import received_mass
from pamcli.networks.passrnet import PASSRnet, SuperResolution
from pamcli.registry.catalog import ModelSpec
from pamcli.registry.load import build_network


def plain(network: PASSRnet, views: torch.Tensor) -> SuperResolution:
    """Run a network as training does: with whole attention maps."""
    with torch.enable_grad():
        result: SuperResolution = network(views[:1], views[1:], both=True)
    return result


@pytest.mark.parametrize(("scale", "height", "width"), [(2, 1, 1), (3, 9, 1), (4, 17, 31)])
def test_prepared_network_equals_the_plain_one(
    scale: int, height: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAP_BYTES", 4 * 31 * 31 * 5)
    torch.manual_seed(0)
    network = (passrnet(scale) if scale != 3 else PASSRnet(3)).requires_grad_(False)
    views = picture_pair(height, width, shift=3)
    expected = plain(network, views)
    prepared = network.prepare(torch.float32)
    with torch.inference_mode():
        found = prepared(views[:1], views[1:], both=True)
        assert prepared(views[:1], views[1:]).right is None
    torch.testing.assert_close(found.left, expected.left, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.right, expected.right, atol=1e-5, rtol=0)


def test_a_band_with_its_halo_equals_the_whole_image() -> None:
    network, halo = passrnet(2).prepare(torch.float32), passrnet(2).HALO
    views = picture_pair(2 * halo + 30, 20, shift=3)
    mass = received_mass(plain(passrnet(2), views).maps.left_to_right)
    assert 0 < (mass < 0.1).float().mean() < 1, "masks do something"
    with torch.inference_mode():
        whole = network(views[:1], views[1:]).left
        band = network(views[:1, :, 20:], views[1:, :, 20:]).left
    difference = (whole[:, :, 2 * 20 :] - band).abs().amax((0, 1, 3))
    assert difference[2 * halo :].max() < 1e-5
    assert difference[:2].max() > 1e-4


def test_the_halo_follows_from_the_parts() -> None:
    spec = ModelSpec("passrnet", scale=2, variant="pyramid=plain")
    assert passrnet(2).HALO - build_network(spec).HALO == 2 * 3 * (8 - 1)


@pytest.mark.parametrize("variant", ["paper", "views=left", "matching=stacked", "volume=16"])
def test_variants_are_prepared_for_any_precision(variant: str) -> None:
    torch.manual_seed(1)
    network = build_network(ModelSpec("passrnet", variant=variant, scale=2)).requires_grad_(False)
    views = picture_pair(9, 24)
    expected = plain(network, views)
    with torch.inference_mode():
        for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
            found = network.prepare(dtype)(views[:1], views[1:], both=True)
            assert (found.left - expected.left).abs().mean() < most
            assert (found.right - expected.right).abs().mean() < most
