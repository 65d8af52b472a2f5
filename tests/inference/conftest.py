"""The shipped networks, loaded once, and cuts of the sample pair."""

from __future__ import annotations

import pytest
from sample_cut import Cut, whole_sample

from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler


@pytest.fixture(scope="session")
def large() -> Cut:
    """240 x 400 px, large enough for statistics."""
    return whole_sample()[:240, :400]


@pytest.fixture(scope="session")
def small(large: Cut) -> Cut:
    """61 x 90 px: neither side is a multiple of anything that a network asks for."""
    return large[40:101, 200:290]


@pytest.fixture(scope="session")
def matcher() -> StereoMatcher:
    return StereoMatcher.load("pasmnet", device="cpu", precision="fp32")


@pytest.fixture(scope="session")
def upscaler() -> StereoUpscaler:
    return StereoUpscaler.load("passrnet-x2", device="cpu")
