from __future__ import annotations

import json
import math
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


def line(values: list[Fraction], new: int, scale: Fraction) -> list[Fraction]:
    """One pass over one line in exact arithmetic, pixel by pixel, positions counted from 1 as MATLAB does."""

    def kernel(x: Fraction) -> Fraction:
        x = abs(x)
        if x <= 1:
            return Fraction(3, 2) * x**3 - Fraction(5, 2) * x**2 + 1
        return Fraction(-1, 2) * x**3 + Fraction(5, 2) * x**2 - 4 * x + 2 if x <= 2 else Fraction(0)

    shrink = min(scale, Fraction(1))
    result = []
    for index in range(1, new + 1):
        centre = index / scale + (1 - 1 / scale) / 2
        total = weights = Fraction(0)
        for position in range(math.floor(centre - 2 / shrink), math.ceil(centre + 2 / shrink) + 1):
            inside = position
            while not 1 <= inside <= len(values):  # mirrored, the edge pixel repeated
                inside = 1 - inside if inside < 1 else 2 * len(values) + 1 - inside
            weight = kernel((centre - position) * shrink)
            total += weight * values[inside - 1]
            weights += weight
        result.append(total / weights)
    return result


def by_hand(picture: np.ndarray, new: tuple[int, int], scales: tuple[Fraction, Fraction]) -> np.ndarray:
    top = np.iinfo(picture.dtype).max
    table = [[Fraction(int(value)) for value in row] for row in picture]
    for axis in (0, 1) if scales[0] <= scales[1] else (1, 0):
        lines = table if axis else [list(column) for column in zip(*table, strict=True)]
        lines = [line(one, new[axis], scales[axis]) for one in lines]
        table = lines if axis else [list(row) for row in zip(*lines, strict=True)]
        table = [[Fraction(min(max(math.floor(v + Fraction(1, 2)), 0), top)) for v in row] for row in table]
    return np.array([[int(value) for value in row] for row in table], picture.dtype)


@pytest.mark.parametrize("scale", MATLAB)
def test_gives_the_values_that_matlab_gives(scale: str) -> None:
    assert imresize(MATRIX, float(Fraction(scale))).tolist() == MATLAB[scale]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize(
    ("size", "exact"),
    [
        *((size, True) for size in ((5, 4), (20, 16), (40, 32), (5, 16), (20, 2))),
        *((size, False) for size in ((7, 3), (3, 11), (1, 1), (12, 9))),
    ],
)
def test_equals_a_plain_loop_in_exact_arithmetic(
    size: tuple[int, int], exact: bool, dtype: DTypeLike
) -> None:
    width, height = size
    random = np.random.default_rng(width + 100 * height)
    picture = random.integers(0, np.iinfo(dtype).max, (8, 10), endpoint=True).astype(dtype)
    expected = by_hand(picture, (height, width), (Fraction(height, 8), Fraction(width, 10)))
    resized = imresize_to(picture, width, height)
    assert resized.dtype == dtype
    if exact:
        assert np.array_equal(resized, expected)
    else:  # weights that are no binary fractions: half a level may come out as a hair less, as in MATLAB
        off = np.abs(resized.astype(int) - expected)
        assert off.max() <= 1
        assert off.mean() <= 0.02


def test_a_scale_rounds_the_size_up_and_stays_the_scale() -> None:
    shrunk = imresize(MATRIX[:7], 0.25)
    assert shrunk.shape == (2, 3)
    assert np.array_equal(shrunk, by_hand(MATRIX[:7], (2, 3), (Fraction(1, 4), Fraction(1, 4))))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("size", [(13, 21), (4, 3), (5, 17)])
def test_large_images_are_resized_in_pieces(
    dtype: DTypeLike, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = np.random.default_rng(1).integers(0, 256, (11, 9, 3)).astype(dtype)
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
