"""Tests of detecting camera faults: the quality of a JPEG, and noise."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pamcli.imaging.camera_faults import (
    FAULTY_MOST,
    LEAST_NOISE,
    SHARPENING,
    STRONG_SHARPENING,
    detect_camera_fault,
    detect_jpeg_quality,
    find_matching_fault,
    measure_noise,
)
from pamcli.imaging.degradation import CAMERAS, Degradation
from pamcli.imaging.images import RgbImage, read_image

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample" / "left.png"


@pytest.fixture(scope="module")
def clean() -> np.ndarray:
    """An image of a room, (160, 320, 3)."""
    return read_image(SAMPLE).pixels[100:260, 200:520]


def as_jpeg(pixels: np.ndarray, **how: object) -> RgbImage:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **how)
    return read_image(file.getvalue())


@pytest.mark.parametrize("quality", [10, 50, 75, 98])
def test_the_quality_of_a_jpeg_is_read_off_its_tables(clean: np.ndarray, quality: int) -> None:
    assert as_jpeg(clean, quality=quality, progressive=True).jpeg_quality == quality
    grey = as_jpeg(clean[..., 0], quality=quality)
    assert (grey.jpeg_quality, read_image(SAMPLE).jpeg_quality) == (quality, None)
    assert detect_camera_fault(grey) == (f"JPEG quality {quality}" if quality < 95 else None)
    own = [[1 + place // 8 for place in range(64)] for _ in range(2)]  # the tables of a camera, 1 to 8
    assert 92 <= (as_jpeg(clean, qtables=own).jpeg_quality or 0) <= 97


@pytest.mark.parametrize("quality", [40, 75, 90])
def test_the_pixels_of_a_jpeg_tell_its_quality_in_any_file(clean: np.ndarray, quality: int) -> None:
    decoded = as_jpeg(clean, quality=quality).pixels
    assert detect_jpeg_quality(decoded) == quality
    assert detect_jpeg_quality(decoded.astype(np.uint16) * 257) == quality
    assert detect_camera_fault(RgbImage(decoded)) == f"traces of JPEG quality {quality}"
    if quality < 80:
        assert detect_jpeg_quality(decoded[3:, 5:]) == quality
        again = as_jpeg(decoded, quality=96)
        assert detect_camera_fault(again) == f"traces of JPEG quality {quality}"


def test_other_images_have_no_traces_of_jpeg(clean: np.ndarray) -> None:
    for picture in (
        clean,
        Degradation(noise=3, sharpening=0.5)(clean, np.random.default_rng(0)),
        np.asarray(Image.fromarray(clean).convert("1").convert("RGB")),
        np.asarray(Image.fromarray(as_jpeg(clean, quality=60).pixels).resize((211, 107))),  # no more
        as_jpeg(clean, quality=98).pixels,
        clean // 32 * 32,
        np.full((64, 64, 3), 90, np.uint8),
        clean[:8, :8],
        clean[:7, :5],
    ):
        assert detect_jpeg_quality(picture) is None


@pytest.mark.parametrize("deviation", [6, 16])
def test_noise_is_estimated(clean: np.ndarray, deviation: int) -> None:
    noisy = Degradation(noise=deviation)(clean, np.random.default_rng(3))
    assert measure_noise(noisy) == pytest.approx(deviation, rel=0.25)
    assert measure_noise(noisy.astype(np.uint16) * 257) == pytest.approx(measure_noise(noisy))
    assert (detect_camera_fault(RgbImage(noisy)) or "").startswith("noise of ")


def test_texture_and_clipped_noise_are_not_measured() -> None:
    stripes = np.zeros((64, 96, 3), np.uint8) + 90
    stripes[:, ::2] = 160
    stripes[:16] = 120  # an even quarter shows that there is none
    assert measure_noise(stripes) < LEAST_NOISE
    for level in (0, 255):
        cut_off = Degradation(noise=20)(np.full((32, 32, 3), level, np.uint8), np.random.default_rng(0))
        assert measure_noise(cut_off) == 0
        assert measure_noise(cut_off[:7]) == 0  # and too small


@pytest.mark.parametrize(
    ("kind", "text", "most"),
    [
        ("noise3", r"noise \([23]\.\d levels of 255\)", FAULTY_MOST),
        ("dark", r"noise \(1\.\d levels of 255\)", 1),
        ("jpeg75", r"JPEG artefacts \(quality 75\)", FAULTY_MOST),
        ("soft2", r"blur \(sharpness 0\.2\d\)", 1),
    ],
)
def test_faults_limit_the_matching_resolution(clean: np.ndarray, kind: str, text: str, most: float) -> None:
    rng = np.random.default_rng(0)
    fault = find_matching_fault(clean, CAMERAS[kind](clean, rng))
    assert fault is not None, "one view is enough"
    assert re.fullmatch(text, fault.text)
    assert fault.most == most
    worse = find_matching_fault(CAMERAS["jpeg75"](clean, rng), CAMERAS["soft2"](clean, rng))
    assert worse is not None
    assert worse.most == 1, "the fault that limits most"


def test_soft_images_are_sharpened(clean: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    soft, blurred = (CAMERAS[kind](clean, rng) for kind in ("soft1", "soft2"))
    fault = find_matching_fault(clean, soft)
    assert fault is not None
    assert (fault.most, fault.sharpening) == (math.inf, (None, SHARPENING))
    fault = find_matching_fault(blurred, soft)
    assert fault is not None
    assert (fault.most, fault.sharpening) == (1, (STRONG_SHARPENING, SHARPENING))


def test_an_unsharp_mask_undoes_a_blur(clean: np.ndarray) -> None:
    soft = CAMERAS["soft1"](clean, np.random.default_rng(0))
    before, after = (np.abs(view.astype(float) - clean).mean() for view in (soft, SHARPENING(soft)))
    assert after < 0.8 * before
    whole = SHARPENING((soft / 255).astype(np.float32))
    assert 0 <= whole.min() < whole.max() <= 1
    assert np.abs(255 * whole - SHARPENING(soft)).max() <= 2


def test_good_images_have_no_limit(clean: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    for camera in (CAMERAS["jpeg90"], Degradation(noise=1), Degradation(sharpening=0.6)):
        assert find_matching_fault(clean, camera(clean, rng)) is None
    for plain in (np.full((64, 64, 3), 90, np.uint8), clean[:20, :20], clean[:16, :16] // 255):
        assert find_matching_fault(plain) is None
