"""Bicubic upscaling, and upscaled images that are consistent with bicubic downscaling."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from random_networks import picture_pair

from pamcli.imaging.resize import imresize
from pamcli.networks.bicubic import Consistency, upscale_bicubic


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_bicubic_by_a_convolution_is_bicubic(scale: int) -> None:
    images, added = torch.rand(1, 3, 5, 7), torch.rand(1, 3 * scale**2, 5, 7)
    expected = F.interpolate(images, scale_factor=scale, mode="bicubic", align_corners=False)
    with torch.inference_mode():
        found = upscale_bicubic(images, scale, added.clone())
    torch.testing.assert_close(found, expected + F.pixel_shuffle(added, scale))
    images.requires_grad_()
    torch.testing.assert_close(
        upscale_bicubic(images, scale, added), expected + F.pixel_shuffle(added, scale)
    )


@pytest.mark.parametrize("scale", [2, 4])
def test_a_correction_brings_an_image_nearer_to_the_one_it_is_downscaled_from(scale: int) -> None:
    generator = torch.Generator().manual_seed(0)
    truth = 0.25 + 0.5 * picture_pair(12 * scale, 20 * scale)
    low = torch.stack(
        [
            torch.from_numpy(imresize(each.permute(1, 2, 0).numpy(), 1 / scale)).permute(2, 0, 1)
            for each in truth
        ]
    )
    wrong = truth + 0.05 * torch.randn(truth.shape, generator=generator)
    correct = Consistency(scale)
    torch.testing.assert_close(correct(truth.clone(), low), truth, atol=1e-5, rtol=0)
    before, after = ((each - truth).square().mean() for each in (wrong, correct(wrong.clone(), low)))
    expected = 1 - 1 / scale**2  # of noise, the share that downscaling removes
    assert after / before == pytest.approx(expected, abs=0.03)


def test_values_beyond_white_are_clipped_before_the_correction() -> None:
    white, too_bright = torch.ones(2, 3, 16, 24), torch.full((2, 3, 16, 24), 1.5)
    grey = torch.full((2, 3, 8, 12), 0.75)
    torch.testing.assert_close(Consistency(2)(white, torch.ones(2, 3, 8, 12)), white)
    found = Consistency(2)(torch.cat((too_bright[..., :12], 0.5 * white[..., 12:]), 3), grey)
    expected = Consistency(2)(torch.cat((white[..., :12], 0.5 * white[..., 12:]), 3), grey)
    torch.testing.assert_close(found, expected)
