"""Both views in one image."""

from __future__ import annotations

import numpy as np
import pytest

from pamcli.files.suffixes import Packing
from pamcli.imaging.images import RgbImage, encode_image
from pamcli.imaging.stereo_pair import compute_packed_size, pack_views, read_packed_pair

RNG = np.random.default_rng(0)
LEFT, RIGHT = (RgbImage(RNG.integers(0, 256, (6, 8, 3), np.uint8), icc_profile=name) for name in (b"l", b"r"))


@pytest.mark.parametrize("packing", ["lr", "rl", "tb", "bt"])
def test_what_is_packed_is_read_again(packing: Packing) -> None:
    both = pack_views(LEFT, RIGHT, packing)
    assert both.pixels.shape[:2] == compute_packed_size(6, 8, packing)
    assert both.icc_profile == b"l"
    data = encode_image(both, ".png", name="both")
    pair = read_packed_pair(data, packing, max_pixels=None, name="both")  # type: ignore[arg-type]
    assert np.array_equal(pair.left.pixels, LEFT.pixels)
    assert np.array_equal(pair.right.pixels, RIGHT.pixels)


def test_a_view_without_alpha_is_opaque_beside_one_with() -> None:
    alpha = RNG.integers(0, 256, (6, 8), np.uint8)
    both = pack_views(LEFT, RgbImage(RIGHT.pixels, alpha), "lr")
    assert both.alpha is not None
    assert np.array_equal(both.alpha, np.concatenate([np.full((6, 8), 255), alpha], axis=1))


def test_red_cyan() -> None:
    grey = RgbImage(np.repeat(LEFT.pixels[..., :1], 3, axis=2), LEFT.pixels[..., 0], grey=True)
    both = pack_views(grey, RIGHT, "red-cyan")
    assert (both.alpha, both.grey) == (None, False)
    assert compute_packed_size(6, 8, "red-cyan") == (6, 8)
    assert np.array_equal(both.pixels[..., 0], grey.pixels[..., 0])
    assert np.array_equal(both.pixels[..., 1:], RIGHT.pixels[..., 1:])


@pytest.mark.parametrize("packing", ["lr", "red-cyan"])
@pytest.mark.parametrize("deep", ["left", "right"])
def test_views_of_unlike_depth_become_16_bits(packing: Packing, deep: str) -> None:
    views = {"left": LEFT, "right": RIGHT}
    views[deep] = RgbImage(views[deep].pixels.astype(np.uint16) * 257)
    both = pack_views(views["left"], views["right"], packing)
    assert np.array_equal(both.pixels, pack_views(LEFT, RIGHT, packing).pixels.astype(np.uint16) * 257)


def test_a_profile_of_grey_levels_stays_with_them() -> None:
    grey = RgbImage(np.repeat(LEFT.pixels[..., :1], 3, axis=2), grey=True, icc_profile=b"levels")
    assert pack_views(grey, grey, "lr").icc_profile == b"levels"
    assert pack_views(grey, grey, "red-cyan").icc_profile is None
    assert pack_views(grey, RIGHT, "lr").icc_profile is None
