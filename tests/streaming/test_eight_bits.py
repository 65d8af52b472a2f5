"""Convolutions in 8 bits are near those in float32, whatever the strip."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from in_strips import matched
from random_networks import normalised, pasmnet2, picture_pair
from torch import nn

from pamcli.inference.device import processor_has_int8
from pamcli.streaming.eight_bits import LARGEST, EightBits, pair_of_noise, reduce_to_eight_bits
from pamcli.streaming.pasmnet2 import StreamedPASMnet2
from pamcli.streaming.rolling import Given, convolution, folded, gathered

pytestmark = pytest.mark.skipif(not processor_has_int8(), reason="this processor has no VNNI")


def made(channels: int = 32, **of_layer: int) -> tuple[nn.Conv2d, torch.Tensor]:
    torch.manual_seed(0)
    layer = nn.Conv2d(channels, 48, 3, **of_layer)  # type: ignore[arg-type]
    return layer.requires_grad_(False), F.leaky_relu(torch.randn(2, channels, 11, 14), 0.1)


@pytest.mark.parametrize("padding", [(1, 1), (0, 1)])
@pytest.mark.parametrize("of_layer", [{}, {"stride": 2}, {"dilation": 2}])
def test_a_convolution_is_near_that_in_float32(of_layer: dict[str, int], padding: tuple[int, int]) -> None:
    layer, x = made(**of_layer)
    found = EightBits(layer, float(x.min()), float(x.max()))(x, padding, None)
    exact = F.conv2d(x, layer.weight, layer.bias, layer.stride, padding, layer.dilation)
    assert found.dtype == torch.float32
    assert found.shape == exact.shape
    # A level is 1/255 of about 5, of which an error is evenly spread over +- a half; weights have their own.
    assert (found - exact).pow(2).mean().sqrt() < 0.015 * exact.std()


def test_what_is_beyond_the_levels_is_cut_off() -> None:
    layer, x = made()
    x[0, :, 5, 5] = 1000
    small = EightBits(layer, -0.5, 5)
    cut = x.clamp(-0.5 * 1.2, 5 * 1.2)
    expected = F.conv2d(cut, layer.weight, layer.bias, padding=1)
    assert (small(x, (1, 1), None) - expected).abs().max() < 0.15


def test_the_padding_is_exactly_zero() -> None:
    layer, _ = made()
    nothing = torch.zeros(1, 32, 4, 4)
    found = EightBits(layer, -3.0, 7.0)(nothing, (1, 1), None)
    assert layer.bias is not None
    assert torch.allclose(found, layer.bias.view(1, -1, 1, 1).expand_as(found), atol=1e-6)


def test_layers_are_scaled_by_what_they_read() -> None:
    torch.manual_seed(0)
    first, second = (nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1))

    def through(views: torch.Tensor) -> torch.Tensor:
        given = Given(lambda a, b: views[:, :, a:b], views.shape[2])
        return gathered(convolution(convolution(given, first), second), 1000)

    with torch.inference_mode():
        exact = through(pair_of_noise())
        reduce_to_eight_bits([second], {}, through)
        found = through(pair_of_noise())
    assert isinstance(second.run, EightBits)
    assert not hasattr(first, "run")
    assert 0 < (found - exact).abs().mean() < 0.03 * exact.std()


@pytest.mark.parametrize("slope", [None, 0.0, 0.1])
def test_levels_that_are_handed_on_are_those_of_the_reader(slope: float | None) -> None:
    layer, x = made()
    reader = EightBits(nn.Conv2d(48, 48, 3).requires_grad_(False), -0.05, 0.5)
    given = float(x.min()), float(x.max())
    own = EightBits(layer, *given)(x, (1, 1), slope)
    handed = EightBits(layer, *given, reader)(x, (1, 1), slope)
    assert handed.dtype == torch.uint8
    assert {int(handed.min()), int(handed.max())} == {reader.zero if slope == 0 else 0, 255}  # cut off
    apart = (handed.int() - reader.levels(own).int()).abs()
    assert apart.max() <= 1
    assert apart.float().mean() < 0.01  # between two levels either may be taken


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_levels_are_the_nearest(kind: torch.dtype) -> None:
    layer, _ = made()
    reduced = EightBits(layer, -3.0, 7.0)
    x = torch.linspace(-5, 10, 200, dtype=kind).view(1, 1, 1, 200)
    expected = (x.float() / reduced.step + reduced.zero).clamp(0, 255)
    found = reduced.levels(x)
    assert found.dtype == torch.uint8
    assert (found.float() - expected).abs().max() < 0.5001


def test_the_noise_is_a_pair_of_pictures() -> None:
    views = pair_of_noise()
    assert views.shape == (2, 3, 192, 384)
    assert views.abs().max() <= LARGEST
    assert torch.equal(views, pair_of_noise())
    assert torch.equal(views[0, :, :, 8:], views[1, :, :, :-8])
    beside = views[..., 1:] - views[..., :-1]
    assert beside.std() < 0.7 * views.std()  # of noise without larger patterns it is 1.4 times


def test_strips_of_any_height_give_the_same_disparities() -> None:
    network = StreamedPASMnet2(folded(pasmnet2()), eight_bits=True)
    views = normalised(picture_pair(224, 96))
    whole = matched(network, views, None, None, confidence=True)
    exact = matched(StreamedPASMnet2(folded(pasmnet2())), views, None, None)
    apart = (whole.disparity - exact.disparity).abs()
    assert apart.max() > 0  # these are 8 bits
    assert apart.median() < 1
    for strip in (32, 96):
        found = matched(network, views, None, strip, confidence=True)
        # A value between two levels may be rounded to either; few are.
        assert (found.disparity - whole.disparity).abs().mean() < 0.05 * apart.mean()
