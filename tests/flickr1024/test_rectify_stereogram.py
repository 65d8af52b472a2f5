"""Stereograms become pairs whose truth is known."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
import pytest
from layered_scene import layered_pair, moved, side_by_side, texture

from pamcli.flickr1024.rectify_stereogram import (
    RectifiedPair,
    StereogramError,
    _decide_infinity,
    fit_rows,
    rectify_stereogram,
)
from pamcli.imaging.preflight import MATCH

PLANE = 15
"""Disparity of the plane of focus: the wall and the farthest disc lie behind it, the other discs before."""
DOWN, TURNED = 2.4, 0.4
LAYOUTS: list[Literal["cross", "parallel"]] = ["cross", "parallel"]


def stereogram(layout: str, down: float = 0.0, degrees: float = 0.0) -> np.ndarray:
    left, right, _ = layered_pair(seed=7)
    right = moved(right, down, degrees)
    views = [left[8:-8, PLANE + 8 : -8], right[8:-8, 8 : -PLANE - 8]]
    return side_by_side(*(views if layout == "parallel" else views[::-1]))


@cache
def rectified(layout: Literal["cross", "parallel"], down: float = 0.0, degrees: float = 0.0) -> RectifiedPair:
    return rectify_stereogram(stereogram(layout, down, degrees), infinity="no")


def source_places(result: RectifiedPair, layout: str) -> tuple[np.ndarray, np.ndarray]:
    """Source columns and rows that each pixel of the finished left and right view shows, (2, H, W)."""
    x, y = np.meshgrid(np.arange(result.left.shape[1]), np.arange(result.left.shape[0]))
    ones = np.stack([x, y, np.ones_like(x)])
    view_width = layered_pair(seed=7)[0].shape[1] - PLANE - 16
    corners = {0: (23, 12), 1: (40 + view_width, 31)}  # of side_by_side
    places = []
    for side, matrix in enumerate((result.left_map, result.right_map)):
        at = np.tensordot(matrix, ones, axes=1)
        corner = corners[side if layout == "parallel" else 1 - side]
        start = (PLANE + 8, 8) if side == 0 else (8, 8)
        places.append(at - np.array(corner)[:, None, None] + np.array(start)[:, None, None])
    return places[0], places[1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_views_come_out_in_the_right_order(layout: Literal["cross", "parallel"]) -> None:
    result = rectified(layout)
    assert result.layout == layout
    assert result.certainty > 0.9
    (x, y), _ = source_places(result, layout)
    source = layered_pair(seed=7)[0]
    np.testing.assert_array_equal(result.left, source[np.rint(y).astype(int), np.rint(x).astype(int)])


def test_the_smallest_disparity_of_a_close_shot_is_40() -> None:
    result = rectified("cross")
    (x, y), (right_x, _) = source_places(result, "cross")
    disparity = layered_pair(seed=7)[2][np.rint(y).astype(int), np.rint(x).astype(int)]
    finished = disparity + (right_x - x)[0, 0]
    assert result.infinity == "no"
    assert finished.min() == 40
    assert result.smallest_disparity == pytest.approx(40, abs=1)
    assert result.largest_disparity == pytest.approx(finished.max(), abs=1.5)
    assert result.shift == 40 - 8 + PLANE


def test_a_vertical_offset_and_a_rotation_are_undone() -> None:
    layout = "parallel"
    result = rectified(layout, DOWN, TURNED)
    assert result.layout == layout
    assert result.vertical_offset == pytest.approx(DOWN, abs=0.3)
    assert result.rotation == pytest.approx(TURNED, abs=0.05)
    (_, y), (right_x, right_y) = source_places(result, layout)
    # what the right view shows, before it was moved and turned
    height, width = layered_pair(seed=7)[0].shape[:2]
    angle, middle = np.deg2rad(TURNED), ((width - 1) / 2, (height - 1) / 2)
    across, along = right_x - middle[0], right_y - middle[1] - DOWN
    straight_y = middle[1] - np.sin(angle) * across + np.cos(angle) * along
    assert np.abs(straight_y - y).max() < 0.5
    assert np.abs(straight_y - y).mean() < 0.2


def test_both_sides_are_multiples_of_12_and_no_border_is_left() -> None:
    for result in (rectified("cross"), rectified("parallel", DOWN, TURNED)):
        assert result.left.shape == result.right.shape
        assert result.left.shape[0] % 12 == result.left.shape[1] % 12 == 0
        assert result.left.shape[0] >= 192
        for view in (result.left, result.right):
            edges = (view[0], view[-1], view[:, 0], view[:, -1])
            assert min(edge.mean() for edge in edges) > 20


def test_16_bits_stay_and_a_stated_layout_is_used_as_is_infinity() -> None:
    picture = stereogram("parallel").astype(np.uint16) * 257
    result = rectify_stereogram(picture, layout="cross", infinity="yes")
    assert (result.layout, result.certainty) == ("cross", 1.0)
    assert result.smallest_disparity == pytest.approx(0, abs=1)
    assert result.left.dtype == np.uint16
    x, y = (result.left_map @ [50, 60, 1]).astype(int)  # the map names the place of every pixel
    np.testing.assert_array_equal(result.left[60, 50], picture[y, x])


def test_rows_are_fitted_in_spite_of_wrong_matches() -> None:
    rng = np.random.default_rng(5)
    x, y, disparity = rng.uniform(0, 599, 400), rng.uniform(0, 399, 400), rng.uniform(-40, 60, 400)
    dy = 2 + 0.006 * (x - 299.5) + 0.001 * (y - 199.5) - 0.004 * disparity + rng.normal(0, 0.15, 400)
    dy[:140] += rng.uniform(-9, 9, 140)
    fit = fit_rows(np.rec.fromarrays([x, y, disparity, dy], MATCH), (400, 600))
    assert (fit.offset, fit.zoom) == (pytest.approx(2, abs=0.1), pytest.approx(0.001, abs=3e-4))
    assert fit.rotation == pytest.approx(0.006, abs=2e-4)
    assert fit.second_rotation == pytest.approx(0.004, abs=1.5e-3)


def outdoors(sky: tuple[int, int, int], rows: int = 20) -> np.ndarray:
    """A view (60, 80, 3) of gravel below a plain sky."""
    view = texture(np.random.default_rng(0), (60, 80), 90)
    view[:rows] = sky
    return view


@pytest.mark.parametrize(
    ("sky", "rows", "near", "expected"),
    [
        ((200, 215, 235), 10, False, "yes"),
        ((200, 215, 235), 10, True, None),  # much that is near below a sky: it may be a white wall
        ((200, 215, 235), 0, True, "no"),
        ((235, 215, 180), 10, True, "no"),  # reddish: a lit wall
        ((200, 215, 235), 0, False, None),  # a street without sky, or a deep room
        ((200, 215, 235), 50, False, None),
    ],
)
def test_infinity_is_found_where_the_image_tells(
    sky: tuple[int, int, int], rows: int, near: bool, expected: str | None
) -> None:
    far = np.linspace(0, 1, 1000, dtype=np.float32) ** 2 * 50
    assert _decide_infinity(outdoors(sky, rows), 50 - far if near else far, 0, 50) == expected


def test_a_image_that_does_not_tell_is_set_aside() -> None:
    with pytest.raises(StereogramError, match="infinitely far or near"):
        rectify_stereogram(stereogram("parallel"), infinity="auto")


def unrelated() -> np.ndarray:
    rng = np.random.default_rng(0)
    return side_by_side(texture(rng, (200, 260), 90), texture(rng, (200, 260), 90))


def flat() -> np.ndarray:
    """A wall without anything before it: in either order it is as good."""
    wall = texture(np.random.default_rng(0), (200, 300), 90)
    return side_by_side(wall[:, :280], wall[:, 20:])


def far_apart() -> np.ndarray:
    wall = texture(np.random.default_rng(0), (260, 300), 90)
    return side_by_side(wall[:238], wall[22:])


@pytest.mark.parametrize(
    ("picture", "reason"),
    [
        (unrelated(), "the halves differ"),
        (flat(), "order of the views is unclear"),
        (far_apart(), "rows apart"),
        (np.full((200, 500, 3), 128, np.uint8), "single colour"),
        (stereogram("cross")[60:150, 130:420], "too small"),
    ],
    ids=["unrelated", "flat", "far apart", "plain", "small"],
)
def test_what_cannot_be_used_is_set_aside_with_one_reason(picture: np.ndarray, reason: str) -> None:
    with pytest.raises(StereogramError, match=reason) as caught:
        rectify_stereogram(picture, infinity="no")
    assert "\n" not in str(caught.value)
