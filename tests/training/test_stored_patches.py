"""Super-resolution from pairs that come with their low-resolution views, as prepared patches do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from example_pairs import EVERYTHING, NOTHING, Made, Stored, make_examples

from pamcli.data.source import Sample
from pamcli.errors import UsageError
from pamcli.training.augmentation import Augmentation

SCALE, PATCH = 2, (16, 32)
TURNED = Augmentation(mirror=0.5, upside_down=0.5, permute_colours=0.5)


def patch() -> Sample:
    """Low-resolution views whose pixels say where they are, and are no reduction of the high ones."""
    rng = np.random.default_rng(3)
    low_left, low_right = rng.integers(0, 256, (2, *PATCH, 3), dtype=np.uint8)
    left, right = (view.repeat(SCALE, 0).repeat(SCALE, 1) for view in (low_left, low_right))
    return Sample("one", left, right, low_left=low_left, low_right=low_right)


def examples(sample: Sample, augmentation: Augmentation, crop: tuple[int, int], scale: int = SCALE) -> Made:
    return make_examples([(Stored(sample), 1)], crop, 0, augmentation, scale=scale)


def test_the_stored_views_are_taken_as_they_are() -> None:
    sample = patch()
    example = examples(sample, NOTHING, PATCH)[0]
    assert np.array_equal(example.left, sample.low_left)
    assert np.array_equal(example.right, sample.low_right)
    assert np.array_equal(example.left_high, sample.left)
    assert np.array_equal(example.right_high, sample.right)


def test_low_and_high_are_cut_turned_and_recoloured_together() -> None:
    found = examples(patch(), TURNED, (8, 16))
    lows = set()
    for position in range(12):
        example = found[position]
        assert example.left_high is not None
        assert np.array_equal(example.left.repeat(SCALE, 0).repeat(SCALE, 1), example.left_high)
        lows.add(example.left.tobytes())
    assert len(lows) == 12


def test_a_patch_in_other_light_is_reduced_anew() -> None:
    augmentation = dataclasses.replace(EVERYTHING, erase=0)
    example = examples(patch(), augmentation, (8, 16))[0]
    assert example.left_high is not None
    assert not np.array_equal(example.left.repeat(SCALE, 0).repeat(SCALE, 1), example.left_high)


def test_patches_of_another_enlargement_are_refused() -> None:
    with pytest.raises(UsageError, match=r"prepared for x2, but the run trains x4.*`scale` 4"):
        examples(patch(), NOTHING, (4, 8), scale=4)[0]
