"""Variants that are not streamed give the plain network's results; what they take is counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pamcli.errors import DeviceError
from pamcli.inference.device import Compute
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.inference.whole import COPIES, AliveTensors, whole_footprint
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.passrnet import PASSRnet
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.load import build_network
from pamcli.registry.spec import ModelSpec
from pamcli.streaming.footprint import LIBRARIES

FP32 = Compute(torch.device("cpu"), "fp32")


def made(spec: ModelSpec) -> PASMnet | PASSRnet:
    torch.manual_seed(3)
    network = build_network(spec).eval().requires_grad_(False)
    assert isinstance(network, PASMnet | PASSRnet)
    return network


def pair(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return tuple(random.integers(0, 256, (height, width, 3), np.uint8) for _ in range(2))


def tensors(views: tuple[np.ndarray, np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(view).permute(2, 0, 1)[None] / 255 for view in views]


@pytest.mark.parametrize(
    ("variant", "streamed"),
    [
        ("blocks=2,refinement=none", True),
        ("features=pyramid,blocks=1", False),
        ("scales=1,blocks=1", False),
        ("volume=64", False),
    ],
)
def test_a_matcher_gives_the_plain_networks_disparity(variant: str, streamed: bool) -> None:
    spec = ModelSpec("pasmnet", variant=variant)
    network, views = made(spec), pair(32, 96)
    assert spec.streamed == streamed
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in (IMAGE_MEAN, IMAGE_STD))
    left, right = ((view - mean) / std for view in tensors(views))
    with torch.inference_mode():
        plain = network(left, right).disparity[0, 0].numpy()
    found = StereoMatcher(network, spec, FP32)(*views)
    np.testing.assert_allclose(found.disparity, plain, atol=2e-3)
    assert found.visible is not None
    assert found.right_disparity is not None
    assert found.confidence is not None
    assert 0 <= found.confidence.min() <= found.confidence.max() <= 1


def test_fewer_blocks_without_refinement_are_the_same_in_strips() -> None:
    spec = ModelSpec("pasmnet", variant="blocks=1,refinement=none")
    matcher = StereoMatcher(made(spec), spec, FP32)
    rows = torch.randn(2, 3, 96, 64, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found = [
            matcher.streamed.match(lambda first, last: rows[:, :, first:last], 96, 64, strip=strip)
            for strip in (32, 96)
        ]
    torch.testing.assert_close(found[0].disparity, found[1].disparity, atol=1e-3, rtol=0)


@pytest.mark.parametrize("variant", ["views=left", "views=twice", "pyramid=cascaded", "transition=none"])
def test_an_upscaler_gives_the_plain_networks_pictures(variant: str) -> None:
    spec = ModelSpec("passrnet", variant=variant, scale=2)
    network, views = made(spec), pair(12, 20)
    with torch.inference_mode():
        plain = network(*tensors(views), both=True)
    upscaler = StereoUpscaler(network, spec, FP32)
    for found, wanted in zip(upscaler(*views), (plain.left, plain.right), strict=True):
        wanted_bytes = (wanted[0].permute(1, 2, 0).clamp(0, 1) * 255).round().numpy()
        assert np.abs(found.astype(int) - wanted_bytes).max() <= 1
    assert np.array_equal(upscaler.left_only(*views), upscaler(*views)[0])


def test_tensors_that_were_there_before_do_not_count() -> None:
    """Nor do views of them; views of new ones count once, and nothing that is gone."""
    given = torch.zeros(1000)
    with AliveTensors() as alive:
        rows = given[100:].view(9, 100)
        rows += 1
        assert alive.now == alive.peak == 0
        new = rows[:5] + given[:100]
        assert float(new[1:].sum()) == 400
        assert (alive.now, alive.peak) == (2000, 2004)
        del new
        assert alive.now == 0


@pytest.mark.parametrize(("architecture", "variant"), [("pasmnet", "volume=64"), ("passrnet", "views=twice")])
def test_what_tensors_take_is_counted_without_computing_them(architecture: str, variant: str) -> None:
    spec = ModelSpec(architecture, variant=variant, scale=2 if architecture == "passrnet" else None)
    network, views = made(spec), tensors(pair(32, 64))
    with torch.inference_mode(), AliveTensors() as alive:
        network(*views, **({} if spec.scale is None else {"both": True}))
    counted = whole_footprint(spec, 64, 32)
    assert counted.peak(32) - LIBRARIES == pytest.approx(COPIES * alive.peak, rel=0.01)
    matcher = (StereoMatcher if spec.scale is None else StereoUpscaler)(network, spec, FP32, max_memory=10**7)
    with pytest.raises(DeviceError, match="does not fit into 10MB"):
        matcher(*pair(32, 64))
