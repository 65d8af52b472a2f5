"""Every image size works: any width and height from the smallest on, one after the other in one process."""

from __future__ import annotations

import numpy as np
import pytest

from pamcli.inference.device import cpu_has_bf16
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler

SHIFT = 8
SIZES = [(16, 16), (73, 20), (301, 18), (1023, 17), (2561, 16), (33, 201), (71, 83)]
"""WIDTH, HEIGHT; 2561 px need more than one block of rows."""


def pair(width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    texture = np.random.default_rng(0).integers(0, 256, (height, width + SHIFT, 3), np.uint8)
    return texture[:, :width], texture[:, SHIFT:]


@pytest.fixture(scope="module", params=["fp32", "bf16"])
def matcher(request: pytest.FixtureRequest) -> StereoMatcher:
    if request.param == "bf16" and not cpu_has_bf16():
        pytest.skip("this processor emulates bf16")
    return StereoMatcher.load("pasmnet2", device="cpu", precision=request.param, match_size=1)


def test_images_of_mixed_sizes_are_matched(matcher: StereoMatcher) -> None:
    for width, height in SIZES:
        found = matcher(*pair(width, height)).disparity
        assert found.shape == (height, width)
        assert np.isfinite(found).all()
        assert found.min() >= 0
        if min(width, height) > 48:
            assert abs(np.median(found[:, 2 * SHIFT :]) - SHIFT) < 1


def test_images_of_mixed_sizes_are_upscaled() -> None:
    upscaler = StereoUpscaler.load("passrnet2-x2", device="cpu")
    for width, height in [(8, 8), (9, 31), (97, 8)]:
        for image in upscaler(*pair(width, height)):
            assert image.shape == (2 * height, 2 * width, 3)
            assert image.std() > 10
