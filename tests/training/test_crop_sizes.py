"""Crop sizes of the steps of a run, and the number of pairs of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pamcli.training.recipe import CropShare
from pamcli.training.recipes import RECIPES

SMALL, WIDE = CropShare((192, 384), (0.6, 0.3, 0.1)), CropShare((256, 768), (0.1, 0.25, 0.45))
PLAN = replace(RECIPES["scenes"], sizes=(SMALL, WIDE), phases=(0.5, 0.8), seed=3)


def test_each_phase_has_its_shares_of_the_steps() -> None:
    for phase, steps in enumerate((range(3000), range(3000, 4800), range(4800, 6000))):
        found = [PLAN.crop_at(step, 6000) for step in steps]
        for size in (SMALL, WIDE):
            share = np.mean([crop == size.crop for crop in found])
            assert abs(share - size.shares[phase]) < 0.04, (phase, size)
        assert set(found) == {SMALL.crop, WIDE.crop, (256, 512)}


def test_the_crop_of_a_step_depends_on_seed_and_number_only() -> None:
    assert [replace(PLAN).crop_at(step, 6000) for step in (7, 5999)] == [
        PLAN.crop_at(step, 6000) for step in (7, 5999)
    ]
    other = replace(PLAN, seed=4)
    assert [other.crop_at(step, 6000) for step in range(50)] != [PLAN.crop_at(s, 6000) for s in range(50)]


def test_all_steps_have_about_as_many_pixels() -> None:
    crops = (256, 512), (192, 384), (256, 768), (512, 2048)
    assert [PLAN.count_pairs(4, crop) for crop in crops] == [4, 7, 3, 1]
    assert PLAN.count_most_pairs(4) == 7
    assert PLAN.count_pairs(32, (192, 384)) == 57
    assert RECIPES["scenes"].count_most_pairs(6) == 6
