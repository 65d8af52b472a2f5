"""A right view drawn from a left one: its truth is true, and what comes into sight is the pair's own."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from example_pairs import CROP, Made, example, examples, pair, warp_error

from pamcli.data.source import Sample
from pamcli.training import view_synthesis
from pamcli.training.augmentation import Augmentation, Crop, Example
from pamcli.training.view_synthesis import fill_gaps, synthesize_right_view

UNKNOWN = np.nan


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def left_alone(sample: Sample) -> Sample:
    return dataclasses.replace(sample, right_disparity=None)


@pytest.fixture
def at_its_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_synthesis, "NEARER", 1.0)


def drawn(sample: Sample, seed: int = 0) -> Example:
    """The whole pair, its right view drawn anew; right pixels are visible where the left view sees them."""
    left = np.asarray(sample.left, np.uint8)
    right, *truths, visible = synthesize_right_view(
        rng(seed), left, np.asarray(sample.right, np.uint8), sample.disparity
    )
    match = np.arange(left.shape[1]) + truths[1]
    return Example(left, right, *truths, visible, match <= left.shape[1] - 1)


@pytest.mark.usefixtures("at_its_baseline")
def test_at_the_own_baseline_the_right_image_is_the_pairs_own() -> None:
    sample = pair(near=16)
    made, true = drawn(sample), example(sample)
    inside = slice(None), slice(0, 96 - 16)  # beyond, the left view sees nothing, and the wall goes on
    difference = np.abs(made.right.astype(int) - true.right.astype(int)).mean(2)
    assert difference[inside].mean() < 2, "half a sample of a pixel is what drawing blurs"
    hidden = np.isnan(made.right_disparity[inside])
    assert hidden.sum() >= 24 * 12, "the board uncovers twelve columns of the wall in 24 rows"
    assert difference[inside][hidden].mean() < 2


def test_pixels_that_both_views_see_look_alike_by_any_baseline() -> None:
    largest = [float(np.nanmax(drawn(pair(near=10, far=3), seed).disparity)) for seed in range(30)]
    assert 10 / 1.6 - 1e-3 <= min(largest) < 7 < 14 < max(largest) <= 16 + 1e-3
    errors = [warp_error(drawn(pair(near=10, far=3), seed)) for seed in range(30)]
    assert max(errors) < 2.5, "of 60 grey levels that the pictures vary by"


@pytest.mark.parametrize("slope", [0.0, 0.4, -0.4])
def test_synthesized_disparities_are_exact_at_sub_pixel_places(slope: float) -> None:
    columns = np.arange(160)
    wave = 128 + 100 * np.sin(columns / 4)
    left = np.repeat(np.rint(wave).astype(np.uint8)[None, :, None], 8, 0).repeat(3, 2)
    disparity = np.repeat((30 + slope * (columns - 80) / 4).astype(np.float32)[None], 8, 0)
    for seed in range(5):
        right, known, _, _ = synthesize_right_view(rng(seed), left, left, disparity)
        inside = slice(70, 110)
        places = columns[inside] - known[4, inside]
        found = np.interp(places, columns, right[4, :, 0].astype(float))
        steep = np.gradient(wave)[inside] / (1 - np.gradient(known[4])[inside])
        off = np.sum((found - wave[inside]) * steep) / np.sum(steep**2)
        assert abs(off) < 0.03, "pixels"


@pytest.mark.usefixtures("at_its_baseline")
def test_what_a_nearer_thing_hides_is_known_and_not_visible() -> None:
    made, true = drawn(pair(near=16)), example(pair(near=16))
    assert np.array_equal(made.disparity, true.disparity)
    assert (made.visible == true.visible).mean() > 0.99
    before_the_board = made.visible[12:36, 96 // 2 - 12 + 1 : 96 // 2 - 1]
    assert not before_the_board.any()


def test_of_two_surfaces_on_one_pixel_the_nearer_one_is_seen() -> None:
    disparity = np.full((8, 64), 2, np.float32)
    disparity[:, 30:34] = 10
    left = np.zeros((8, 64, 3), np.uint8)
    left[:, 30:34] = 200
    for seed in range(10):
        right, known, of_right, _ = synthesize_right_view(rng(seed), left, left, disparity)
        place = int(np.nanmax(known))
        columns = slice(31 - place, 32 - place)
        assert (right[:, columns] > 150).all()
        assert np.nanmin(of_right[:, columns]) > 5


def test_only_gaps_that_an_occlusion_explains_are_learned() -> None:
    disparity = np.full((8, 80), 3, np.float32)
    disparity[:, 40:60] = 23
    disparity[:, 22:40] = UNKNOWN  # before a thing that is 20 px nearer
    found, learned = fill_gaps(disparity)
    assert (found[:, 22:40] == 3).all(), "it takes the farther one's disparity"
    assert learned.all()
    disparity[:, 10:40] = UNKNOWN
    found, learned = fill_gaps(disparity)
    assert (found[:, 10:40] == 3).all()
    assert not learned[:, 10:40].any()
    assert learned[:, :10].all()
    border = np.full((8, 80), 12, np.float32)
    border[:, :14] = UNKNOWN  # what lies outside of the other view
    assert fill_gaps(border)[1].all()
    border[:, :40] = UNKNOWN
    assert not fill_gaps(border)[1][:, :40].any()


def test_rows_without_labels_are_filled_but_not_learned() -> None:
    disparity = np.full((8, 80), UNKNOWN, np.float32)
    disparity[3:5] = 7
    found, learned = fill_gaps(disparity)
    assert (found == 7).all()
    assert learned.sum() == 2 * 80


def test_right_images_are_synthesized_by_their_share() -> None:
    sample = pair(near=10, far=3)
    sparse = left_alone(sample)
    truths = {share: [made[position] for position in range(40)] for share, made in _made(sparse).items()}
    known = {
        share: [bool(np.isfinite(one.right_disparity).any()) for one in found]
        for share, found in truths.items()
    }
    assert not any(known[0.0])
    assert all(known[1.0])
    assert 8 < sum(known[0.5]) < 32
    assert max(warp_error(one) for one in truths[1.0]) < 3
    both = examples(sample, augmentation=Augmentation(synthesize_right=1))
    plain = examples(sample)
    assert all(np.array_equal(both[place].left, plain[place].left) for place in range(5))
    assert all((both[place].disparity % 1 == 0).all() for place in range(5)), "both truths stay as they are"


def _made(sample: Sample) -> dict[float, Made]:
    shares = 0.0, 0.5, 1.0
    return {share: examples(sample, augmentation=Augmentation(synthesize_right=share)) for share in shares}


def test_what_lies_beyond_the_crop_is_seen_from_the_right_too() -> None:
    made = examples(left_alone(pair(near=10, far=8)), augmentation=Augmentation(synthesize_right=1))
    crops = [made[position] for position in range(30)]
    assert all(one.left.shape == one.right.shape == (*CROP, 3) for one in crops)
    full = [np.isfinite(one.right_disparity[:, -4:]).mean() for one in crops]
    assert max(full) == 1, "a crop in the middle of a picture has a right view without a gap at its end"
    assert all(not one.right_visible[:, -3:].any() for one in crops), "their matches lie outside of the crop"


def test_a_crop_reaches_no_farther_than_the_image() -> None:
    crop = Crop(0, 60, 32, 64, 1.0, 1.5)
    assert crop.extend(10, 96).width == 74
    assert crop.extend(100, 96).width == 144 - 60
    assert crop.extend(10, 40).width == 64


def test_the_same_draw_gives_the_same_view() -> None:
    views = [drawn(pair(), seed).right for seed in (1, 1, 2)]
    same = [np.array_equal(one, other) for one, other in pairwise(views)]
    assert same == [True, False]


@pytest.mark.filterwarnings("error")
def test_read_only_images_are_drawn_without_a_warning() -> None:
    sample = pair()
    views = [np.array(view, np.uint8) for view in (sample.left, sample.right)]
    for view in views:
        view.setflags(write=False)
    made = drawn(dataclasses.replace(sample, left=views[0], right=views[1]))
    assert np.array_equal(made.right, drawn(sample).right)
