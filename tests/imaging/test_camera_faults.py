"""Tests of detecting camera faults: the quality of a JPEG, and noise."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pamcli.imaging.camera_faults import LEAST_NOISE, detect_camera_fault, detect_jpeg_quality, measure_noise
from pamcli.imaging.degradation import Degradation
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


@pytest.mark.parametrize("quality", [10, 49, 50, 75, 90, 95, 98])
@pytest.mark.parametrize("how", [{}, {"subsampling": 0}, {"progressive": True}])
def test_the_quality_of_a_jpeg_is_read_off_its_tables(
    clean: np.ndarray, quality: int, how: dict[str, object]
) -> None:
    assert as_jpeg(clean, quality=quality, **how).jpeg_quality == quality
    grey = as_jpeg(clean[..., 0], quality=quality, **how)
    assert (grey.jpeg_quality, read_image(SAMPLE).jpeg_quality) == (quality, None)
    assert detect_camera_fault(grey) == (f"JPEG quality {quality}" if quality < 95 else None)


def test_tables_of_a_camera_s_own_are_near_a_quality(clean: np.ndarray) -> None:
    own = [[1 + place // 8 for place in range(64)] for _ in range(2)]  # 1 to 8
    assert 92 <= (as_jpeg(clean, qtables=own).jpeg_quality or 0) <= 97


@pytest.mark.parametrize("quality", [40, 60, 75, 85, 90])
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


@pytest.mark.parametrize("deviation", [6, 10, 16])
def test_noise_is_estimated(clean: np.ndarray, deviation: int) -> None:
    noisy = Degradation(noise=deviation)(clean, np.random.default_rng(3))
    assert measure_noise(noisy) == pytest.approx(deviation, rel=0.25)
    assert measure_noise(noisy.astype(np.uint16) * 257) == pytest.approx(measure_noise(noisy))
    assert (detect_camera_fault(RgbImage(noisy)) or "").startswith("noise of ")


def test_texture_is_no_noise() -> None:
    stripes = np.zeros((64, 96, 3), np.uint8) + 90
    stripes[:, ::2] = 160
    stripes[:16] = 120  # an even quarter shows that there is none
    assert measure_noise(stripes) < LEAST_NOISE


@pytest.mark.parametrize("level", [0, 255])
def test_where_noise_is_cut_off_it_is_not_measured(level: int) -> None:
    cut_off = Degradation(noise=20)(np.full((32, 32, 3), level, np.uint8), np.random.default_rng(0))
    assert measure_noise(cut_off) == 0
    assert measure_noise(cut_off[:7]) == 0  # and too small
