"""The fit of the rows, and the resampling that undoes it."""

from __future__ import annotations

import numpy as np
import pytest
from layered_scene import moved, texture

from pamcli.data.stereograms.geometry import Points, fit_rows, measured, resampled, turned

SIZE = (400, 600)


def points(wrong: float = 0.0) -> tuple[Points, np.ndarray]:
    """Places with dy = 2 + 0.006 x + 0.001 y - 0.004 disparity about the middle, a share of them anywhere."""
    rng = np.random.default_rng(5)
    x, y, disparity = rng.uniform(0, 599, 400), rng.uniform(0, 399, 400), rng.uniform(-40, 60, 400)
    dy = 2 + 0.006 * (x - 299.5) + 0.001 * (y - 199.5) - 0.004 * disparity + rng.normal(0, 0.15, 400)
    bad = np.arange(400) < wrong * 400
    dy[bad] += rng.uniform(-9, 9, bad.sum())
    return Points(x, y, disparity, dy), bad


@pytest.mark.parametrize("wrong", [0.0, 0.35])
def test_offset_rotations_and_zoom_are_told_apart_in_spite_of_wrong_matches(wrong: float) -> None:
    given, bad = points(wrong)
    fit = fit_rows(given, SIZE)
    assert fit.offset == pytest.approx(2, abs=0.1)
    assert fit.rotation == pytest.approx(0.006, abs=2e-4)
    assert fit.zoom == pytest.approx(0.001, abs=3e-4)
    assert fit.second_rotation == pytest.approx(0.004, abs=1.5e-3)
    assert fit.inliers[~bad].mean() > 0.98
    assert fit.residual < 0.2


def test_measured_places_are_right_to_a_tenth_of_a_pixel() -> None:
    view = texture(np.random.default_rng(2), (120, 160), 100)
    other = moved(view, down=1.4, degrees=0)
    first, second = (picture.mean(axis=2).astype(np.float32) for picture in (view, other))
    guess = Points(np.array([40.0, 80, 110]), np.array([50.0, 60, 70]), np.zeros(3), np.zeros(3))
    found = measured(first, second, guess, reach_x=3, reach_y=3)
    assert len(found) == 3
    np.testing.assert_allclose(found.dy, 1.4, atol=0.1)
    np.testing.assert_allclose(found.disparity, 0, atol=0.1)


def test_places_too_near_to_the_edge_are_left_out() -> None:
    view = np.random.default_rng(0).uniform(0, 255, (60, 60)).astype(np.float32)
    guess = Points(np.array([5.0, 30]), np.array([30.0, 30]), np.zeros(2), np.zeros(2))
    assert list(measured(view, view, guess, reach_x=2, reach_y=2).x) == [30]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_resampled_pixel_shows_the_place_that_the_map_names(kind: type) -> None:
    y, x = np.mgrid[:80, :120].astype(np.float64)
    unit = 1 if kind is np.uint8 else 200
    picture = (np.stack([x, y, x + y], axis=2) * unit).astype(kind)
    places = turned((80, 120), np.deg2rad(3), zoom=0.02, offset=2.3)
    found = resampled(picture, places, (40, 50))
    rows, columns = np.mgrid[20:35, 20:45]
    at_x, at_y = np.tensordot(places[:, :2], np.stack([columns, rows]), axes=1) + places[:, 2, None, None]
    wanted = np.stack([at_x, at_y, at_x + at_y], axis=2) * unit
    assert found.dtype == kind
    assert np.abs(found[20:35, 20:45] - wanted).max() < 0.51  # rounded


def test_turning_there_and_back_keeps_the_picture() -> None:
    picture = texture(np.random.default_rng(1), (100, 140), 128)
    there = resampled(picture, turned((100, 140), 0.01, offset=1.5), (100, 140))
    back = resampled(there, turned((100, 140), -0.01, offset=-1.5), (100, 140))
    difference = back.astype(float) - picture
    assert np.sqrt((difference[10:-10, 10:-10] ** 2).mean()) < 3
    assert np.sqrt(((there.astype(float) - picture)[10:-10, 10:-10] ** 2).mean()) > 10


def test_whole_pixel_moves_are_copied_not_resampled() -> None:
    picture = np.random.default_rng(0).integers(0, 65536, (20, 30, 3)).astype(np.uint16)
    moved_by = np.array([[1.0, 0, 4], [0, 1, 3]])
    np.testing.assert_array_equal(resampled(picture, moved_by, (10, 12)), picture[3:13, 4:16])
