"""What pictures the networks take, and the padding that the user never hears of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sample_cut import Cut

from pamcli.errors import InputError
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.pictures import PairRows, write_rows

FLOATS = np.random.default_rng(0).random((20, 30, 3))
BYTES = (FLOATS * 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (BYTES, BYTES / 255),
        (BYTES.astype(np.uint16) * 257, BYTES / 255),
        (BYTES.astype(">u2") * 257, BYTES / 255),
        (FLOATS, FLOATS),
        (FLOATS.astype(np.float32), FLOATS),
        (FLOATS.astype(">f8"), FLOATS),
        (FLOATS.astype(np.float16), FLOATS.astype(np.float16)),
        (FLOATS[:, ::-1].astype(np.float32), FLOATS[:, ::-1]),
        (FLOATS.astype(np.float32)[::-1, ::-1, ::-1], FLOATS[::-1, ::-1, ::-1]),
        (np.asfortranarray(BYTES), BYTES / 255),
    ],
    ids=[
        "uint8",
        "uint16",
        "uint16 >",
        "float64",
        "float32",
        "float64 >",
        "float16",
        "view",
        "flip",
        "fortran",
    ],
)
def test_every_type_becomes_rgb_in_0_to_1(
    picture: NDArray[np.generic], expected: NDArray[np.float64]
) -> None:
    picture.flags.writeable = False
    pair = PairRows(picture, picture, smallest=16)
    for first, last in ((0, 20), (3, 4), (11, 20)):
        both = pair(first, last)
        assert both.shape == (2, 3, last - first, 30)
        assert both.dtype == torch.float32
        for view in both:
            assert np.abs(view.permute(1, 2, 0).numpy() - expected[first:last]).max() < 1e-7


def test_the_ends_of_the_range_are_met() -> None:
    for white in (np.uint8(255), np.uint16(65535), np.float32(1)):
        picture = np.zeros((16, 16, 3), white.dtype)
        picture[0, 0] = white
        left, right = PairRows(picture, picture)(0, 16)
        assert left.max() == right.max() == 1
        assert left.min() == 0


def test_rounding_to_float32_does_not_leave_the_range() -> None:
    picture = np.full((16, 16, 3), 1 + 1e-12)
    assert PairRows(picture, picture)(0, 16).max() == 1


def test_each_view_is_read_in_its_own_type() -> None:
    left, right = PairRows(BYTES, BYTES.astype(np.uint16) * 257)(2, 9)
    assert (left - right).abs().max() < 1e-7
    left, right = PairRows(BYTES, 1 - BYTES / 255)(2, 9)
    assert (left + right - 1).abs().max() < 1e-6


def test_the_mirrored_pair_has_the_mirrored_right_view_on_the_left() -> None:
    other = BYTES[::-1]
    mirrored = PairRows(BYTES, other, multiple=32).mirrored()
    by_hand = PairRows(other[:, ::-1], BYTES[:, ::-1], multiple=32)
    assert torch.equal(mirrored(0, 32), by_hand(0, 32))
    assert torch.equal(mirrored.mirrored()(5, 20), PairRows(BYTES, other, multiple=32)(5, 20))


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        (FLOATS - 0.5, "has values from -0."),
        (FLOATS * 255, "has values from .* .floating-point pictures are in"),
        (np.where(FLOATS > 0.9, np.nan, FLOATS), "has values from nan to nan"),
        (np.where(FLOATS > 0.9, np.inf, FLOATS), "has values from .* to inf"),
        (BYTES.astype(np.int32), "is int32 .pass uint8, uint16 or float"),
        (BYTES.astype(np.int8), "is int8"),
        (BYTES > 9, "is bool"),
        (FLOATS.astype(complex), "is complex128"),
        (BYTES[..., 0], r"has shape \(20, 30\), not \(height, width, 3\) .numpy.dstack"),
        (BYTES[..., :1], r"has shape \(20, 30, 1\)"),
        (np.dstack((BYTES, BYTES[..., 0])), r"has shape \(20, 30, 4\)"),
        (BYTES[None], r"has shape \(1, 20, 30, 3\)"),
        (BYTES[0, 0, 0], r"has shape \(\)"),
        ("left.png", r"is of type str, not a NumPy array .pamcli.read_picture\(path\).pixels"),
        (torch.from_numpy(BYTES), "is of type Tensor, not a NumPy array"),
        (Image.fromarray(BYTES), "is of type Image, not a NumPy array"),
        (BYTES[:15], "is 30 x 15 pixels .both sides must have at least 16"),
        (BYTES[:, :15], "is 15 x 20 pixels"),
        (BYTES[:0], "is 30 x 0 pixels"),
    ],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_what_is_no_picture_is_refused(picture: Any, words: str, side: str) -> None:
    views = (picture, BYTES) if side == "left" else (BYTES, picture)
    with pytest.raises(InputError, match=f"the {side} picture {words}") as caught:
        PairRows(*views, smallest=16)
    assert caught.value.exit_code == 3


def test_views_of_different_sizes_are_refused() -> None:
    with pytest.raises(InputError, match=r"left 30 x 20, right 29 x 20.*rectified pictures have one size"):
        PairRows(BYTES, BYTES[:, 1:])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, ">u2", np.float16, np.float32, np.float64])
def test_results_are_clamped_and_rounded_to_the_type(dtype: np.dtype[np.generic]) -> None:
    kind = np.dtype(dtype)
    made = np.zeros((4, 5, 3), kind)
    write_rows(torch.tensor([-0.5, 0.0, 0.5, 1.0, 1.5]).expand(3, 2, 5), made[1:3])
    largest = {1: 255, 2: 65535}[kind.itemsize] if kind.kind == "u" else 1
    expected = np.array([0, 0, largest / 2, largest, largest])
    if kind.kind == "u":
        expected = np.rint(expected)
    for row in made[1:3]:
        assert np.array_equal(row, expected[:, None].repeat(3, 1))
    assert not made[[0, 3]].any()


def test_padding_of_every_size_repeats_the_edge_at_the_top_and_the_right_and_is_undone() -> None:
    whole = np.random.default_rng(0).random((70, 70, 3), np.float32)
    for height in range(16, 71):
        for width in range(16, 71):
            picture = whole[:height, :width]
            pair = PairRows(picture, picture, multiple=32)
            padded = pair(0, pair.height)
            top, right = pair.height - height, pair.width - width
            assert pair.height % 32 == pair.width % 32 == 0
            assert 0 <= top < 32
            assert 0 <= right < 32
            by_hand = np.pad(picture, ((top, 0), (0, right), (0, 0)), mode="edge").transpose(2, 0, 1)
            assert np.array_equal(padded[0].numpy(), by_hand)
            assert np.array_equal(pair.crop(padded)[0].numpy(), picture.transpose(2, 0, 1))


@pytest.mark.parametrize("height", [33, 50, 63, 64])
def test_any_rows_of_the_padded_pair_are_a_part_of_it(height: int) -> None:
    picture = np.random.default_rng(0).random((height, 40, 3), np.float32)
    pair = PairRows(picture, picture[::-1], multiple=32)
    whole = pair(0, 64)
    assert whole.shape == (2, 3, 64, 64)
    for first in range(64):
        for last in (first + 1, min(first + 7, 64), 64):
            assert torch.equal(pair(first, last), whole[:, :, first:last])


def test_the_matcher_pads_as_one_would_by_hand(matcher: StereoMatcher, small: Cut) -> None:
    height, width = small.truth.shape
    padding = ((-height % 32, 0), (0, -width % 32), (0, 0))
    padded = [np.pad(view, padding, mode="edge") for view in (small.left, small.right)]
    assert padded[0].shape == (64, 96, 3)
    assert small.left.shape == (61, 90, 3)
    by_hand = matcher(*padded, extras={"confidence"})
    ours = matcher(small.left, small.right, extras={"confidence"})
    assert ours.confidence is not None
    assert by_hand.confidence is not None
    assert np.array_equal(ours.disparity, by_hand.disparity[3:, :90])
    assert np.array_equal(ours.confidence, by_hand.confidence[3:, :90])
