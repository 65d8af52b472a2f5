"""The training examples by position, of pairs and of prepared patches."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator

import numpy as np
from example_pairs import (
    CROP,
    EVERYTHING,
    NOTHING,
    Stored,
    examples,
    make_examples,
    numbered,
    numbers,
    pair,
    superres,
    warp_error,
)

from pamcli.data.open import open_data
from pamcli.data.source import Sample
from pamcli.imaging.resize import imresize
from pamcli.training.augmentation import Augmentation, Example

PROCEDURAL = open_data("procedural")


class Drawn(Stored):
    """Draws the same scene at every position."""

    endless = True

    def render(self, series: int, number: int, height: int, width: int) -> Sample:
        return self.load(0)


def same(one: Example, other: Example) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan="disp" in name)
        for name in Example._fields
    )


def test_a_position_is_an_example_whoever_asks_for_it_and_when() -> None:
    samples = pair(), pair(seed=1)
    one = examples(*samples, augmentation=EVERYTHING)
    other = pickle.loads(pickle.dumps(one))
    for position in (5, 0, 9, 5):
        assert same(one[position], other[position])
    assert not same(one[0], one[1])
    assert not same(one[0], examples(*samples, augmentation=EVERYTHING, seed=4)[0])


def test_a_pass_takes_each_sample_once_in_a_new_order() -> None:
    made = examples(*numbered(7))
    passes = [numbers(made, range(7 * k, 7 * k + 7)) for k in range(6)]
    assert all(sorted(order) == list(range(7)) for order in passes)
    assert len(set(map(tuple, passes))) > 3
    assert numbers(made, range(8, 13)) == passes[1][1:6], "positions may be asked for in any order"
    assert passes[0] != numbers(examples(*numbered(7), seed=4), range(7))


def test_several_data_sets_mix_by_their_weights() -> None:
    dark, bright = numbered(4), numbered(10)[6:]
    made = make_examples([(Stored(*dark), 1.0), (Stored(*bright), 3.0)], CROP, 0, NOTHING)
    found = numbers(made, range(600))
    assert abs(sum(number < 4 for number in found) - 150) < 40
    assert set(found) == {0, 1, 2, 3, 6, 7, 8, 9}


def test_whether_a_scene_is_drawn_does_not_decide_which() -> None:
    """In a mix, the scenes that are drawn have no smaller ranges than others."""
    plain = pair(*CROP)
    made = make_examples([(Drawn(pair(*CROP, seed=1)), 1.0), (Stored(plain), 3.0)], CROP, 0, NOTHING)
    taken = [p for p in range(400) if not np.array_equal(made[p].left, plain.left)]
    first_draws = [np.random.default_rng((0, position)).random() for position in taken]
    assert 60 < len(taken) < 140
    assert 0.4 < np.mean(first_draws) < 0.6


def test_truth_warps_whatever_is_done_to_the_pair() -> None:
    """Geometry alone: crops, scales, turns; whole disparities scaled by 1/2, 1 and 2."""
    for scale, most in ((1.0, 0.0), (0.5, 8.0), (2.0, 3.0)):
        augmentation = Augmentation(smallest=scale, largest=scale, mirror=0.5, upside_down=0.5)
        made = examples(pair(96, 192), augmentation=augmentation)
        for position in range(12):
            example = made[position]
            known = example.disparity[np.isfinite(example.disparity)]
            assert set(np.unique(known)) <= {4 * scale, 12 * scale}
            assert example.visible.any()
            assert warp_error(example) <= most


def test_unknown_truth_never_becomes_a_number() -> None:
    sample = pair(96, 192)
    rng = np.random.default_rng(0)
    for truth in (sample.disparity, sample.right_disparity):
        truth[rng.random(truth.shape) < 0.7] = np.nan
    made = examples(sample, augmentation=EVERYTHING)
    for position in range(20):
        example = made[position]
        for truth, visible in (
            (example.disparity, example.visible),
            (example.right_disparity, example.right_visible),
        ):
            assert 0.1 < np.isfinite(truth).mean() < 0.5
            values = np.unique(truth[np.isfinite(truth)])
            assert len(values) <= 2
            assert not visible[np.isnan(truth)].any()


def test_what_matches_outside_the_crop_is_not_visible() -> None:
    wide = examples(pair(32, 400, near=12, far=12), crop=(32, 64))
    for position in range(5):
        example = wide[position]
        assert not example.visible[:, :12].any()
        assert example.visible[:, 12:].all()
        assert not example.right_visible[:, -12:].any()
        assert example.right_visible[:, :-12].all()


def test_the_mask_of_the_data_set_is_taken_where_it_has_one() -> None:
    sample = pair(*CROP)
    mask = np.random.default_rng(0).random(CROP) < 0.5
    example = examples(dataclasses.replace(sample, visible=mask))[0]
    inside = np.arange(CROP[1]) >= sample.disparity
    assert np.array_equal(example.visible, mask & inside)


def test_without_a_mask_both_truths_tell_what_is_occluded() -> None:
    example = examples(pair(*CROP))[0]
    start = CROP[1] // 2
    assert not example.visible[16, start - 8 : start].any(), "12 px before 4 px hides 8 columns"
    assert example.visible[16, start:].all()
    assert example.visible[16, 4 : start - 8].all()
    end = start + CROP[1] // 5 - 12
    assert not example.right_visible[16, end : end + 8].any()
    assert example.right_visible[16, :end].all()


def test_what_hides_a_pixel_may_lie_outside_the_crop() -> None:
    """The board begins right of the crop, its shadow on the wall lies within."""
    height, width = 32, 400
    truth = np.full((height, width), 4, np.float32)
    truth[:, 200:260] = 44
    view = np.zeros((height, width, 3), np.uint8)
    made = examples(Sample("x", view, view, disparity=truth), crop=(32, 64))
    checked = 0
    for position in range(60):
        example = made[position]
        if np.isin(44, example.disparity):
            continue
        columns = example.visible.all(0)
        shadow = np.flatnonzero(~columns[4:]) + 4
        assert (np.diff(shadow) == 1).all()
        checked += len(shadow) > 0
    assert checked > 3


def test_sixteen_bits_become_the_same_light() -> None:
    eight = numbered(256)[200]
    sixteen = dataclasses.replace(
        eight, left=eight.left.astype(np.uint16) * 257, right=eight.right.astype(np.uint16) * 257 + 100
    )
    example = examples(sixteen)[0]
    assert example.left.dtype == np.uint8
    assert (example.left == 200).all()
    assert (example.right == 200).all()


def test_low_resolution_crops_are_cut_from_the_reduced_image() -> None:
    sample, scale = pair(61, 103), 4
    height, width = (side - side % scale for side in (61, 103))
    whole = {name: imresize(getattr(sample, name)[:height, :width], 1 / scale) for name in ("left", "right")}
    made, corners = superres(sample, scale=scale), set()
    for position in range(12):
        example = made[position]
        assert example.left_high.shape == (6 * scale, 10 * scale, 3)
        (place,) = places(sample.left, example.left_high)
        assert place[0] % scale == place[1] % scale == 0
        top, left = place[0] // scale, place[1] // scale
        corners.add((top, left))
        low = slice(top, top + 6), slice(left, left + 10)
        assert np.array_equal(example.left, whole["left"][low])
        assert np.array_equal(example.right, whole["right"][low])
        high = slice(place[0], place[0] + 6 * scale), slice(place[1], place[1] + 10 * scale)
        assert np.array_equal(example.right_high, sample.right[high])
    assert len(corners) > 6


def places(picture: np.ndarray, patch: np.ndarray) -> Iterator[tuple[int, int]]:
    height, width = patch.shape[:2]
    for top in range(picture.shape[0] - height + 1):
        for left in range(picture.shape[1] - width + 1):
            if np.array_equal(picture[top : top + height, left : left + width], patch):
                yield top, left


def test_low_resolution_truth_is_that_of_one_pixel() -> None:
    sample = pair(48, 96, near=12, far=4)
    made = superres(sample, scale=4)
    for position in range(10):
        example = made[position]
        assert example.disparity.shape == (6, 10)
        ((top, left),) = places(sample.left, example.left_high)
        expected = sample.disparity[top + 2 : top + 24 : 4, left + 2 : left + 40 : 4] / 4
        assert np.array_equal(example.disparity, expected)
        match = np.arange(10) - example.disparity
        assert not example.visible[match < 0].any()


def test_low_and_high_resolution_are_augmented_alike() -> None:
    augmentation = Augmentation(mirror=0.5, upside_down=0.5, permute_colours=0.5, brightness=0.2)
    made, turned = superres(pair(64, 120), augmentation=augmentation), 0
    for position in range(20):
        example = made[position]
        for low, high in ((example.left, example.left_high), (example.right, example.right_high)):
            reduced = imresize(np.ascontiguousarray(high), 0.25).astype(int)
            assert np.abs(reduced - low)[2:-2, 2:-2].max() <= 1
        turned += warp_error(example) < 12
    assert turned == 20


def test_cameras_degrade_only_the_low_resolution_images() -> None:
    sample = pair(64, 120)
    clean, taken = superres(sample), superres(sample, augmentation=Augmentation(camera=0.9))
    same = 0
    for position in range(20):
        one, other = clean[position], taken[position]
        assert np.array_equal(one.left_high, other.left_high)
        assert np.array_equal(taken[position].left, other.left)
        changes = [
            made.astype(float) - plain for made, plain in ((other.left, one.left), (other.right, one.right))
        ]
        same += not any(change.any() for change in changes)
        assert not np.array_equal(*changes) or not changes[0].any()
    assert same < 10


def test_super_resolution_of_scenes_has_truth_at_low_resolution() -> None:
    made = make_examples([(PROCEDURAL, 1.0)], (8, 16), 1, NOTHING, 2)
    drawn = PROCEDURAL.render(1, 4, 16, 32)  # type: ignore[attr-defined]
    example = made[4]
    assert np.array_equal(example.left_high, drawn.left)  # type: ignore[arg-type]
    assert np.array_equal(example.disparity, drawn.disparity[1::2, 1::2] / 2)
    assert example.left.shape == (8, 16, 3)


SCALE, PATCH = 2, (16, 32)
TURNED = Augmentation(mirror=0.5, upside_down=0.5, permute_colours=0.5)


def patch() -> Sample:
    """Low-resolution views whose pixels say where they are, and are no reduction of the high ones."""
    rng = np.random.default_rng(3)
    low_left, low_right = rng.integers(0, 256, (2, *PATCH, 3), dtype=np.uint8)
    left, right = (view.repeat(SCALE, 0).repeat(SCALE, 1) for view in (low_left, low_right))
    return Sample("one", left, right, low_left=low_left, low_right=low_right)


def test_the_stored_views_are_taken_as_they_are() -> None:
    sample = patch()
    example = superres(sample, scale=SCALE, crop=PATCH)[0]
    assert np.array_equal(example.left, sample.low_left)
    assert np.array_equal(example.right, sample.low_right)
    assert np.array_equal(example.left_high, sample.left)
    assert np.array_equal(example.right_high, sample.right)


def test_low_and_high_are_cut_turned_and_recoloured_together() -> None:
    found = superres(patch(), augmentation=TURNED, scale=SCALE, crop=(8, 16))
    lows = set()
    for position in range(12):
        example = found[position]
        assert example.left_high is not None
        assert np.array_equal(example.left.repeat(SCALE, 0).repeat(SCALE, 1), example.left_high)
        lows.add(example.left.tobytes())
    assert len(lows) == 12


def test_a_patch_in_other_light_is_reduced_anew() -> None:
    augmentation = dataclasses.replace(EVERYTHING, erase=0)
    example = superres(patch(), augmentation=augmentation, scale=SCALE, crop=(8, 16))[0]
    assert example.left_high is not None
    assert not np.array_equal(example.left.repeat(SCALE, 0).repeat(SCALE, 1), example.left_high)
