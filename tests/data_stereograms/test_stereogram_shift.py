"""The smallest disparity, the rule, and the shift that follows."""

from __future__ import annotations

import numpy as np
import pytest
from layered_scene import texture

from pamcli.data.stereograms.shift import (
    choose_rule,
    disparity_range,
    shift_for,
    sky_share,
    trusted_disparities,
)


def outdoors(sky: tuple[int, int, int] = (200, 215, 235), rows: int = 30) -> np.ndarray:
    view = texture(np.random.default_rng(0), (150, 200), 100)
    view[:rows] = sky
    return view


def test_a_few_wrong_matches_do_not_make_the_range() -> None:
    values = np.concatenate([np.linspace(5, 60, 5000), np.full(30, -200.0)]).astype(np.float32)
    assert disparity_range(values) == pytest.approx((5.2, 59.5), abs=0.5)
    assert disparity_range(values[:100]) is None


def test_disparities_of_plain_hidden_and_rough_places_are_not_trusted() -> None:
    grey = np.random.default_rng(0).uniform(0, 255, (60, 80)).astype(np.float32)
    grey[:, :20] = 99
    disparity = np.full((60, 80), 7, np.float32)
    disparity[:20] += np.random.default_rng(1).uniform(-30, 30, (20, 80))
    seen = np.ones((60, 80), bool)
    seen[40:] = False
    trusted = trusted_disparities(disparity, seen, grey)
    assert trusted.size == pytest.approx(18 * 62, rel=0.03)
    np.testing.assert_array_equal(trusted, 7)


def test_a_sky_is_bright_plain_and_not_reddish() -> None:
    assert sky_share(outdoors()) == pytest.approx(0.57, abs=0.05)
    assert sky_share(outdoors(sky=(235, 215, 180))) == 0
    assert sky_share(outdoors(sky=(40, 50, 60))) == 0
    assert sky_share(outdoors(rows=0)) == 0


def test_infinity_is_taken_from_a_sky_above_much_that_is_far() -> None:
    far = np.linspace(0, 1, 1000, dtype=np.float32) ** 2 * 50
    near = 50 - far
    view = outdoors(rows=20)
    assert choose_rule(view, far, 0, 50) == "infinity"
    assert choose_rule(view, near, 0, 50) == "close"
    assert choose_rule(outdoors(rows=0), far, 0, 50) == "close"
    assert choose_rule(outdoors(rows=50), far, 0, 50) == "close"  # a white wall fills the upper third


def test_the_smallest_disparity_becomes_0_or_40() -> None:
    assert shift_for("infinity", -23.4) == 23
    assert shift_for("close", -23.4) == 63
    assert shift_for("close", 52.0) == -12
