"""Tests of upsampling along edges: sharp at image edges, without invented values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pamcli.imaging import resize
from pamcli.imaging.resize import resize_area, upsample_along_edges

Pixels = NDArray[np.uint8]
BLACK, WHITE = 20, 230


def halves(edge: int, height: int = 64, width: int = 96) -> Pixels:
    """Black to the left of a column, white from it on."""
    view = np.full((height, width, 3), BLACK, np.uint8)
    view[:, edge:] = WHITE
    return view


def reduced(view: Pixels, times: int) -> Pixels:
    return np.asarray(resize_area(view, view.shape[1] // times, view.shape[0] // times), np.uint8)


def nearest(values: NDArray[np.float32], times: int) -> NDArray[np.float32]:
    """The middle one of each block."""
    return values[times // 2 :: times, times // 2 :: times].copy()


def test_a_plane_stays_one_whatever_is_painted_on_it() -> None:
    y, x = np.mgrid[:64, :96].astype(np.float32)
    plane = 10 + 0.08 * x - 0.05 * y
    view = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    small = plane.reshape(16, 4, 24, 4).mean((1, 3))
    (found,) = upsample_along_edges(small, [], reduced(view, 4), view)
    inside = slice(2, -2), slice(2, -2)
    np.testing.assert_allclose(found[inside], plane[inside], atol=1e-4)
    assert found.min() >= small.min() - 1e-4
    assert found.max() <= small.max() + 1e-4


@pytest.mark.parametrize("edge", [44, 47])
def test_a_step_lies_where_the_colours_change(edge: int) -> None:
    """The step is found to the pixel between the reduced ones; to two where those are off by one."""
    view = halves(edge)
    truth = np.where(view[..., 0] == WHITE, np.float32(20), np.float32(3))
    small = nearest(truth, 4)
    for columns, wrong in ((0, 0), (1, 2), (-1, 2)):
        moved = np.roll(small, columns, axis=1)
        moved[:, :3], moved[:, -3:] = 3, 20
        (found,) = upsample_along_edges(moved, [], reduced(view, 4), view)
        assert (np.abs(found - truth) > 1e-4).sum(1).max() <= wrong


def test_nothing_is_made_up_between_surfaces() -> None:
    """Three surfaces, each with a confidence of its own, and colours that say nothing."""
    random = np.random.default_rng(1)
    surface = random.integers(0, 3, (20, 30))
    disparity = np.array([2.0, 11.0, 40.0], np.float32)[surface]
    sure = np.array([0.2, 0.5, 0.9], np.float32)[surface]
    view = random.integers(0, 256, (90, 135, 3), np.uint8)
    found, confidence = upsample_along_edges(
        disparity, [sure], random.integers(0, 256, (20, 30, 3), np.uint8), view
    )
    found = found.round(4)
    assert set(np.unique(found)) == {2, 11, 40}
    assert np.unique(found, return_counts=True)[1].min() > 1000
    expected = np.select([found == 2, found == 11], [0.2, 0.5], 0.9)
    np.testing.assert_allclose(confidence, expected, atol=1e-6)


@pytest.mark.parametrize("size", [(61, 90), (200, 97)])
def test_strips_make_no_difference(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    small = random.choice(np.array([2, 2.5, 9, 30], np.float32), (17, 25))
    sure = random.random((17, 25), np.float32)
    colours, view = (random.integers(0, 256, (*each, 3), np.uint8) for each in ((17, 25), size))
    whole = upsample_along_edges(small, [sure], colours, view)
    assert [each.shape for each in whole] == [size, size]
    for rows in (1, 7):
        told: list[int] = []
        monkeypatch.setattr(resize, "PIXELS_AT_ONCE", rows * size[1])
        strips = upsample_along_edges(small, [sure], colours, view, done=told.append)
        assert len(told) == -(-size[0] // rows)
        for one, other in zip(whole, strips, strict=True):
            np.testing.assert_array_equal(one, other)
        assert told[-1] == size[0]


def test_a_thin_thing_is_as_thin_as_it_is() -> None:
    view = halves(1000)
    view[:, 41:44] = WHITE  # three pixels, all of them in one reduced pixel
    truth = np.where(view[..., 0] == WHITE, np.float32(20), np.float32(3))
    (found,) = upsample_along_edges(nearest(truth, 4), [], reduced(view, 4), view)
    np.testing.assert_allclose(found, truth, atol=1e-4)
