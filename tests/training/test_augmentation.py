"""Augmentation and faults of cameras change the images, and keep the truth true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from example_pairs import CROP, example, examples, pair, warp_error

from pamcli.errors import UsageError
from pamcli.training.augmentation import (
    FAULTS,
    Augmentation,
    Crop,
    choose_crop,
    erase_rectangle,
    flip_example,
    flip_randomly,
    jitter,
    mirror_example,
)
from pamcli.training.camera_faults import QUALITIES, apply_faults


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_mirrored_pair_is_a_pair() -> None:
    whole = example(pair())
    turned = mirror_example(whole)
    assert warp_error(turned) == 0
    assert np.array_equal(turned.left, whole.right[:, ::-1])
    assert np.array_equal(turned.disparity, whole.right_disparity[:, ::-1])
    assert turned.visible.sum() == whole.right_visible.sum()
    back = mirror_example(turned)
    for name, one, other in zip(whole._fields, back, whole, strict=True):
        assert np.array_equal(one, other), name


def test_upside_down_pairs_stay_pairs() -> None:
    whole = example(pair())
    turned = flip_example(whole)
    assert warp_error(turned) == 0
    assert np.array_equal(turned.left, whole.left[::-1])
    assert np.array_equal(turned.disparity, whole.disparity[::-1])
    assert np.array_equal(turned.visible, whole.visible[::-1])


def test_turns_come_as_often_as_is_asked() -> None:
    whole = example(pair())
    ways = {
        "not": whole.left,
        "mirrored": mirror_example(whole).left,
        "upside down": flip_example(whole).left,
        "both": mirror_example(flip_example(whole)).left,
    }
    counts = dict.fromkeys(ways, 0)
    for seed in range(400):
        turned = flip_randomly(rng(seed), whole, Augmentation(mirror=0.5, upside_down=0.25))
        (way,) = (way for way, left in ways.items() if np.array_equal(turned.left, left))
        counts[way] += 1
    for way, expected in (("not", 150), ("mirrored", 150), ("upside down", 50), ("both", 50)):
        assert abs(counts[way] - expected) < 35, counts


def test_pairs_with_left_ground_truth_only_are_not_mirrored() -> None:
    whole = example(pair())
    unknown = np.full_like(whole.disparity, np.nan)
    left_alone = whole._replace(right_disparity=unknown)
    assert flip_randomly(rng(), left_alone, Augmentation(mirror=1)) is left_alone
    unlabelled = left_alone._replace(disparity=unknown)
    assert np.array_equal(flip_randomly(rng(), unlabelled, Augmentation(mirror=1)).left, whole.right[:, ::-1])


def test_crops_lie_anywhere_in_the_image_on_their_grid() -> None:
    crops = [choose_crop(rng(seed), 50, 100, (20, 40), Augmentation(), grid=4) for seed in range(300)]
    assert {crop.top for crop in crops} == set(range(0, 29, 4))
    assert {crop.left for crop in crops} == set(range(0, 61, 4))
    assert all((crop.height, crop.width, crop.scale_x, crop.scale_y) == (20, 40, 1, 1) for crop in crops)


def test_scales_spread_over_their_range_and_are_stretched() -> None:
    many = Augmentation(smallest=0.5, largest=2, stretch=0.2)
    crops = [choose_crop(rng(seed), 400, 400, (20, 40), many) for seed in range(300)]
    scales = np.array([(crop.scale_x * crop.scale_y) ** 0.5 for crop in crops])
    ratios = np.array([crop.scale_x / crop.scale_y for crop in crops])
    assert 0.5 <= scales.min() < 0.55
    assert 1.8 < scales.max() <= 2
    assert 0.4 < (scales < 1).mean() < 0.6
    assert 1 / 1.2 - 1e-9 <= ratios.min() < 0.86
    assert 1.16 < ratios.max() <= 1.2 + 1e-9


@pytest.mark.parametrize("size", [(30, 200), (200, 30), (10, 10), (63, 127), (7, 400)])
def test_images_smaller_than_the_crop_are_upscaled_to_fit(size: tuple[int, int]) -> None:
    crop = choose_crop(rng(), *size, (64, 128), Augmentation())
    assert crop.scale_x == crop.scale_y == max(64 / size[0], 128 / size[1])
    assert crop.cut(np.zeros((*size, 3), np.uint8)).shape == (64, 128, 3)
    rows, columns = crop.find_pixels()
    assert rows[[0, -1]].tolist() <= [size[0], size[0] - 1]
    assert rows.max() < size[0]
    assert columns.max() < size[1]


@pytest.mark.parametrize(("scale_y", "scale_x"), [(1, 1), (0.5, 0.5), (2, 2), (1.37, 0.81), (0.3, 0.9)])
def test_cut_images_and_cut_truth_lie_on_each_other(scale_y: float, scale_x: float) -> None:
    """An image whose red is its column and green its row, scaled, tells where each pixel comes from."""
    height, width = 100, 200
    picture = np.stack(
        [*np.broadcast_arrays(np.arange(width)[None], np.arange(height)[:, None]), np.zeros((height, width))],
        axis=2,
    ).astype(np.uint8)
    crop = Crop(3, 7, 20, 40, scale_y, scale_x)
    found = crop.cut(picture).astype(float)
    inner = slice(4, -4), slice(4, -4)
    rows, columns = crop.find_pixels()
    assert np.abs(found[..., 0] - columns[None])[inner].max() <= 1
    assert np.abs(found[..., 1] - rows[:, None])[inner].max() <= 1
    assert np.abs((found[..., 0] - columns[None])[inner].mean()) < 0.51


def test_a_wider_crop_stays_in_the_image() -> None:
    crop = Crop(8, 4, 20, 40)
    assert crop.widen(8, 50, 100, 4) == Crop(0, 0, 36, 52)
    assert Crop(0, 0, 20, 40).widen(8, 31, 100, 4) == Crop(0, 0, 28, 48)
    assert Crop(28, 60, 20, 40).widen(8, 50, 100, 4) == Crop(20, 52, 28, 48)


def levels(picture: np.ndarray) -> np.ndarray:
    return np.asarray(picture, np.float64).mean((0, 1))


def test_light_is_shared_by_both_views_unless_it_is_of_one() -> None:
    view = example(pair()).left
    joint = Augmentation(brightness=0.5, contrast=0.3, gamma=0.3, colour=0.3)
    left, right = jitter(rng(1), view, view, joint)
    assert np.array_equal(left, right)
    assert not np.array_equal(left, view)
    apart = Augmentation(view_brightness=0.5, view_contrast=0.3, view_gamma=0.3, view_colour=0.3)
    left, right = jitter(rng(1), view, view, apart)
    assert np.abs(levels(left) - levels(right)).max() > 2
    assert np.corrcoef(left.ravel(), right.ravel())[0, 1] > 0.8


def test_light_is_what_it_is_called() -> None:
    """Each alone, on an image of three levels."""
    picture = np.broadcast_to(np.array([51, 102, 153], np.uint8), (4, 4, 3))

    def changed(**amounts: float) -> np.ndarray:
        results = [
            jitter(rng(seed), picture, picture, Augmentation(**amounts))[0][0, 0] for seed in range(60)
        ]
        return np.array(results, float)

    brighter = changed(brightness=0.25)
    assert np.abs(brighter / [51, 102, 153] - (brighter / [51, 102, 153])[:, :1]).max() < 0.02
    assert 0.79 < brighter[:, 0].min() / 51 < 0.83
    assert 1.2 < brighter[:, 0].max() / 51 < 1.27
    stronger = changed(contrast=0.5)
    distance = (stronger - 127.5) / [51 - 127.5, 102 - 127.5, 153 - 127.5]
    assert np.abs(distance - distance[:, :1]).max() < 0.04
    assert distance.max() > 1.3
    exponents = np.log(changed(gamma=0.5) / 255) / np.log(np.array([51, 102, 153]) / 255)
    assert np.abs(exponents - exponents[:, :1]).max() < 0.03
    assert exponents.min() < 0.8
    tints = changed(colour=0.25) / [51, 102, 153]
    assert np.abs(tints - tints[:, :1]).max() > 0.2


def test_colours_change_places_in_both_views_alike() -> None:
    whole = example(pair())
    orders = set()
    for seed in range(60):
        left, right = jitter(rng(seed), whole.left, whole.right, Augmentation(permute_colours=1))
        order = tuple(
            next(c for c in range(3) if np.array_equal(left[..., k], whole.left[..., c])) for k in range(3)
        )
        assert np.array_equal(right, whole.right[..., list(order)])
        orders.add(order)
    assert len(orders) == 6


def test_noise_and_blur_are_of_each_view() -> None:
    grey = np.full((64, 64, 3), 128, np.uint8)
    spreads = []
    for seed in range(30):
        left, right = jitter(rng(seed), grey, grey, Augmentation(noise=0.04))
        assert not np.array_equal(left, right)
        spreads.append(left.std())
    assert 0.04 * 255 * 0.8 < max(spreads) < 0.04 * 255 * 1.1
    edge = np.zeros((32, 32, 3), np.uint8)
    edge[:, 16:] = 200
    left, right = jitter(rng(3), edge, edge, Augmentation(blur=3))
    assert 0 < left[8, 15, 0] < 100
    assert not np.array_equal(left, right)
    assert left[8, 2, 0] == 0
    assert left[8, 29, 0] == 200


def test_an_erased_rectangle_occludes_its_matches() -> None:
    whole = example(pair())
    changed = erase_rectangle(rng(4), whole, Augmentation(erase=1))
    covered = np.isnan(changed.right_disparity)
    rows, columns = np.nonzero(covered)
    assert covered.sum() == (np.ptp(rows) + 1) * (np.ptp(columns) + 1) > 0
    assert np.array_equal(changed.right[~covered], whole.right[~covered])
    assert len(np.unique(changed.right[covered], axis=0)) == 1
    assert not changed.right_visible[covered].any()
    assert np.array_equal(changed.right_visible[~covered], whole.right_visible[~covered])
    match = (np.arange(96) - whole.disparity).astype(int).clip(0)
    hidden = np.take_along_axis(covered, match, 1)
    assert np.array_equal(changed.visible, whole.visible & ~hidden)
    assert np.array_equal(changed.disparity, whole.disparity), "what is hidden is known all the same"
    assert (whole.visible & hidden).any()
    erased = [erase_rectangle(rng(seed), whole, Augmentation(erase=0.3)) is not whole for seed in range(100)]
    assert 15 < sum(erased) < 45


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
