"""Recipes: what the paper says, what contradicts itself, and their way through JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pamcli.errors import InputError, UsageError
from pamcli.losses.weights import LossWeights
from pamcli.training.recipe import CropShare, Recipe, Schedule
from pamcli.training.recipes import RECIPES, change_recipe, get_recipe, read_recipe, recipe_json

SCENES = RECIPES["scenes"]


@pytest.mark.parametrize("name", RECIPES)
def test_json_and_back_changes_nothing(tmp_path: Path, name: str) -> None:
    recipe = replace(RECIPES[name], data=("pairs:a", "pairs:b?weight=2"), start="x.safetensors", clip=None)
    file = tmp_path / "recipe.json"
    file.write_text(recipe_json(recipe, {"pam": "1"}))
    assert read_recipe(file) == recipe
    assert json.loads(file.read_text())["made_with"] == {"pam": "1"}


def test_what_a_file_leaves_out_has_its_default(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(
        '{"name": "mine", "task": "disparity", "batch": 2, "crop": "128x64", "steps": 5, '
        '"learning_rate": 1, "losses": {"refined": 1}, "schedule": {"kind": "cosine"}}'
    )
    expected = Recipe(
        name="mine",
        task="disparity",
        batch=2,
        crop=(64, 128),
        losses=LossWeights(refined=1),
        learning_rate=1.0,
        steps=5,
        schedule=Schedule("cosine"),
    )
    assert read_recipe(file) == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batches": 3}, "did you mean batch"),
        ({"batch": "4"}, "batch must be a valid integer, got '4'"),
        ({"batch": True}, "batch must be a valid integer, got True"),
        ({"batch": 4.0}, "batch must be a valid integer, got 4.0"),
        ({"crop": 256}, "crop"),
        ({"losses": {"photo": 1}}, "photometric"),
        ({"schedule": {"kind": "linear"}}, "linear"),
        ({"schedule": []}, "schedule"),
        ({"data": "pairs:x"}, "data"),
        ({"betas": [0.9, 0.99, 0.999]}, "betas"),
        ({"optimizer": "sgd"}, "sgd"),
        ({"keep": 0}, "keep must be greater than or equal to 1, got 0"),
        ({"task": "depth"}, "depth"),
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
        ("scenes", {"steps": 10**400}, "steps"),
        ("scenes", {"batch": 10**6}, "batch"),
        ("scenes", {"learning_rate": math.nan}, "learning_rate"),
        ("scenes", {"ema": 1.0}, "ema"),
        ("scenes", {"seed": 2**63}, "seed"),
        ("scenes", {"scale": 2}, "scale"),
        ("scenes", {"max_disparity": 100}, "multiple of 16"),
        ("scenes", {"initialisation": "upscaler"}, "initialisation upscaler"),
        ("scenes", {"losses": LossWeights()}, "every loss term"),
        ("scenes", {"losses": LossWeights(pam=0, pam_cycle=1)}, "every loss term"),
        ("scenes", {"losses": LossWeights(refined=1, charbonnier=1)}, "charbonnier"),
        ("scenes", {"sizes": (CropShare((64, 128), (0.5, 0.5)),)}, "128x64 have 2 shares"),
        ("scenes", {"sizes": (CropShare((64, 128), (0.6,)), CropShare((64, 96), (0.6,)))}, "1, got 1.2"),
        ("scenes", {"sizes": (CropShare((64, 100), (0.6,)),)}, "100x64 does not fit"),
        ("scenes", {"phases": (0.5, 0.2)}, "phases must be ascending"),
        ("pasmnet2", {"ema": None}, "average_from"),
        ("superres", {"scale": None}, "scale must be one of"),
        ("superres", {"max_disparity": 192}, "max_disparity"),
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


def test_a_recipe_of_the_other_task_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"pam train superres.*scenes"):
        get_recipe("paper-superres", "disparity")
    with pytest.raises(UsageError, match=r"paper.*paper-superres"):
        get_recipe("paper", "superres")


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
        ("losses.smoothness", "0.5", 0.5),
        ("losses.mask_by_truth_below", "192", 192.0),
        ("losses.mask_by_truth_below", "none", None),
        ("losses.pam_over_columns", "1", True),
        ("losses.pam_over_columns", "false", False),
        ("schedule.kind", "cosine", "cosine"),
        ("rates.cas_pam.stage3", "0.5", 0.5),
        ("sizes", '[{"crop": "128x64", "shares": [0.5]}]', (CropShare((64, 128), (0.5,)),)),
        ("scenes.uses", "3", 3),
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
    ("key", "text"),
    [
        ("losses.photo", "1"),
        ("losses.refined", "much"),
        ("losses.refined", "none"),
        ("losses.refined", "true"),
        ("noise", "0.1"),
        ("seed.noise", "0.1"),
        ("rates.nose", "1"),
        ("augmentation.mirror", "1.5"),
    ],
)
def test_unknown_keys_and_wrong_values_are_refused(key: str, text: str) -> None:
    with pytest.raises(UsageError, match=key.rpartition(".")[2]) as raised:
        change_recipe(SCENES, {key: text})
    assert "\n" not in str(raised.value)


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


def test_files_name_sizes_by_width_and_height() -> None:
    values = json.loads(recipe_json(RECIPES["pasmnet2"]))
    assert (values["crop"], values["sizes"][0]["crop"]) == ("512x256", "384x192")
    assert values["scenes"]["sizes"][2] == "832x288"


def test_the_most_specific_learning_rate_factor_applies() -> None:
    recipe = RECIPES["pasmnet2"]
    rates = {"E0.0.weight": 0.5, "st1.blocks.0.head.0.weight": 0.5, "s1.upd.out.weight": 1, "mask.1.bias": 1}
    assert {key: recipe.get_rate(key) for key in rates} == rates
    head = replace(recipe, only="head", rates={})
    assert [head.get_rate(key) for key in ("s3.upd.out.weight", "b3.0.weight")] == [1, 0]
    late = replace(recipe, only="head,st3", rates={"head": 0.5, "s1": 0.1})
    keys = "mask.0.0.weight", "s1.h0.0.weight", "st3.blocks.0.head.0.weight", "st1.blocks.0.head.0.weight"
    assert [late.get_rate(key) for key in keys] == [0.5, 0.1, 1, 0]
