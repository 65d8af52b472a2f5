"""Which crop a step has, and how many pairs of it."""

from __future__ import annotations

import numpy as np

from pamcli.training.crops import Crops
from pamcli.training.recipe import Size
from pamcli.training.recipes import RECIPES

SMALL, WIDE = Size((192, 384), (0.6, 0.3, 0.1)), Size((256, 768), (0.1, 0.25, 0.45))
PLAN = Crops((256, 512), (SMALL, WIDE), (0.5, 0.8), 6000, 3)


def test_each_phase_has_its_shares_of_the_steps() -> None:
    for phase, steps in enumerate((range(3000), range(3000, 4800), range(4800, 6000))):
        found = [PLAN.at(step) for step in steps]
        for size in (SMALL, WIDE):
            share = np.mean([crop == size.crop for crop in found])
            assert abs(share - size.shares[phase]) < 0.04, (phase, size)
        assert set(found) == {SMALL.crop, WIDE.crop, (256, 512)}


def test_a_step_s_crop_follows_from_seed_and_number_alone() -> None:
    again = Crops(*(getattr(PLAN, name) for name in ("usual", "sizes", "phases", "steps", "seed")))
    assert [again.at(step) for step in (7, 1, 5999)] == [PLAN.at(step) for step in (7, 1, 5999)]
    other = Crops((256, 512), (SMALL, WIDE), (0.5, 0.8), 6000, 4)
    assert [other.at(step) for step in range(50)] != [PLAN.at(step) for step in range(50)]


def test_all_steps_have_about_as_many_pixels() -> None:
    assert [PLAN.pairs(4, crop) for crop in ((256, 512), (192, 384), (256, 768), (512, 2048))] == [4, 7, 3, 1]
    assert PLAN.most(4) == 7
    assert PLAN.pairs(32, (192, 384)) == 57
    assert Crops((32, 64)).most(6) == 6


def test_a_recipe_s_crops_are_small_first_and_wide_last() -> None:
    plan = Crops.of(RECIPES["pasmnet2"], 2000)
    first, last = ([np.prod(plan.at(step)) for step in steps] for steps in (range(900), range(1700, 2000)))
    assert np.mean(first) < 0.85 * np.mean(last)
    assert {plan.at(step) for step in range(2000)} == {(192, 384), (256, 512), (256, 768), (352, 960)}
