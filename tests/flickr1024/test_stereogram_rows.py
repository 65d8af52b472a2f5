"""The fit of the rows, and the resampling that undoes it."""

from __future__ import annotations

import numpy as np
import pytest

from pamcli.flickr1024.rectify_stereogram import fit_rows, make_rotation_map, warp_view
from pamcli.imaging.matching import Matches


@pytest.mark.parametrize("wrong", [0.0, 0.35])
def test_offset_rotations_and_zoom_are_told_apart_in_spite_of_wrong_matches(wrong: float) -> None:
    rng = np.random.default_rng(5)
    x, y, disparity = rng.uniform(0, 599, 400), rng.uniform(0, 399, 400), rng.uniform(-40, 60, 400)
    dy = 2 + 0.006 * (x - 299.5) + 0.001 * (y - 199.5) - 0.004 * disparity + rng.normal(0, 0.15, 400)
    bad = np.arange(400) < wrong * 400
    dy[bad] += rng.uniform(-9, 9, bad.sum())
    fit = fit_rows(Matches(x, y, disparity, dy), (400, 600))
    assert fit.offset == pytest.approx(2, abs=0.1)
    assert fit.rotation == pytest.approx(0.006, abs=2e-4)
    assert fit.zoom == pytest.approx(0.001, abs=3e-4)
    assert fit.second_rotation == pytest.approx(0.004, abs=1.5e-3)
    assert fit.inliers[~bad].mean() > 0.98
    assert fit.residual < 0.2


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_resampled_pixel_shows_the_place_that_the_map_names(kind: type) -> None:
    y, x = np.mgrid[:80, :120].astype(np.float64)
    unit = 1 if kind is np.uint8 else 200
    picture = (np.stack([x, y, x + y], axis=2) * unit).astype(kind)
    places = make_rotation_map((80, 120), np.deg2rad(3), zoom=0.02, offset=2.3)
    found = warp_view(picture, places)
    rows, columns = np.mgrid[20:60, 20:100]
    at_x, at_y = np.tensordot(places[:, :2], np.stack([columns, rows]), axes=1) + places[:, 2, None, None]
    wanted = np.stack([at_x, at_y, at_x + at_y], axis=2)
    assert found.dtype == kind
    # OpenCV rounds a place and the weights there: 1/16 pixel along each axis at most; and half a level.
    off = np.abs(found[20:60, 20:100] / unit - wanted).max(axis=(0, 1))
    assert (off < np.array([1, 1, 2]) / 16 + 0.5 / unit).all()
