"""Tests of finding the two views in a side-by-side image."""

from __future__ import annotations

import numpy as np
import pytest
from layered_scene import side_by_side, texture

from pamcli.flickr1024.rectify_stereogram import StereogramError, find_views


def two_textures(height: int = 150, width: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return texture(rng, (height, width), 90), texture(rng, (height, width), 160)


def half_a_view() -> np.ndarray:
    view = two_textures()[1]
    view[80:] = 0
    return view


@pytest.mark.parametrize(("colour", "deep"), [(0, False), (255, True), (128, False)])
def test_borders_of_unequal_width_are_cut_and_little_else(colour: int, deep: bool) -> None:
    picture = side_by_side(*two_textures(), colour=colour)
    boxes = find_views(picture.astype(np.uint16) * 257 if deep else picture)
    for box, left, top in zip(boxes, (23, 240), (12, 31), strict=True):
        assert 0 <= box.left - left <= 3
        assert 0 <= box.top - top <= 3
        assert box.size[0] >= 144
        assert box.size[1] >= 194
    assert boxes[0].size == boxes[1].size


def test_without_a_gap_the_views_are_parted_at_the_seam() -> None:
    first, second = two_textures()
    boxes = find_views(np.concatenate([first, second[:, 4:]], axis=1))  # the seam is not in the middle
    assert boxes[0].right <= 200 <= boxes[1].left <= 204
    assert boxes[0].size[1] >= 194


@pytest.mark.parametrize(
    ("picture", "reason"),
    [
        (np.zeros((300, 600, 3), np.uint8), "single colour"),
        (np.random.default_rng(0).integers(0, 256, (8, 3, 3), np.uint8), "too small for two views"),
        (side_by_side(*two_textures(100, 110)), "the views are 106x96, too small"),
        (side_by_side(two_textures()[0], half_a_view()), "does not hold two views side by side"),
    ],
)
def test_what_holds_no_two_views_is_set_aside(picture: np.ndarray, reason: str) -> None:
    with pytest.raises(StereogramError, match=reason):
        find_views(picture)
