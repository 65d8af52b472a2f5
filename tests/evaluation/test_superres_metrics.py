"""Metrics of super-resolution and of images alone, on arrays small enough to count, beside plain loops."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from pamcli.errors import InputError, ModelError
from pamcli.evaluation.image_quality import CNNIQA, load_cnniqa
from pamcli.evaluation.loop import ImageFigures
from pamcli.evaluation.superres_metrics import (
    LEFT_MARGIN,
    SuperresMeter,
    haarpsi,
    make_superres_pair,
    measure_upscaled,
    psnr,
    ssim,
)
from pamcli.imaging.resize import imresize


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def slow_ssim(x: np.ndarray, y: np.ndarray, divisor: int) -> float:
    """SSIM of one channel in [0, 1], window by window."""
    values = []
    for top in range(x.shape[0] - 6):
        for left in range(x.shape[1] - 6):
            a, b = (view[top : top + 7, left : left + 7].ravel() for view in (x, y))
            da, db = a - a.mean(), b - b.mean()
            var_a, var_b, cov = ((p @ q) / divisor for p, q in ((da, da), (db, db), (da, db)))
            above = (2 * a.mean() * b.mean() + 0.01**2) * (2 * cov + 0.03**2)
            values.append(above / ((a.mean() ** 2 + b.mean() ** 2 + 0.01**2) * (var_a + var_b + 0.03**2)))
    return float(np.mean(values))


def test_psnr_of_one_wrong_value_of_equal_and_of_opposite_images() -> None:
    truth = np.zeros((10, 10, 3), np.uint8)
    result = truth.copy()
    result[4, 5, 1] = 255  # 1 of 300 values wrong by all: the mean squared error is 255^2 / 300
    assert psnr(truth, result) == pytest.approx(10 * math.log10(300))
    dark, light = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)
    assert psnr(dark, light) == psnr(light, dark) == 0, "8 bits do not wrap around"
    assert psnr(light, light) == math.inf


def test_ssim_equals_a_loop_over_windows() -> None:
    truth = noise(9, 11)
    result = np.clip(truth.astype(int) + noise(9, 11, 1) // 4 - 20, 0, 255).astype(np.uint8)
    assert ssim(truth, truth) == (1, 1)
    ipassr, skimage = ssim(truth, result)
    a, b = truth / 255, result / 255
    channels = range(3)
    assert skimage == pytest.approx(np.mean([slow_ssim(a[..., c], b[..., c], 48) for c in channels]))
    # iPASSR: the channels side by side, windows across their seams included.
    wide_a, wide_b = (np.concatenate([view[..., c] for c in channels], axis=1) for view in (a, b))
    assert ipassr == pytest.approx(slow_ssim(wide_a, wide_b, 49))


@pytest.mark.parametrize(
    ("size", "faded", "other"),
    [((12, 15), 0.8239154857509635, 0.4814420343381547), ((9, 8), 0.8516833962166656, 0.6006428960889858)],
)
def test_haarpsi_has_the_values_of_plain_loops(size: tuple[int, int], faded: float, other: float) -> None:
    """Every sum of the paper's formulas written out, value by value, gave these."""
    truth = noise(*size)
    assert haarpsi(truth, np.uint8(truth // 2 + 40)) == pytest.approx(faded, rel=1e-9)
    assert haarpsi(truth, noise(*size, 1)) == pytest.approx(other, rel=1e-9)


def test_the_ground_truth_is_cut_at_the_right_and_the_bottom_and_reduced_to_8_bits() -> None:
    left, right = noise(31, 103), noise(31, 103, 1)
    pair = make_superres_pair(left, right, 4, name="x")
    assert np.array_equal(pair.left, left[:28, :100])
    assert np.array_equal(pair.right, right[:28, :100])
    assert pair.low_left.shape == (7, 25, 3)
    assert pair.low_left.dtype == np.uint8
    assert np.array_equal(pair.low_right, imresize(right[:28, :100], 0.25))
    assert np.array_equal(pair.bicubic().left, imresize(pair.low_left, 4))


def test_the_protocols_measure_their_regions() -> None:
    pair = make_superres_pair(noise(28, 100), noise(28, 100, 1), 2, name="x")
    margin = pair.left.copy()
    margin[:, :LEFT_MARGIN] ^= 255
    figures = measure_upscaled(pair, margin, pair.right)
    expected = {"psnr": math.inf, "ssim-ipassr": 1, "haarpsi": pytest.approx(1), "ssim-skimage": 1}
    assert figures["left"] == expected
    assert figures["both"]["ssim-skimage"] < 0.99

    one_off = pair.left.copy()
    one_off[..., 0] ^= 1  # every third value wrong by one: the mean squared error is 1/3
    other = pair.right ^ 1  # every value: 1
    figures = measure_upscaled(pair, one_off, other)
    whole = 20 * math.log10(255)
    assert figures["left"]["psnr"] == pytest.approx(whole + 10 * math.log10(3))
    assert figures["both"]["psnr"] == pytest.approx(whole + 10 * math.log10(3) / 2)  # mean of dB, not errors


def test_means_are_over_pairs_and_nothing_has_no_mean() -> None:
    one = ImageFigures("a", {"left": {"psnr": 20.0}, "both": {"psnr": 30.0}})
    other = ImageFigures("b", {"left": {"psnr": 21.0}, "both": {"psnr": 34.0}})
    meter = SuperresMeter()
    meter.images += [one, other]
    assert meter.image_means == {"left": {"psnr": 20.5}, "both": {"psnr": 32.0}}
    with pytest.raises(InputError, match="no pair"):
        _ = SuperresMeter().image_means


def test_unsuitable_pairs_are_errors_that_name_the_pair() -> None:
    picture = noise(28, 100)
    for name, left, right, words in (
        ("deep", picture.astype(np.uint16), picture.astype(np.uint16), r"deep has 16 bits"),
        ("uneven", picture, picture[:, 1:], r"uneven.*100x28.*99x28"),
        ("small", picture[:, :70], picture[:, :70], r"small is too small"),
    ):
        with pytest.raises(InputError, match=words):
            make_superres_pair(left, right, 2, name=name)
    pair = make_superres_pair(picture, picture, 2, name="odd")
    with pytest.raises(InputError, match=r"odd: a result is 99x28"):
        measure_upscaled(pair, picture[:, 1:], picture)
    with pytest.raises(InputError, match="float64"):
        measure_upscaled(pair, picture / 255, picture)


@pytest.fixture
def network() -> CNNIQA:
    torch.manual_seed(0)
    return CNNIQA().eval()


def score_plainly(network: CNNIQA, image: np.ndarray) -> float:
    """The mean over patches, each normalised and scored by itself."""
    grey = np.asarray(Image.fromarray(image).convert("L")) / 255
    scores = []
    for top in range(0, grey.shape[0] - 32, 32):
        for left in range(0, grey.shape[1] - 32, 32):
            patch = grey[top : top + 32, left : left + 32]
            around = np.lib.stride_tricks.sliding_window_view(np.pad(patch, 1, mode="symmetric"), (3, 3))
            normal = (patch - around.mean(axis=(2, 3))) / (around.std(axis=(2, 3)) + 1)
            maps = network.conv1(torch.tensor(normal, dtype=torch.float32)[None])
            values = torch.cat([maps.amax((1, 2)), maps.amin((1, 2))])
            scores.append(network.fc3(network.fc2(network.fc1(values).relu()).relu()).item())
    return float(np.mean(scores))


@pytest.mark.parametrize("size", [(96, 65), (70, 100)])
def test_a_score_is_the_mean_of_all_patches(network: CNNIQA, size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    assert network.score(image) == pytest.approx(score_plainly(network, image), abs=1e-5)


def test_weights_are_read_from_both_formats(network: CNNIQA, tmp_path: Path) -> None:
    state = network.state_dict()
    torch.save(state, tmp_path / "old", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": state}, tmp_path / "new.pth")
    safetensors.torch.save_file(state, tmp_path / "new.safetensors")
    for name in ("old", "new.pth", "new.safetensors"):
        loaded = load_cnniqa(tmp_path / name).state_dict()
        assert all(torch.equal(loaded[key], value) for key, value in state.items())
    torch.save({**state, "fc3.bias": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(ModelError, match=r"other\.pth does not hold the weights of CNNIQA"):
        load_cnniqa(tmp_path / "other.pth")
    with pytest.raises(ModelError, match=r"none does not exist"):
        load_cnniqa(tmp_path / "none")
