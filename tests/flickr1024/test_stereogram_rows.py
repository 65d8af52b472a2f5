"""The fit of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from pamcli.flickr1024.rectify_stereogram import fit_rows
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
