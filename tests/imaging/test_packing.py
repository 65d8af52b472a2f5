"""Both views in one picture."""

from __future__ import annotations

import numpy as np
import pytest

from pamcli.files.suffixes import Packing
from pamcli.imaging.images import Picture, encode_picture
from pamcli.imaging.stereo_pair import packed, packed_size, read_packed_pair

RNG = np.random.default_rng(0)
LEFT, RIGHT = (Picture(RNG.integers(0, 256, (6, 8, 3), np.uint8), icc_profile=name) for name in (b"l", b"r"))


@pytest.mark.parametrize("packing", ["lr", "rl", "tb", "bt"])
def test_what_is_packed_is_read_again(packing: Packing) -> None:
    both = packed(LEFT, RIGHT, packing)
    assert both.pixels.shape[:2] == packed_size(6, 8, packing)
    assert both.icc_profile == b"l"
    data = encode_picture(both, ".png", name="both")
    pair = read_packed_pair(data, packing, max_pixels=None, name="both")  # type: ignore[arg-type]
    assert np.array_equal(pair.left.pixels, LEFT.pixels)
    assert np.array_equal(pair.right.pixels, RIGHT.pixels)


def test_a_view_without_alpha_is_opaque_beside_one_with() -> None:
    alpha = RNG.integers(0, 256, (6, 8), np.uint8)
    both = packed(LEFT, Picture(RIGHT.pixels, alpha), "lr")
    assert both.alpha is not None
    assert np.array_equal(both.alpha, np.concatenate([np.full((6, 8), 255), alpha], axis=1))


def test_red_cyan() -> None:
    grey = Picture(np.repeat(LEFT.pixels[..., :1], 3, axis=2), LEFT.pixels[..., 0], grey=True)
    both = packed(grey, RIGHT, "red-cyan")
    assert (both.alpha, both.grey) == (None, False)
    assert packed_size(6, 8, "red-cyan") == (6, 8)
    assert np.array_equal(both.pixels[..., 0], grey.pixels[..., 0])
    assert np.array_equal(both.pixels[..., 1:], RIGHT.pixels[..., 1:])


@pytest.mark.parametrize("packing", ["lr", "red-cyan"])
@pytest.mark.parametrize("deep", ["left", "right"])
def test_views_of_unlike_depth_become_16_bits(packing: Packing, deep: str) -> None:
    views = {"left": LEFT, "right": RIGHT}
    views[deep] = Picture(views[deep].pixels.astype(np.uint16) * 257)
    both = packed(views["left"], views["right"], packing)
    assert np.array_equal(both.pixels, packed(LEFT, RIGHT, packing).pixels.astype(np.uint16) * 257)


def test_a_profile_of_grey_levels_stays_with_them() -> None:
    grey = Picture(np.repeat(LEFT.pixels[..., :1], 3, axis=2), grey=True, icc_profile=b"levels")
    assert packed(grey, grey, "lr").icc_profile == b"levels"
    assert packed(grey, grey, "red-cyan").icc_profile is None
    assert packed(grey, RIGHT, "lr").icc_profile is None
