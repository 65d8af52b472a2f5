from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import DTypeLike

from pamcli.imaging import resize
from pamcli.imaging.resize import downscale_disparity, imresize, imresize_to, resize_nearest

# What MATLAB makes of a matrix at several scales, as the tests of Octave's image package report it.
MATLAB = json.loads((Path(__file__).parent / "matlab_imresize.json").read_text())
MATRIX = np.array(MATLAB.pop("matrix"), np.uint8)


@pytest.mark.parametrize("scale", MATLAB)
def test_gives_the_values_that_matlab_gives(scale: str) -> None:
    assert imresize(MATRIX, float(Fraction(scale))).tolist() == MATLAB[scale]


def test_each_axis_has_its_own_scale_and_16_bits_more_levels() -> None:
    half = imresize_to(imresize_to(MATRIX, 10, 4), 5, 4)
    assert half.tolist() == MATLAB["1/2"]
    narrow_first = imresize_to(imresize_to(MATRIX, 5, 8), 5, 12)
    assert np.array_equal(imresize_to(MATRIX, 5, 12), narrow_first)
    deep = imresize(MATRIX.astype(np.uint16) * 257, 1.5)
    assert deep.dtype == np.uint16
    off = deep - 257.0 * np.array(MATLAB["3/2"])  # which rounds to 8 bits in each of two passes
    assert np.abs(off).max() <= 1.125 * 257


def test_a_scale_rounds_the_size_up_and_stays_the_scale() -> None:
    shrunk = imresize(MATRIX[:7], 0.25)
    assert shrunk.shape == (2, 3)
    assert not np.array_equal(shrunk, imresize_to(MATRIX[:7], 3, 2))


@pytest.mark.parametrize("size", [(13, 21), (4, 3)])
def test_large_images_are_resized_in_pieces(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    picture = np.random.default_rng(1).integers(0, 256, (11, 9, 3), np.uint8)
    whole = imresize_to(picture, *size)
    monkeypatch.setattr(resize, "_AT_ONCE", 20)
    assert np.array_equal(imresize_to(picture, *size), whole)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_constant_stays_and_a_step_does_not_wrap_around(dtype: DTypeLike) -> None:
    top = np.iinfo(dtype).max
    assert (imresize_to(np.full((5, 6), top, dtype), 19, 3) == top).all()
    step = np.zeros((6, 8), dtype)
    step[:, 4:] = top
    floats = imresize(step.astype(np.float32), 4)  # which are neither rounded nor clipped
    assert floats.dtype == np.float32
    assert floats.min() < 0 < top < floats.max()
    large = imresize(step, 4)  # overshoots on both sides of the step
    assert (large[:, :12] < top // 8).all()
    assert (large[:, -12:] > top - top // 8).all()


def test_nearest_takes_the_pixel_under_the_centre() -> None:
    row = np.arange(6, dtype=np.float32)[None]
    assert resize_nearest(row, 3, 1).tolist() == [[1, 3, 5]]  # on the border of two pixels: the right one
    assert resize_nearest(row, 2, 1).tolist() == [[1, 4]]
    assert resize_nearest(row[:, :3], 6, 2).tolist() == [[0, 0, 1, 1, 2, 2]] * 2
    assert resize_nearest(np.zeros((4, 6, 3), np.uint8), 5, 2).shape == (2, 5, 3)


def test_downscaled_planes_and_steps_stay() -> None:
    y, x = np.mgrid[:40, :60].astype(np.float32)
    smaller = downscale_disparity(20 + 0.3 * x + 0.5 * y, 44, 30)
    rows, columns = np.mgrid[:30, :44]
    plane = 20 + 0.3 * ((columns + 0.5) * 60 / 44 - 0.5) + 0.5 * ((rows + 0.5) * 40 / 30 - 0.5)
    inside = slice(1, -1), slice(1, -1)
    np.testing.assert_allclose(smaller[inside], (plane * 44 / 60)[inside], atol=0.01)
    step = np.where(np.arange(60) < 31, np.float32(9), np.float32(27)).repeat(40).reshape(60, 40).T.copy()
    assert np.unique(downscale_disparity(step, 40, 28)).tolist() == [6, 18]
    holes = np.full((12, 12), 8, np.float32)
    holes[6, 6] = np.nan  # unknown disparities stay where they are
    smaller = downscale_disparity(holes, 8, 8)
    np.testing.assert_array_equal(np.isnan(smaller), np.isnan(resize_nearest(holes, 8, 8)))
    np.testing.assert_allclose(smaller[np.isfinite(smaller)], 8 * 8 / 12, rtol=1e-6)


def test_channels_are_resized_each_on_their_own() -> None:
    color = np.stack([MATRIX, MATRIX[::-1], 255 - MATRIX], axis=2)
    resized = imresize(color, 0.5)
    assert resized.shape == (4, 5, 3)
    for channel in range(3):
        assert np.array_equal(resized[..., channel], imresize(color[..., channel], 0.5))
