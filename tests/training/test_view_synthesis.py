"""Right views drawn from left ones, and things put in front of a pair: both views agree with their truth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from example_pairs import CROP, Made, example, examples, pair, superres, warp_error

from pamcli.data.source import Sample
from pamcli.scenes import thin_objects as textures
from pamcli.training import view_synthesis
from pamcli.training.augmentation import Augmentation, Crop, Example
from pamcli.training.view_synthesis import Occluder, fill_gaps, insert_occluders, synthesize_right_view

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
    truths = {share: [made[position] for position in range(16)] for share, made in _made(sparse).items()}
    known = {
        share: [bool(np.isfinite(one.right_disparity).any()) for one in found]
        for share, found in truths.items()
    }
    assert not any(known[0.0])
    assert all(known[1.0])
    assert 3 < sum(known[0.5]) < 13
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


@pytest.mark.filterwarnings("error")
def test_read_only_images_are_drawn_without_a_warning() -> None:
    sample = pair()
    views = [np.array(view, np.uint8) for view in (sample.left, sample.right)]
    for view in views:
        view.setflags(write=False)
    made = drawn(dataclasses.replace(sample, left=views[0], right=views[1]))
    assert np.array_equal(made.right, drawn(sample).right)


INSERT = Augmentation(occluders=1)


def even(grey: int = 100, disparity: float = 3, width: int = 128, *, both: bool = False) -> Example:
    """A wall of one grey, of one disparity."""
    view = np.full((48, width, 3), grey, np.uint8)
    truth = np.full((48, width), disparity, np.float32)
    unknown = np.full_like(truth, np.nan)
    columns = np.arange(width) + np.zeros((48, 1))
    right = truth.copy() if both else unknown
    return Example(view, view, truth, right, columns >= disparity, (columns < width - disparity) & both)


def both_views(thing: Occluder) -> tuple[view_synthesis.View, view_synthesis.View]:
    return thing.seen(48, 128, from_right=False), thing.seen(48, 128, from_right=True)


@pytest.mark.parametrize(("across", "down"), [(0.0, 0.0), (0.2, 0.0), (-0.2, 0.1)])
def test_a_thing_is_seen_in_both_views_where_its_disparity_says(across: float, down: float) -> None:
    waves = 0.5 + 0.4 * torch.sin(torch.arange(160) / 12)
    texture = torch.cat((waves.expand(3, 60, 160), torch.ones(1, 60, 160)))
    thing = Occluder(texture, 100.25, 8, 30.3, across, down)
    (left, _, disparity), (right, _, of_right) = (
        thing.seen(48, 256, from_right=which) for which in (False, True)
    )
    columns = np.arange(256)
    for row in (12, 20, 30):
        inside = columns[115:165]
        places = inside - disparity[row, inside]
        found = np.interp(places, columns, right[row, :, 0])
        steep = np.gradient(left[row, :, 0])[inside]
        off = np.sum((found - left[row, inside, 0]) * steep) / np.sum(steep**2)
        assert abs(off) < 0.03, "pixels"
        of_matches = np.interp(places, columns, np.nan_to_num(of_right[row]))
        assert np.abs(of_matches - disparity[row, inside]).max() < 1e-3


def test_occluded_pixels_keep_their_truth_but_are_not_visible() -> None:
    texture = torch.cat((torch.zeros(3, 40, 24), torch.ones(1, 40, 24)))  # 12 x 20 px, black
    thing = Occluder(texture, 59.5, 9.5, 9, 0, 0)
    changed, behind = view_synthesis._insert(even(), both_views(thing), even().disparity)
    own = np.zeros((48, 128), np.bool_)
    own[10:30, 60:72] = True
    assert (changed.left[own] == 0).all()
    assert (changed.left[~own] == 100).all()
    assert (changed.right[10:30, 51:63] == 0).all()
    assert (changed.disparity[own] == 9).all()
    assert (changed.disparity[~own] == 3).all()
    assert np.array_equal(behind, changed.disparity)
    assert changed.visible[own].all()
    hidden = np.zeros_like(own)
    hidden[10:30, 54:60] = True  # shown at 51 to 56 of the right view, where the thing is now
    assert not changed.visible[hidden].any()
    assert np.array_equal(changed.visible | hidden | own, even().visible | hidden | own)
    assert not np.isfinite(changed.right_disparity).any()


def test_the_truth_of_the_right_view_grows_where_there_is_one() -> None:
    thing = Occluder(torch.ones(4, 40, 24), 59.5, 9.5, 9, 0, 0)
    changed, _ = view_synthesis._insert(even(both=True), both_views(thing), even().disparity)
    there = changed.right_disparity == 9
    assert there.sum() == 20 * 12
    assert there[10:30, 51:63].all()
    assert changed.right_visible[there].all()
    assert not changed.right_visible[10:30, 63:69].any(), "the left view shows the thing at 66 to 71"


def test_things_stand_in_front_of_all_that_they_cover() -> None:
    found = [insert_occluders(rng(seed), even(disparity=20)) for seed in range(60)]
    nearest = [float(np.nanmin(one.disparity)) for one in found]
    assert min(nearest) == 20
    grown = [bool((one.disparity > 20.5).any()) for one in found]
    assert sum(grown) > 40
    assert max(float(one.disparity.max()) for one in found) < 128 * view_synthesis.NEAREST * 1.5


def test_an_occluder_must_be_in_front_in_both_views() -> None:
    wall = even().disparity
    board = wall.copy()
    board[:, 40:60] = 30  # at 10 to 29 of the right view
    there = {
        left: view_synthesis._is_in_front(
            both_views(Occluder(torch.ones(4, 40, 24), left, 10, 12, 0, 0)), board
        )
        for left in (20, 45, 90)
    }
    assert there == {20: False, 45: False, 90: True}
    assert view_synthesis._is_in_front(both_views(Occluder(torch.ones(4, 40, 24), 20, 10, 12, 0, 0)), wall)


def test_every_thing_can_be_put_before_a_pair() -> None:
    picture = np.full((192, 384, 3), 100, np.uint8)
    for look in textures.OCCLUDERS:
        for seed in range(5):
            texture, slant = look(rng(seed), picture)
            assert texture.shape[0] == 4
            assert 0 <= slant < 1
            assert 0 <= float(texture.min()) <= float(texture.max()) <= 1
            assert (texture[:3] <= texture[3] + 1e-5).all(), "colours times opacity"
            assert float(texture[3].max()) > 0.5


def test_examples_get_occluders_by_their_share() -> None:
    sample = left_alone(pair(near=10, far=3))
    plain = examples(sample)
    changed = {
        share: sum(not np.array_equal(made[position].left, plain[position].left) for position in range(16))
        for share in (0.0, 0.5, 1.0)
        for made in (examples(sample, augmentation=Augmentation(occluders=share)),)
    }
    assert changed[0.0] == 0
    assert 2 < changed[0.5] < changed[1.0]
    both = examples(pair(near=10, far=3), augmentation=INSERT)
    assert np.array_equal(both[0].left, examples(pair(near=10, far=3))[0].left)
    assert all(examples(sample, augmentation=INSERT)[place].left.shape == (*CROP, 3) for place in range(5))


@pytest.mark.parametrize("by", [INSERT, Augmentation(synthesize_right=1)])
def test_unlabelled_and_superres_pairs_get_no_occluders(by: Augmentation) -> None:
    unknown = np.full((48, 96), np.nan, np.float32)
    sample = dataclasses.replace(pair(), disparity=unknown, right_disparity=None)
    made = examples(sample, augmentation=by)[0], superres(left_alone(pair()), augmentation=by)[0]
    for one, plain in zip(made, (examples(sample)[0], superres(left_alone(pair()))[0]), strict=True):
        assert np.array_equal(one.left, plain.left)
        assert np.array_equal(one.right, plain.right)
    assert not np.isfinite(made[0].disparity).any()
