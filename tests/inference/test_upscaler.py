"""Super-resolution of arrays, with the shipped networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sample_cut import Cut

from pamcli.errors import InputError
from pamcli.inference import tiles
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.catalog import locate
from pamcli.registry.load import load_network


@pytest.fixture(scope="session")
def tiny(large: Cut) -> Cut:
    return large[60:93, 200:241]


def test_both_views_grow_by_the_scale(tiny: Cut) -> None:
    upscaler = StereoUpscaler.load("passrnet-x4", device="cpu")
    assert upscaler.spec.scale == upscaler.scale == 4
    for view in upscaler(tiny.left[:9, :31], tiny.right[:9, :31]):
        assert (view.shape, view.dtype) == ((36, 124, 3), np.uint8)
        assert view.flags.c_contiguous


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float16, np.float64])
def test_the_type_is_kept_and_the_image_is_the_same(
    upscaler: StereoUpscaler, tiny: Cut, dtype: type[np.generic]
) -> None:
    expected = upscaler.upscale_left(tiny.left / 255, tiny.right / 255)
    largest = {np.uint8: 255, np.uint16: 65535}.get(dtype, 1)
    left, right = ((view / 255 * largest).astype(dtype) for view in (tiny.left, tiny.right))
    found = upscaler.upscale_left(left, right)
    assert found.dtype == dtype
    mixed = upscaler(left[:8, :8], (tiny.right[:8, :8] / 255).astype(np.float32))
    assert [view.dtype for view in mixed] == [dtype, np.float32], "each view keeps its own type"
    rounding = {np.uint8: 0.5 / 255, np.uint16: 1 / 65535, np.float16: 2**-8}.get(dtype, 0) + 1e-5
    assert np.abs(found.astype(np.float64) / largest - expected.astype(np.float64)).max() < rounding


def test_16_bit_images_of_low_contrast_keep_their_levels(upscaler: StereoUpscaler, tiny: Cut) -> None:
    raw = [51240 + view.astype(np.uint16) for view in (tiny.left, tiny.right)]
    low, high = np.percentile(np.stack(raw), (0.1, 99.9)).astype(int)
    stretched = [((view.astype(np.float32) - low) / (high - low)).clip(0, 1) for view in raw]
    for found, expected in zip(upscaler(*raw), upscaler(*stretched), strict=True):
        assert found.dtype == np.uint16
        assert np.quantile(np.abs(found - (low + expected * (high - low))), 0.95) < 1


def test_both_views_are_upscaled_alike_with_detail_from_each_other(
    upscaler: StereoUpscaler, tiny: Cut
) -> None:
    left, right = upscaler(tiny.left, tiny.right)
    assert np.array_equal(upscaler.upscale_left(tiny.left, tiny.right), left)
    assert not np.array_equal(left, right)
    exchanged = upscaler.upscale_left(tiny.right, tiny.left)
    assert np.abs(exchanged.astype(int) - right).max() <= 1  # a sum in another order may round otherwise
    assert not np.array_equal(upscaler.upscale_left(tiny.left, np.zeros_like(tiny.right)), left)


def test_the_image_is_the_plain_networks(upscaler: StereoUpscaler, tiny: Cut) -> None:
    network, _ = load_network(locate("passrnet-x2"))
    views = [
        torch.from_numpy(view / np.float32(255)).permute(2, 0, 1)[None] for view in (tiny.left, tiny.right)
    ]
    with torch.inference_mode():
        plain = network(*views, both=True)
    found = upscaler(*(view.astype(np.float32) / 255 for view in (tiny.left, tiny.right)))
    for ours, theirs in zip(found, (plain.left, plain.right), strict=True):
        assert np.abs(ours - theirs[0].clamp(0, 1).permute(1, 2, 0).numpy()).max() < 1e-5


def test_an_image_below_8_px_is_refused(upscaler: StereoUpscaler) -> None:
    pair = (np.zeros((7, 20, 3), np.uint8),) * 2
    for call in (upscaler, upscaler.upscale_left):
        with pytest.raises(InputError, match=r"20x7: both sides must be at least 8 px"):
            call(*pair)


def test_bf16_is_close_to_fp32(upscaler: StereoUpscaler, tiny: Cut) -> None:
    half = StereoUpscaler.load("passrnet-x2", device="cpu", precision="bf16")
    views = [view[:16, :24] / 255 for view in (tiny.left, tiny.right)]
    exact, rough = (u.upscale_left(*views) for u in (upscaler, half))
    difference = np.abs(exact.astype(np.float64) - rough.astype(np.float64))
    assert 0 < difference.mean() < 0.005


def test_an_ensemble_is_the_mean_over_the_flips(upscaler: StereoUpscaler, tiny: Cut) -> None:
    four = StereoUpscaler.load("passrnet-x2", device="cpu", ensemble=True)
    left, right = (view[:16, :24] for view in (tiny.left, tiny.right))
    made = [upscaler(left, right)]
    made.append(upscaler(right[:, ::-1], left[:, ::-1]))
    made.append(upscaler(left[::-1], right[::-1]))
    made.append(upscaler(right[::-1, ::-1], left[::-1, ::-1]))
    lefts = [made[0][0], made[1][1][:, ::-1], made[2][0][::-1], made[3][1][::-1, ::-1]]
    rights = [made[0][1], made[1][0][:, ::-1], made[2][1][::-1], made[3][0][::-1, ::-1]]
    for found, views in zip(four(left, right), (lefts, rights), strict=True):
        assert found.dtype == np.uint8
        assert np.array_equal(found, (np.sum(views, axis=0, dtype=int) + 2) // 4)
    assert np.abs(four.upscale_left(left, right).astype(int) - four(left, right)[0]).max() <= 1
    # It does not care which way the pair is turned, which a single pass does.
    mirrored = four(right[:, ::-1], left[:, ::-1])[1][:, ::-1]
    assert np.array_equal(mirrored, four(left, right)[0])
    assert not np.array_equal(lefts[1], lefts[0])


def test_progress_rises_band_by_band(large: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    upscaler = StereoUpscaler.load("passrnet2-x2", device="cpu", ensemble=True)
    monkeypatch.setattr(upscaler.model, "halo", 8)  # seams make no difference to the progress
    monkeypatch.setattr(tiles, "_count_rows", lambda *_: (40, 1))
    told = [0.0]
    cut = large[:72, :8]
    upscaler(cut.left, cut.right, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    assert max(np.diff(told)) <= 0.5
