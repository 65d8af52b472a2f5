"""Super-resolution of arrays, with the shipped networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sample_cut import Cut
from torch import Tensor

from pamcli.errors import InputError, ModelError
from pamcli.inference.device import Compute
from pamcli.inference.model import TorchModel
from pamcli.inference.tiles import MemoryBudget
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.networks.passrnet import PASSRnet, SuperResolution
from pamcli.registry.catalog import locate
from pamcli.registry.load import load_network
from pamcli.registry.spec import ModelSpec


@pytest.fixture(scope="session")
def tiny(large: Cut) -> Cut:
    return large[60:93, 200:241]


@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 31), (33, 41)])
def test_both_views_grow_by_the_scale(upscaler: StereoUpscaler, tiny: Cut, height: int, width: int) -> None:
    cut = tiny[:height, :width]
    assert upscaler.spec.scale == upscaler.scale
    for view in upscaler(cut.left, cut.right):
        assert view.shape == (height * upscaler.scale, width * upscaler.scale, 3)
        assert view.dtype == np.uint8
        assert view.flags.c_contiguous


@pytest.mark.parametrize("upscaler", ["passrnet-x2"], indirect=True)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float16, np.float32, np.float64])
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


def test_the_result_is_the_image_in_more_pixels(upscaler: StereoUpscaler, tiny: Cut) -> None:
    for view, larger in zip((tiny.left, tiny.right), upscaler(tiny.left, tiny.right), strict=True):
        s = upscaler.scale
        height, width = view.shape[:2]
        reduced = larger.reshape(height, s, width, s, 3).mean((1, 3))
        assert np.abs(reduced - view).mean() < 4
        assert np.corrcoef(reduced.ravel(), view.ravel())[0, 1] > 0.99


def test_both_views_are_upscaled_alike_with_detail_from_each_other(
    upscaler: StereoUpscaler, tiny: Cut
) -> None:
    left, right = upscaler(tiny.left, tiny.right)
    assert np.array_equal(upscaler.upscale_left(tiny.left, tiny.right), left)
    assert not np.array_equal(left, right)
    exchanged = upscaler.upscale_left(tiny.right, tiny.left)
    assert np.abs(exchanged.astype(int) - right).max() <= 1  # a sum in another order may round otherwise
    assert not np.array_equal(upscaler.upscale_left(tiny.left, np.zeros_like(tiny.right)), left)


@pytest.mark.parametrize(("dtype", "largest"), [(np.uint8, 255), (np.uint16, 65535), (np.float32, 1)])
def test_what_leaves_the_range_is_clamped(dtype: type, largest: int) -> None:
    class Overshooting(PASSRnet):
        def forward(self, left: Tensor, right: Tensor, *, both: bool = False) -> SuperResolution:
            image = torch.linspace(-1, 2, 16 * 16).view(1, 1, 16, 16).expand(1, 3, 16, 16)
            return SuperResolution(image, image, None)

    model = TorchModel(Overshooting(2), ModelSpec("passrnet", scale=2), Compute.choose("cpu"))
    for image in StereoUpscaler(model)(*(np.zeros((8, 8, 3), dtype),) * 2):
        assert image.dtype == dtype
        assert (image.min(), image.max()) == (0, largest)
        assert np.all(np.diff(image[..., 0].ravel().astype(float)) >= 0)


def test_the_image_is_the_plain_networks(upscaler: StereoUpscaler, tiny: Cut) -> None:
    network, _ = load_network(locate(f"passrnet-x{upscaler.scale}"))
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


def test_a_network_of_the_other_kind_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"pasmnet is a pasmnet, which does not upscale images .use passrnet2-x4"
    ):
        StereoUpscaler.load("pasmnet", device="cpu")


def test_bf16_is_close_to_fp32(upscaler: StereoUpscaler, tiny: Cut) -> None:
    half = StereoUpscaler.load(f"passrnet-x{upscaler.scale:g}", device="cpu", precision="bf16")
    exact, rough = (u.upscale_left(tiny.left / 255, tiny.right / 255) for u in (upscaler, half))
    difference = np.abs(exact.astype(np.float64) - rough.astype(np.float64))
    assert 0 < difference.mean() < 0.005


@pytest.mark.parametrize("upscaler", ["passrnet-x2"], indirect=True)
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


@pytest.mark.parametrize("upscaler", ["passrnet-x2"], indirect=True)
def test_an_ensemble_of_any_type(upscaler: StereoUpscaler, tiny: Cut) -> None:
    four = StereoUpscaler.load("passrnet-x2", device="cpu", ensemble=True)
    left, right = tiny.left, tiny.right  # of enough contrast that 16-bit images are not stretched
    eight = four.upscale_left(left, right) / 255
    for dtype, largest in ((np.uint16, 65535), (np.float32, 1)):
        found = four.upscale_left(*((view / 255 * largest).astype(dtype) for view in (left, right)))
        assert found.dtype == dtype
        assert np.abs(found / largest - eight).max() < 1.1 / 255


@pytest.mark.parametrize(
    ("network", "ensemble", "both"),
    [("passrnet2-x2", False, False), ("passrnet2-x2", True, True)],
)
def test_progress_rises_band_by_band(
    network: str, ensemble: bool, both: bool, large: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    upscaler = StereoUpscaler.load(network, device="cpu", ensemble=ensemble)
    monkeypatch.setattr(upscaler.model, "halo", 8)  # seams make no difference to the progress
    monkeypatch.setattr(MemoryBudget, "_count_rows", lambda *_: 40)
    told = [0.0]
    run = upscaler if both else upscaler.upscale_left
    cut = large[:72, :8]
    run(cut.left, cut.right, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    assert max(np.diff(told)) <= 0.5
