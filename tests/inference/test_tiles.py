"""Tiles and bands: over all of them each pixel counts once, and results are joined without a seam."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sample_cut import whole_sample

from pamcli.inference import tiles
from pamcli.inference.matcher import EXTRAS, StereoMatcher
from pamcli.inference.tiles import blend_weights, make_bands, make_tiles
from pamcli.inference.upscaler import StereoUpscaler


@pytest.mark.parametrize("shared", [(0, 0), (0, 32), (5, 1), (16, 32)])
@pytest.mark.parametrize("middle", [0.5, 0.75])
@pytest.mark.parametrize("side", [(32, 64), (64, 128), (71, 150)])
def test_the_weights_of_tiles_add_up_to_one(
    side: tuple[int, int], shared: tuple[int, int], middle: float
) -> None:
    total = np.zeros(side, np.float32)
    for tile in make_tiles(*side, (32, 64), shared, middle):
        total[tile.rows, tile.columns] += tile.weights
    np.testing.assert_allclose(total, 1, atol=1e-6)


def test_one_part_gives_way_to_the_next_between_pixels() -> None:
    """The middle of what two parts share counts half of each: a ramp from pixel edges, not from centres."""
    first, second = blend_weights([(0, 12), (4, 16)])
    np.testing.assert_allclose(first[4:], [1, 1, 1, 0.75, 0.25, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(second[:8], 1 - first[4:], atol=1e-6)
    (odd, _) = blend_weights([(0, 9), (4, 13)])
    assert odd[6] == 0.5


@pytest.mark.parametrize("height", [40, 101, 203, 640])
@pytest.mark.parametrize(("halo", "multiple"), [(10, 1), (20, 32), (0, 8)])
def test_bands_cover_an_image_on_the_grid_of_its_padding(height: int, halo: int, multiple: int) -> None:
    cut = make_bands(height, 7, 128, halo, multiple)
    total = sum(np.pad(b.weights, ((b.rows.start, height - b.rows.stop), (0, 0))) for b in cut)
    np.testing.assert_allclose(total, 1, atol=1e-6)
    assert cut[0].rows.start == 0
    assert cut[-1].rows.stop == height
    for band in cut:
        assert band.rows.stop - band.rows.start <= 128
        assert (height - band.rows.stop) % multiple == 0
    for one, other in itertools.pairwise(cut):
        assert one.rows.stop - other.rows.start >= 2 * halo


def test_bands_of_super_resolution_are_the_whole_image(monkeypatch: pytest.MonkeyPatch) -> None:
    upscaler = StereoUpscaler.load("passrnet2-x2", device="cpu", precision="fp32")
    pair = [np.random.default_rng(seed).random((210, 8, 3), np.float32) for seed in (0, 1)]
    whole = upscaler(*pair)
    monkeypatch.setattr(tiles, "_count_rows", lambda *_: (2 * upscaler.model.halo + 30, 1))
    for found, expected in zip(upscaler(*pair), whole, strict=True):
        assert np.abs(found - expected).max() < 1e-4


def test_bands_of_matching_show_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = StereoMatcher.load(device="cpu", precision="fp32", match_size=1)
    cut = whole_sample()[:, 300:460]
    pair = [np.concatenate([view, view[:-101:-1]]) for view in (cut.left, cut.right)]
    whole = matcher(*pair, extras=EXTRAS)
    monkeypatch.setattr(tiles, "_count_rows", lambda *_: (2 * matcher.model.halo + 128, 1))
    found = matcher(*pair, extras=EXTRAS)
    apart = np.abs(found.disparity - whole.disparity)
    assert 0 < apart.mean() < 0.02
    assert apart.mean(1).max() < 0.5  # of a row
    assert found.confidence is not None
    assert np.abs(found.confidence - whole.confidence).mean() < 0.005
    assert (found.visible != whole.visible).mean() < 0.005


def test_without_enough_memory_bands_become_smaller_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    upscaler = StereoUpscaler.load("passrnet2-x2", device="cpu", precision="fp32")
    run, tried = upscaler.model.upscale, []

    def short(left, right, progress, **more):  # type: ignore[no-untyped-def]
        tried.append(len(left))
        if len(left) > 200:
            raise MemoryError
        return run(left, right, progress, **more)

    monkeypatch.setattr(upscaler.model, "upscale", short)
    image = np.zeros((300, 8, 3), np.uint8)
    assert upscaler(image, image)[0].shape == (600, 16, 3)
    assert tried[0] == 300
    assert max(tried[1:]) <= 200
    assert [record.message for record in caplog.records] == [
        "not enough memory for 8x300 at once: computed in bands of 150 rows"
    ]
