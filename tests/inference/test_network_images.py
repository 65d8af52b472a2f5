"""Image arrays that networks take, what they become, and padding that the user never sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sample_cut import Cut

from pamcli.errors import InputError
from pamcli.inference.images import check_pair, to_network, to_pixels, to_plain
from pamcli.inference.matcher import StereoMatcher

FLOATS = np.random.default_rng(0).random((20, 30, 3))
BYTES = (FLOATS * 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param(BYTES, BYTES / 255, id="uint8"),
        pytest.param(BYTES.astype(np.uint16) * 257, BYTES / 255, id="uint16"),
        pytest.param(BYTES.astype(">u2") * 257, BYTES / 255, id="uint16 of another byte order"),
        pytest.param(FLOATS, FLOATS, id="float64"),
        pytest.param(FLOATS.astype(">f8"), FLOATS, id="float64 of another byte order"),
        pytest.param(FLOATS.astype(np.float16), FLOATS.astype(np.float16), id="float16"),
        pytest.param(FLOATS[::-1, ::-1, ::-1], FLOATS[::-1, ::-1, ::-1], id="flipped"),
        pytest.param(np.asfortranarray(BYTES), BYTES / 255, id="fortran"),
        pytest.param(np.full((20, 30, 3), 1 + 1e-12), np.ones((20, 30, 3)), id="rounded to the range"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_every_type_becomes_rgb_in_0_to_1(image: NDArray[np.generic], expected: NDArray[np.float64]) -> None:
    image.flags.writeable = False
    check_pair(image, image, 16)
    found = to_network(torch.from_numpy(to_plain(image)))
    assert found.shape == (1, 3, 20, 30)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    assert np.abs(found[0].permute(1, 2, 0).numpy() - expected).max() < 1e-7
    assert found.max() <= 1


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (FLOATS - 0.5, "has values from -0."),
        (FLOATS * 255, r"has values from .* floating-point images must be in \[0, 1\]"),
        (np.where(FLOATS > 0.9, np.nan, FLOATS), "contains NaN"),
        (BYTES > 9, "must be uint8, uint16 or floating-point, got bool"),
        (BYTES[..., 0], r"must be \(height, width, 3\), got \(20, 30\).*numpy.dstack"),
        (np.dstack((BYTES, BYTES[..., 0])), r"got \(20, 30, 4\).*image\[..., :3\]"),
        (BYTES.transpose(2, 0, 1), r"got \(3, 20, 30\).*transpose\(1, 2, 0\)"),
        (BYTES[None], r"got \(1, 20, 30, 3\) \(pass one pair at a time"),
        (BYTES[0, 0, 0], r"got \(\)"),
        ("left.png", r"must be a NumPy array, got str.*pamcli.read_image\(path\).pixels"),
        (torch.from_numpy(BYTES), "must be a NumPy array, got Tensor"),
        (BYTES[:, :15], "is 15x20: both sides must be at least 16 px"),
        (BYTES[:0], "is 30x0"),
    ],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_other_things_than_images_are_refused(image: Any, words: str, side: str) -> None:
    views = (image, BYTES) if side == "left" else (BYTES, image)
    with pytest.raises(InputError, match=f"the {side} image .*{words}") as caught:
        check_pair(*views, 16)
    assert caught.value.exit_code == 3


def test_images_of_different_sizes_are_refused() -> None:
    with pytest.raises(InputError, match=r"left image is 30x20 but the right image is 29x20.*pam rectify"):
        check_pair(BYTES, BYTES[:, 1:], 1)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, ">u2", np.float16, np.float32, np.float64])
def test_results_are_clamped_and_rounded(kind: Any) -> None:
    kind = np.dtype(kind)
    found = to_pixels(torch.tensor([-0.5, 0.0, 0.5, 1.0, 1.5]).expand(3, 2, 5), kind)
    largest = {1: 255, 2: 65535}[kind.itemsize] if kind.kind == "u" else 1
    expected = np.array([0, 0, largest / 2, largest, largest])
    if kind.kind == "u":
        expected = np.rint(expected)
    assert found.dtype == (torch.uint8 if kind == np.uint8 else torch.float32)
    assert np.array_equal(found.numpy().astype(kind), np.broadcast_to(expected[:, None], (2, 5, 3)))


@pytest.mark.parametrize(("height", "width"), [(16, 70), (31, 33), (32, 64), (63, 17)])
def test_padding_repeats_the_edge_at_the_top_and_the_right(height: int, width: int) -> None:
    image = np.random.default_rng(0).random((height, width, 3), np.float32)
    above, beside = -height % 32, -width % 32
    by_hand = np.pad(image, ((above, 0), (0, beside), (0, 0)), mode="edge").transpose(2, 0, 1)
    assert np.array_equal(to_network(torch.from_numpy(image), above, beside)[0].numpy(), by_hand)


def test_the_matcher_pads_as_one_would_by_hand(matcher: StereoMatcher, small: Cut) -> None:
    height, width = small.truth.shape
    sides = ((-height % 32, 0), (0, -width % 32), (0, 0))
    padded = [np.pad(view, sides, mode="edge") for view in (small.left, small.right)]
    assert padded[0].shape == (64, 96, 3)
    assert small.left.shape == (61, 90, 3)
    by_hand = matcher(*padded, extras={"confidence"})
    ours = matcher(small.left, small.right, extras={"confidence"})
    assert ours.confidence is not None
    assert by_hand.confidence is not None
    assert np.array_equal(ours.disparity, by_hand.disparity[3:, :90])
    assert np.array_equal(ours.confidence, by_hand.confidence[3:, :90])
