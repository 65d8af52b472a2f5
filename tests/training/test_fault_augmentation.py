"""Faults of real cameras: each changes the images as it says, and none changes the ground truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from example_pairs import CROP, examples, pair

from pamcli.errors import UsageError
from pamcli.training.augmentation import FAULTS, Augmentation
from pamcli.training.camera_faults import QUALITIES, apply_faults

GREY = np.full((48, 96, 3), 100, np.uint8)


def apply(
    seed: int, left: np.ndarray = GREY, right: np.ndarray = GREY, **settings: float
) -> list[np.ndarray]:
    views = apply_faults(np.random.default_rng(seed), left, right, Augmentation(**settings))
    assert all(view.shape == left.shape and view.dtype == np.uint8 for view in views)
    return [view.astype(float) for view in views]


def test_without_settings_no_image_changes() -> None:
    assert all(np.array_equal(view, GREY) for view in apply(0))


def test_cameras_differ_in_exposure_and_white_balance() -> None:
    gains = np.array([[view[0, 0] / 100 for view in apply(seed, camera_difference=1)] for seed in range(60)])
    assert 1 / 1.9 < gains.min() < 0.8
    assert 1.25 < gains.max() < 1.85
    assert np.abs(gains[:, 0] - gains[:, 1]).max() > 0.3
    assert np.ptp(gains, axis=2).max() > 0.15, "channels differ"


def test_highlights_brighten_and_have_a_disparity_of_their_own() -> None:
    moved = []
    for seed in range(30):
        left, right = (view.mean(2) for view in apply(seed, highlights=1))
        assert left.min() >= 100
        if left.max() > 110 and right.max() > 110:
            rows, columns = zip(
                *(np.unravel_index(view.argmax(), view.shape) for view in (left, right)), strict=True
            )
            moved.append(int(columns[0]) - int(columns[1]) if abs(int(rows[0]) - int(rows[1])) < 2 else 0)
    assert len(moved) > 10
    assert len(set(moved)) > 4


def test_flares_add_light_at_other_places_in_the_two_images() -> None:
    for seed in range(10):
        left, right = apply(seed, flare=1)
        assert min(left.min(), right.min()) >= 100
        assert np.abs(left - right).max() > 3


def test_vignetting_darkens_the_corners_by_at_most_a_half() -> None:
    white = np.full((48, 96, 3), 255, np.uint8)
    for seed in range(10):
        left, right = apply(seed, white, white, vignetting=1)
        for view in (left, right):
            corners = view[[0, 0, -1, -1], [0, -1, 0, -1], 0]
            assert view[24, 48, 0] > 230 > corners.min()
            assert corners.min() > 255 * 0.3
        assert not np.array_equal(left, right)


def test_low_contrast_compresses_the_levels_of_both_images_alike() -> None:
    view = pair().left
    for seed in range(10):
        left, right = apply(seed, view, view, low_contrast=1)
        assert 0.29 < left.std() / view.std() < 0.81
        assert np.array_equal(left, right)


def test_sensor_noise_grows_with_brightness() -> None:
    view = np.full((48, 96, 3), 20, np.uint8)
    view[:, 48:] = 220
    for seed in range(5):
        left, right = (each - view for each in apply(seed, view, view, sensor_noise=1))
        assert 1.5 * left[:, :48].std() < left[:, 48:].std() < 20
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 0.2


def test_jpeg_leaves_traces_of_blocks() -> None:
    view = pair().left
    errors = [np.abs(apply(seed, view, view, jpeg=1)[0] - view).mean() for seed in range(12)]
    assert 0 < min(errors) < max(errors) < 20
    assert max(errors) > 1.3 * min(errors), f"qualities vary from {QUALITIES[0]} to {QUALITIES[1]}"


def test_cheap_cameras_blur_add_noise_or_darken() -> None:
    stripes = np.tile(np.array([40, 200], np.uint8).repeat(8)[None, :, None], (48, 6, 3))
    views = [apply(seed, stripes, stripes, cheap_camera=1) for seed in range(40)]
    contrasts = [np.abs(np.diff(left[..., 1], axis=1)).max() for left, _ in views]
    assert min(contrasts) < 60 < 100 < max(contrasts) <= 200
    means = [left.mean() / stripes.mean() for left, _ in views]
    assert sum(0.95 < mean < 1.05 for mean in means) > 30
    assert min(means) < 0.55, "some are dark"
    assert sum(np.array_equal(left, right) for left, right in views) < 20, "noise differs"


def test_rows_of_the_right_image_shift_by_less_than_a_pixel() -> None:
    ramp = np.repeat(4 * np.arange(48, dtype=np.uint8)[:, None, None], 96, 1).repeat(3, 2)
    shifts = []
    for seed in range(40):
        left, right = apply(seed, ramp, ramp, row_shift=0.7)
        assert np.array_equal(left, ramp)
        shifts.append((left - right)[8:-8].mean() / 4)
    assert -0.7 - 1 / 8 < min(shifts) < -0.4, "levels are rounded"
    assert 0.4 < max(shifts) < 0.7 + 1 / 8
    with pytest.raises(UsageError, match="row_shift"):
        Augmentation(row_shift=0.8)


@pytest.mark.parametrize("fault", FAULTS)
def test_ground_truth_and_other_random_choices_stay_the_same(fault: str) -> None:
    usual = Augmentation(mirror=0.5, brightness=0.2, noise=0.01, erase=0.5)
    faulty = replace(usual, **{fault: 0.7})
    plain, changed = (examples(pair(64, 128), augmentation=each, crop=CROP) for each in (usual, faulty))
    differ = 0
    for position in range(6):
        one, other = plain[position], changed[position]
        for name in ("disparity", "right_disparity", "visible", "right_visible"):
            assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan="disp" in name)
        differ += not (np.array_equal(one.left, other.left) and np.array_equal(one.right, other.right))
    assert differ > 2
