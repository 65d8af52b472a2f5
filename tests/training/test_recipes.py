"""Recipes: what contradicts itself, their way through JSON, sizes of crops, and learning rates."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pamcli.errors import InputError, UsageError
from pamcli.losses.weights import LossWeights
from pamcli.training.recipe import ONE_CYCLE_START, CropShare, Schedule, learning_rate
from pamcli.training.recipes import RECIPES, change_recipe, read_recipe, recipe_json

SCENES = RECIPES["scenes"]


@pytest.mark.parametrize("name", RECIPES)
def test_json_and_back_changes_nothing(tmp_path: Path, name: str) -> None:
    recipe = replace(RECIPES[name], data=("pairs:a", "pairs:b?weight=2"), start="x.safetensors", clip=None)
    file = tmp_path / "recipe.json"
    file.write_text(recipe_json(recipe, {"pam": "1"}))
    assert read_recipe(file) == recipe
    assert json.loads(file.read_text())["made_with"] == {"pam": "1"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batches": 3}, "did you mean batch"),
        ({"batch": "4"}, "batch must be a valid integer, got '4'"),
        ({"crop": 256}, "crop"),
        ({"losses": {"photo": 1}}, "photometric"),
        ({"schedule": {"kind": "linear"}}, "linear"),
        ({"data": "pairs:x"}, "data"),
        ({"keep": 0}, "keep must be greater than or equal to 1, got 0"),
    ],
)
def test_a_wrong_value_in_a_file_is_one_line(tmp_path: Path, change: dict[str, object], said: str) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(json.loads(recipe_json(SCENES)) | change))
    with pytest.raises(InputError) as raised:
        read_recipe(file)
    line = str(raised.value)
    assert said in line
    assert "recipe.json" in line
    assert "\n" not in line


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "null", '{"name": "x"}', "[" * 100000])
def test_what_is_no_recipe_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(content)
    with pytest.raises(InputError):
        read_recipe(file)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("scenes", {"crop": (250, 512)}, "does not fit"),
        ("scenes", {"steps": None}, "either `steps` or `epochs`"),
        ("scenes", {"learning_rate": math.nan}, "learning_rate"),
        ("scenes", {"max_disparity": 100}, "multiple of 16"),
        ("scenes", {"initialisation": "upscaler"}, "initialisation upscaler"),
        ("scenes", {"losses": LossWeights()}, "every loss term"),
        ("scenes", {"sizes": (CropShare((64, 128), (0.5, 0.5)),)}, "128x64 have 2 shares"),
        ("scenes", {"sizes": (CropShare((64, 128), (0.6,)), CropShare((64, 96), (0.6,)))}, "1, got 1.2"),
        ("scenes", {"sizes": (CropShare((64, 100), (0.6,)),)}, "100x64 does not fit"),
        ("scenes", {"phases": (0.5, 0.2)}, "phases must be ascending"),
        ("pasmnet2", {"ema": None}, "average_from"),
        ("superres", {"scale": None}, "scale must be one of"),
        ("superres", {"freeze_batch_norm": True}, "freeze_batch_norm"),
        ("superres", {"losses": LossWeights(charbonnier=1, photometric=1)}, "photometric"),
        ("superres", {"pseudo_labels": True}, "pseudo_labels"),
    ],
)
def test_values_out_of_range_and_contradictions_are_refused(
    name: str, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        replace(RECIPES[name], **change)


def test_epochs_are_whole_passes_over_the_data() -> None:
    recipe = replace(SCENES, steps=None, epochs=3.0, batch=4)
    assert recipe.count_steps(36) == 27
    assert recipe.count_steps(37) == 28
    assert recipe.count_steps(1) == 1
    assert SCENES.count_steps(36) == SCENES.steps
    with pytest.raises(UsageError, match="endless"):
        recipe.count_steps(None)
    with pytest.raises(UsageError, match="at most 1,000,000,000"):
        replace(recipe, epochs=1e9).count_steps(36)


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("losses.refined", "0", 0.0),
        ("losses.mask_by_truth_below", "192", 192.0),
        ("losses.pam_over_columns", "1", True),
        ("schedule.kind", "cosine", "cosine"),
        ("rates.cas_pam.stage3", "0.5", 0.5),
        ("sizes", '[{"crop": "128x64", "shares": [0.5]}]', (CropShare((64, 128), (0.5,)),)),
        ("scenes.hard.walls", "0.5", 0.5),
    ],
)
def test_a_key_takes_the_value_of_a_text(key: str, text: str, expected: object) -> None:
    found: Any = change_recipe(replace(SCENES, losses=replace(SCENES.losses, pam=1)), {key: text})
    for name in ("rates", "cas_pam.stage3") if key.startswith("rates") else key.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"crop": [256, 512]}, 'write "512x256"'),
        ({"sizes": [{"crop": [192, 384], "shares": [0.5]}]}, 'write "384x192"'),
        ({"scenes": {"sizes": [[320, 640]]}}, 'write "640x320"'),
        ({"crop": "512"}, "WIDTHxHEIGHT"),
        ({"crop": "4x4"}, "8 to 65536 px"),
    ],
)
def test_sizes_are_width_by_height(tmp_path: Path, change: dict[str, object], expected: str) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(json.loads(recipe_json(SCENES)) | change))
    with pytest.raises(InputError, match=expected):
        read_recipe(tmp_path / "mine.json")
    (key, value), *_ = change.items()
    with pytest.raises(UsageError, match=expected):
        change_recipe(SCENES, {key: json.dumps(value)})


def test_the_most_specific_learning_rate_factor_applies() -> None:
    recipe = RECIPES["pasmnet2"]
    rates = {"E0.0.weight": 0.5, "st1.blocks.0.head.0.weight": 0.5, "s1.upd.out.weight": 1, "mask.1.bias": 1}
    assert {key: recipe.get_rate(key) for key in rates} == rates
    head = replace(recipe, only="head", rates={})
    assert [head.get_rate(key) for key in ("s3.upd.out.weight", "b3.0.weight")] == [1, 0]
    late = replace(recipe, only="head,st3", rates={"head": 0.5, "s1": 0.1})
    keys = "mask.0.0.weight", "s1.h0.0.weight", "st3.blocks.0.head.0.weight", "st1.blocks.0.head.0.weight"
    assert [late.get_rate(key) for key in keys] == [0.5, 0.1, 1, 0]


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


def rates(schedule: Schedule, steps: int = 100, peak: float = 2.0) -> list[float]:
    return [learning_rate(schedule, peak, step, steps) for step in range(steps)]


def test_step_falls_at_its_milestones_and_not_before() -> None:
    found = rates(Schedule("step", milestones=(0.375, 0.75), factor=0.5))
    assert found[:38] == [2.0] * 38
    assert found[38:75] == [1.0] * 37
    assert found[75:] == [0.5] * 25


def test_cosine_falls_from_the_peak_to_the_final_part() -> None:
    found = rates(Schedule("cosine", final=0.1))
    assert found[0] == 2.0
    assert found[50] == pytest.approx(1.1)
    assert sorted(found, reverse=True) == found
    assert 0.2 < found[-1] < 0.201


def test_warm_up_rises_linearly_from_above_zero() -> None:
    found = rates(Schedule("constant", warmup=0.1))
    assert found[:11] == pytest.approx([0.2 * (i + 1) for i in range(10)] + [2.0])


def test_one_cycle_rises_to_the_peak_then_falls() -> None:
    found = rates(Schedule("one-cycle", warmup=0.3, final=1e-4))
    top = found.index(max(found))
    assert found[top] == pytest.approx(2.0)
    assert top in (29, 30)
    assert found[0] > 2.0 * ONE_CYCLE_START
    assert found[0] < 0.1
    assert found[:top] == sorted(found[:top])
    assert found[top:] == sorted(found[top:], reverse=True)
    assert found[-1] < 0.01


@pytest.mark.parametrize("kind", ["constant", "step", "cosine", "one-cycle"])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_short_runs_have_positive_rates_up_to_the_peak(kind: str, steps: int) -> None:
    schedule = Schedule(kind, warmup=0.05, milestones=(0.5,))  # type: ignore[arg-type]
    assert all(0 < rate <= 2.0 for rate in rates(schedule, steps))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "linear"},
        {"warmup": 1.0},
        {"kind": "step", "milestones": (0.7, 0.5)},
        {"kind": "step", "factor": 0.0},
    ],
)
def test_what_is_no_schedule_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Schedule(**wrong)  # type: ignore[arg-type]
