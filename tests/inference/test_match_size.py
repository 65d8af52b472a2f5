"""Small images are matched enlarged and large ones reduced; the result has their size, and their pixels."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from sample_cut import Cut, whole_sample

from pamcli.errors import UsageError
from pamcli.imaging.degradation import CAMERAS
from pamcli.imaging.resize import downscale_disparity, resize_nearest, upsample_along_edges
from pamcli.inference import tiles
from pamcli.inference.device import Compute
from pamcli.inference.images import resize_image
from pamcli.inference.matcher import EXTRAS, StereoMatcher
from pamcli.inference.model import TorchModel
from pamcli.registry.catalog import locate
from pamcli.registry.load import load_network
from pamcli.registry.resolution import EFFORTS, choose_matching_size


@pytest.mark.parametrize(
    ("height", "width", "times"),
    [
        (240, 320, (1, 2, 2)),
        (375, 1242, (0.60416, (EFFORTS["normal"].pixels / (375 * 1242)) ** 0.5, 1.60514)),
        (1000, 1500, (0.6, 1, 1)),
        (4000, 6000, (0.25, 0.125**0.5, 0.125**0.5)),
    ],
)
def test_each_effort_has_its_size(height: int, width: int, times: tuple[float, float, float]) -> None:
    for name, factor in zip(EFFORTS, times, strict=True):
        assert choose_matching_size(name, height, width) == (round(factor * height), round(factor * width))
    assert choose_matching_size("auto", height, width) == choose_matching_size("normal", height, width)


SIDE = round(EFFORTS["normal"].largest ** 0.5)


@pytest.mark.parametrize(
    ("size", "image", "most", "expected"),
    [
        ("auto", (SIDE + 50, SIDE + 50), None, (SIDE + 50, SIDE + 50)),  # hardly too large
        ("auto", (SIDE + 300, SIDE + 300), None, (SIDE, SIDE)),
        (3, (100, 150), None, (300, 450)),
        (0.25, (400, 600), None, (100, 150)),
        (300, (400, 600), None, (200, 300)),
        (0.1, (40, 600), None, (16, 60)),  # no side is too short to be matched
        ("auto", (240, 320), (480, 640), (480, 640)),  # of a network of one size
        ("auto", (240, 320), (300, 640), (300, 400)),
        ("auto", (240, 320), (240, 640), (240, 320)),
    ],
)
def test_a_size_is_a_factor_a_width_or_a_rule(
    size: Any, image: tuple[int, int], most: tuple[int, int] | None, expected: tuple[int, int]
) -> None:
    assert choose_matching_size(size, *image, most) == expected


def test_a_width_far_above_the_images_is_refused() -> None:
    with pytest.raises(UsageError, match="3000 px is more than 4 times the width"):
        choose_matching_size(3000, 400, 600)


def test_images_with_faults_are_upscaled_less(large: Cut) -> None:
    cut, rng = large[120:216, 200:360], np.random.default_rng(0)
    matcher = StereoMatcher.load("pasmnet2", device="cpu", precision="fp32")
    own, small = (
        StereoMatcher.load("pasmnet2", device="cpu", precision="fp32", match_size=size) for size in (1, 1.41)
    )
    for camera, reference in ((CAMERAS["soft2"], own), (CAMERAS["jpeg75"], small)):
        views = [camera(view, rng) for view in (cut.left, cut.right)]
        found = matcher(*views)
        assert found.fault == matcher.find_fault(*views)
        assert found.fault is not None
        filters = [sharpen or np.asarray for sharpen in found.fault.sharpening]
        plain = reference(*(sharpen(view) for sharpen, view in zip(filters, views, strict=True)))
        assert (found.matched_size, plain.fault) == (plain.matched_size, None)
        np.testing.assert_array_equal(found.disparity, plain.disparity)
        sixteen_bits = matcher.find_fault(*(view.astype(np.uint16) * 257 for view in views))
        assert sixteen_bits == found.fault
        assert matcher(*views, fault=None).matched_size == (192, 320), "the fault of another frame decides"
    assert matcher(cut.left, cut.right, fault=found.fault).matched_size == (135, 226)
    assert matcher.find_fault(cut.left, cut.right) is None
    own_size = [np.tile(view, (8, 8, 1)) for view in views]
    assert matcher.find_fault(*own_size) is None, "they are not upscaled anyway"
    blurred = matcher.find_fault(*(CAMERAS["soft2"](view, rng) for view in own_size))
    assert blurred is not None
    assert blurred.most == math.inf
    assert matcher.find_fault(*(np.tile(view, (15, 15, 1)) for view in views)) is None, "they are downscaled"


def test_dark_images_are_matched_as_bright_ones(large: Cut) -> None:
    cut = large[120:216, 200:360]
    matcher = StereoMatcher.load("pasmnet2", device="cpu", precision="fp32", match_size=1)
    dark = [view // 5 for view in (cut.left, cut.right)]
    low, high = np.percentile(np.concatenate(dark), (0.1, 99.9)).astype(int)
    bright = [np.rint((view.astype(np.float32) - low) * 255 / (high - low)).clip(0, 255) for view in dark]
    expected = matcher(*(view.astype(np.uint8) for view in bright)).disparity
    assert np.abs(matcher(*dark).disparity - expected).mean() < 0.05


@pytest.mark.parametrize("size", [0.05, 4.1, 63])
def test_a_size_without_sense_is_refused(size: float) -> None:
    with pytest.raises(UsageError, match=r"must be auto, .*a width of 64 px or more"):
        StereoMatcher.load(match_size=size)


def test_disparity_of_the_enlarged_pair_in_pixels_of_the_given_one(
    matcher: StereoMatcher, large: Cut
) -> None:
    cut = large[:64, :128]
    finer = StereoMatcher(matcher.model, match_size=1.5)
    found = finer(cut.left, cut.right, extras=EXTRAS)
    plain = matcher(resize_image(cut.left, 96, 192), resize_image(cut.right, 96, 192), extras=EXTRAS)
    reduced = partial(resize_nearest, width=128, height=64)
    np.testing.assert_array_equal(found.disparity, downscale_disparity(plain.disparity, 128, 64))
    for name in ("visible", "confidence"):
        np.testing.assert_array_equal(getattr(found, name), reduced(getattr(plain, name)))
    assert found.right_disparity is not None
    assert found.right_disparity.shape == (64, 128)


def test_what_is_found_of_a_reduced_pair_comes_back_along_the_edges_of_both_views(
    matcher: StereoMatcher, large: Cut
) -> None:
    large = large[:128, :256]
    halved = StereoMatcher(matcher.model, match_size=128)
    found = halved(large.left, large.right, extras=EXTRAS)
    assert found.matched_size == (64, 128)
    reduced = [resize_image(view, 64, 128) for view in (large.left, large.right)]
    plain = matcher(*reduced, extras=EXTRAS)
    assert plain.matched_size is None
    assert plain.right_disparity is not None
    assert plain.visible is not None
    assert plain.confidence is not None
    others = [plain.visible.astype(np.float32), plain.confidence]
    disparity, visible, confidence = upsample_along_edges(plain.disparity, others, reduced[0], large.left)
    (right,) = upsample_along_edges(plain.right_disparity, [], reduced[1], large.right)
    np.testing.assert_array_equal(found.disparity, 2 * disparity)
    np.testing.assert_array_equal(found.right_disparity, 2 * right)
    np.testing.assert_array_equal(found.visible, visible >= 0.5)
    np.testing.assert_array_equal(found.confidence, confidence)


def test_a_reduced_pair_of_moved_views_is_matched_in_its_own_pixels(
    matcher: StereoMatcher, large: Cut
) -> None:
    moved = StereoMatcher(matcher.model, 60, match_size=180, min_disparity=-40)
    cut = large[:96]
    shifted = moved(cut.left[:, 40:], cut.right[:, :-40])
    plain = StereoMatcher(matcher.model, match_size=0.5)
    expected = plain(cut.left, cut.right).disparity[:, 40:] - 40
    both = slice(20, 320)
    assert np.median(np.abs(shifted.disparity - expected)[:, both]) < 1
    assert shifted.matched_size == (48, 180)


def test_progress_rises_band_by_band(large: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = StereoMatcher.load("pasmnet2", device="cpu", match_size=0.5)
    monkeypatch.setattr(tiles, "_count_rows", lambda *_: (64, 1))
    monkeypatch.setattr(matcher.model, "halo", 16)
    told = [0.0]
    cut = large[:240, :128]
    matcher(cut.left, cut.right, extras=EXTRAS, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    assert max(np.diff(told)) < 0.6


NEAREST = slice(120, 248), slice(300, 684)  # of the sample pair: the nearest things


def test_all_below_the_maximum_disparity_is_found() -> None:
    """The nearest things of the sample pair lie at 60 px: what is only just searched is not to be lost."""
    sample = whole_sample()[NEAREST]
    known = np.isfinite(sample.truth)

    def wrong(limit: int | None) -> float:
        matcher = StereoMatcher.load(
            "pasmnet2", device="cpu", precision="fp32", match_size=0.5, max_disparity=limit
        )
        found = matcher(sample.left, sample.right, extras=()).disparity
        return 100 * float(np.mean(np.abs(found - sample.truth)[known] > 2))

    assert 55 < np.nanmax(sample.truth) < 60
    assert wrong(64) < wrong(None) + 1


def test_weights_that_learned_with_a_maximum_search_what_they_learned_with() -> None:
    network, spec = load_network(locate("pasmnet2"))
    cut = whole_sample()[slice(100, 132), slice(200, 328)]
    searched = []

    class Seen(TorchModel):
        def match(self, left, right, progress=None, *, max_disparity=None, extras=()):  # type: ignore[no-untyped-def]
            searched.append(max_disparity)
            return super().match(left, right, progress, max_disparity=max_disparity, extras=extras)

    for stored, asked in ((192, 192), (192, 64), (None, 64), (None, None)):
        model = Seen(network, replace(spec, max_disparity=stored), Compute.choose("cpu"))
        StereoMatcher(model, asked)(cut.left, cut.right)
    assert searched == [192, 96, 96, None]
