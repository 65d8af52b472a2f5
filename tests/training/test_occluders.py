"""Things put in front of a pair: both views show them where their truth says, and what they hide is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from example_pairs import CROP, examples, pair, superres

from pamcli.data.source import Sample
from pamcli.scenes import appearance
from pamcli.scenes import occluders as textures
from pamcli.training import view_synthesis
from pamcli.training.augmentation import Augmentation, Example
from pamcli.training.view_synthesis import Occluder, insert_occluders

INSERT = Augmentation(occluders=1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def left_alone(sample: Sample) -> Sample:
    return dataclasses.replace(sample, right_disparity=None)


def even(grey: int = 100, disparity: float = 3, width: int = 128, *, both: bool = False) -> Example:
    """A wall of one grey, of one disparity."""
    view = np.full((48, width, 3), grey, np.uint8)
    truth = np.full((48, width), disparity, np.float32)
    unknown = np.full_like(truth, np.nan)
    columns = np.arange(width) + np.zeros((48, 1))
    right = truth.copy() if both else unknown
    return Example(view, view, truth, right, columns >= disparity, (columns < width - disparity) & both)


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
    changed, behind = view_synthesis._insert(even(), thing.views(48, 128), even().disparity)
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
    changed, _ = view_synthesis._insert(even(both=True), thing.views(48, 128), even().disparity)
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
            Occluder(torch.ones(4, 40, 24), left, 10, 12, 0, 0).views(48, 128), board
        )
        for left in (20, 45, 90)
    }
    assert there == {20: False, 45: False, 90: True}
    assert view_synthesis._is_in_front(Occluder(torch.ones(4, 40, 24), 20, 10, 12, 0, 0).views(48, 128), wall)


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


def test_what_stands_behind_a_framework_is_seen_through_it() -> None:
    for seed in range(60):
        mask = appearance.framework(rng(seed), 96, 128)
        assert 0.02 < mask.mean() < 0.8
        assert (mask < 0.5).any()
        assert mask.max() == 1


def test_examples_get_occluders_by_their_share() -> None:
    sample = left_alone(pair(near=10, far=3))
    plain = examples(sample)
    changed = {
        share: sum(not np.array_equal(made[position].left, plain[position].left) for position in range(40))
        for share in (0.0, 0.5, 1.0)
        for made in (examples(sample, augmentation=Augmentation(occluders=share)),)
    }
    assert changed[0.0] == 0
    assert 5 < changed[0.5] < changed[1.0]
    both = examples(pair(near=10, far=3), augmentation=INSERT)
    assert np.array_equal(both[0].left, examples(pair(near=10, far=3))[0].left)
    assert all(examples(sample, augmentation=INSERT)[place].left.shape == (*CROP, 3) for place in range(20))


@pytest.mark.parametrize("by", [INSERT, Augmentation(synthesize_right=1)])
def test_unlabelled_and_superres_pairs_get_no_occluders(by: Augmentation) -> None:
    unknown = np.full((48, 96), np.nan, np.float32)
    sample = dataclasses.replace(pair(), disparity=unknown, right_disparity=None)
    made = examples(sample, augmentation=by)[0], superres(left_alone(pair()), augmentation=by)[0]
    for one, plain in zip(made, (examples(sample)[0], superres(left_alone(pair()))[0]), strict=True):
        assert np.array_equal(one.left, plain.left)
        assert np.array_equal(one.right, plain.right)
    assert not np.isfinite(made[0].disparity).any()
