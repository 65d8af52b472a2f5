"""Small pictures are matched enlarged, and what is found is at their own size, in their own pixels."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sample_cut import Cut

from pamcli.errors import UsageError
from pamcli.imaging.resize import nearest
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.pictures import AUTO_PIXELS, enlarged, factor
from pamcli.registry.catalog import locate
from pamcli.registry.load import load_network


@pytest.mark.parametrize(
    ("height", "width", "times"),
    [(240, 320, 2), (375, 1242, 1), (2160, 3840, 1), (375, 450, (AUTO_PIXELS / (375 * 450)) ** 0.5)],
)
def test_auto_enlarges_up_to_the_pixels_of_a_large_picture(height: int, width: int, times: float) -> None:
    assert factor("auto", height, width) == pytest.approx(times)
    assert factor(3, height, width) == 3


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
def test_an_enlarged_ramp_is_a_ramp(kind: type[np.generic]) -> None:
    largest = {np.uint8: 255, np.uint16: 65535, np.float32: 1}[kind]
    row = np.linspace(0.2, 0.8, 60)[:, None] * largest
    ramp = np.broadcast_to(row if kind is np.float32 else row.round(), (20, 60, 3)).astype(kind)
    found = enlarged(ramp, 40, 120) / (255 if kind is np.uint8 else 1)
    middle = np.interp(np.arange(8, 112) / 2 - 0.25, np.arange(60), np.linspace(0.2, 0.8, 60))
    assert np.abs(found[:, 8:112] - middle[:, None]).max() < 1 / 255


@pytest.mark.parametrize("times", [0.5, 4.1, float("nan")])
def test_a_factor_without_sense_is_refused(times: float) -> None:
    with pytest.raises(UsageError, match="1 to 4 times as large"):
        StereoMatcher.load("pasmnet", device="cpu", enlarge=times)


def test_disparity_of_the_enlarged_pair_in_pixels_of_the_given_one(
    matcher: StereoMatcher, large: Cut
) -> None:
    cut = large[:96, :160]
    finer = StereoMatcher.load("pasmnet", device="cpu", precision="fp32", enlarge=1.5)
    found = finer(cut.left, cut.right)
    plain = matcher(enlarged(cut.left, 144, 240), enlarged(cut.right, 144, 240))
    reduced = partial(nearest, width=160, height=96)
    np.testing.assert_array_equal(found.disparity, reduced(plain.disparity) * np.float32(160 / 240))
    for name in ("visible", "confidence"):
        np.testing.assert_array_equal(getattr(found, name), reduced(getattr(plain, name)))
    assert found.right_disparity is not None
    assert found.right_disparity.shape == (96, 160)


def test_a_limited_search_is_limited_in_pixels_of_the_given_pair(large: Cut) -> None:
    network, spec = load_network(locate("pasmnet").path)
    cut = large[:64, :256]
    compute = StereoMatcher.load("pasmnet", device="cpu", precision="fp32").compute
    limited = StereoMatcher(network, spec, compute, 32, enlarge=2)(cut.left, cut.right, extras=())
    plain = StereoMatcher(network, spec, compute, 64)(
        enlarged(cut.left, 128, 512), enlarged(cut.right, 128, 512), extras=()
    )
    np.testing.assert_array_equal(limited.disparity, nearest(plain.disparity, 256, 64) / 2)
