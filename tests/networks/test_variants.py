"""The parts of the ablation studies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pamcli.networks.variants import CostVolume, VolumeStage
from pamcli.registry.catalog import ModelSpec
from pamcli.registry.load import Network, build_network


def network(architecture: str, variant: str, scale: int | None = None) -> Network:
    torch.manual_seed(1)
    return build_network(ModelSpec(architecture, variant=variant, scale=scale)).eval().requires_grad_(False)


def views(height: int, width: int) -> Tensor:
    return torch.rand((2, 1, 3, height, width), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("architecture", "variant", "millions"),
    [
        ("passrnet", "views=left", 1.32),  # Table 10
        ("passrnet", "views=twice", 1.42),
        ("passrnet", "pyramid=cascaded", 1.42),
        ("passrnet", "pyramid=plain", 1.42),
        ("passrnet", "matching=stacked", 1.33),  # there 1.32, without the layer that joins the views
        ("passrnet", "transition=none", 1.34),
        ("pasmnet", "volume=192", 7.58),  # Table 4 has 7.35, and 7.61 of the network that has 7.82
    ],
)
def test_parameters_are_the_papers(architecture: str, variant: str, millions: float) -> None:
    made = network(architecture, variant, 4 if architecture == "passrnet" else None)
    assert round(sum(parameter.numel() for parameter in made.parameters()) / 1e6, 2) == millions


def test_the_cost_volume_of_superresolution_has_the_papers_3d_convolutions() -> None:
    assert sum(parameter.numel() for parameter in CostVolume(8).body.parameters()) == 221_184  # Table 11


@pytest.mark.parametrize(
    "variant",
    ["features=pyramid,blocks=1", "scales=1,blocks=1", "blocks=3", "refinement=none", "volume=64"],
)
def test_a_matcher_of_other_parts_gives_what_the_losses_need(variant: str) -> None:
    made = network("pasmnet", variant)
    found = made(*views(32, 96), all_stages=True)
    assert found.disparity.shape == (1, 1, 32, 96)
    assert [maps.right_to_left.shape[-1] for maps in found.maps] == (
        [24] if "scales=1" in variant else [6, 12, 24]
    )
    for maps in found.maps:
        for each in (maps.right_to_left, maps.left_to_right):
            torch.testing.assert_close(each.sum(-1), torch.ones_like(each[..., 0]))
    if variant == "refinement=none":
        assert torch.allclose(found.disparity[..., 16, 48] / 4, found.initial[:, 3:5, 11:13].mean(), atol=1)


def test_a_cost_volume_finds_nothing_beyond_its_maximum() -> None:
    wide = views(32, 160)
    limited = network("pasmnet", "volume=64")(*wide, all_stages=True).maps[-1]
    j, k = torch.meshgrid(torch.arange(40), torch.arange(40), indexing="ij")
    inside = (j - k >= 0) & (j - k < 16)
    assert (limited.right_to_left[..., inside] > 0).all()
    assert (limited.right_to_left[..., ~inside] == 0).all()
    assert (limited.left_to_right[..., ~inside.T] == 0).all()


def test_a_volume_compares_the_left_pixel_with_the_right_one_that_far_to_its_left() -> None:
    stage = VolumeStage(64, 4).eval()
    both = torch.rand(2, 64, 3, 12)
    changed = both.clone()
    changed[1, :, :, 0] += 1  # the first column of the right view: pixels up to 3 and their neighbours see it
    with torch.no_grad():
        moved = (stage(both) != stage(changed)).any(dim=(0, 1, 2))
    assert moved[:4].all()
    assert not moved[3 + 4 + 1 :].any(), "beyond four 3 x 3 x 3 convolutions"


@pytest.mark.parametrize(
    "variant",
    [
        *("views=left", "views=twice", "pyramid=cascaded", "pyramid=plain"),
        *("matching=stacked", "transition=none", "volume=16"),
    ],
)
def test_an_upscaler_of_other_parts_enlarges_both_views(variant: str) -> None:
    made = network("passrnet", variant, 2)
    left, right = views(9, 24)
    found, other = made(left, right, both=True), made(right, left)
    assert found.left.shape == found.right.shape == (1, 3, 18, 48)
    assert (found.maps is None) == (variant in ("views=left", "matching=stacked"))
    if variant != "volume=16":  # disparities have a sign there
        torch.testing.assert_close(found.right, other.left, atol=1e-5, rtol=0)
    alone = torch.allclose(made(left, left).left, found.left, atol=1e-7)
    assert alone == variant.startswith("views=")
