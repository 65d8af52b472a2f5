"""Provide named recipes, of the paper and of shipped weights (recipes.toml), and recipes as JSON files."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pydantic
from pydantic import ValidationError

from pamcli.errors import InputError, UsageError, did_you_mean
from pamcli.files.json_files import Text, check_json
from pamcli.files.paths import quote
from pamcli.files.safe_reading import parse_json, read_text
from pamcli.registry.architectures import ARCHITECTURES, TRAINED, Task, list_architectures
from pamcli.registry.catalog import DEFAULT_MATCHING, locate
from pamcli.registry.spec import read_header
from pamcli.training.recipe import Recipe
from pamcli.validation import describe_first_error, parse_record, unknown

MADE_WITH = "made_with"  # key for the record beside the recipe, without influence on the run


@pydantic.dataclasses.dataclass(frozen=True)
class MadeWith:
    """The parts of the record beside a recipe that must be valid for a run to resume."""

    data: list[Text] | None = None
    """Fingerprints of the data sets."""
    precision: Text | None = None


def _recipes() -> dict[str, Recipe]:
    text = resources.files("pamcli.training").joinpath("recipes.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)

    def values(name: str) -> dict[str, Any]:
        own = dict(tables[name])
        base = own.pop("base", None)
        return {**(values(base) if base else {}), **own, "name": name}

    return {name: parse_record(Recipe, json.dumps(values(name))) for name in tables}


RECIPES: Mapping[str, Recipe] = _recipes()


def named_recipe(name: str, task: Task) -> Recipe:
    """Return the recipe of a name; raise UsageError if it is unknown or of the other task."""
    recipe = RECIPES.get(name)
    if recipe is not None and recipe.task == task:
        return recipe
    names = ", ".join(known for known, one in RECIPES.items() if one.task == task)
    what = f"is one of pam train {recipe.task}" if recipe else "is none"
    raise UsageError(f"the recipe {name!r} {what}", f"here: {names}; a path ends in .json")


def default_recipe(task: Task, *, unsupervised: bool, start: bool, network: str | None = None) -> str:
    """Return the name of the default recipe; `start`: the run starts from trained weights."""
    if unsupervised:
        return "adapt" if start else "unsupervised"
    row = ARCHITECTURES[network or TRAINED[task]]
    return row.recipe if start else row.recipe_from_nothing or row.recipe


def recipe_json(recipe: Recipe, made_with: Mapping[str, Any] | None = None) -> str:
    """Format the complete recipe as JSON. `made_with`: versions and similar facts for the record."""
    values = asdict(recipe)
    if made_with is not None:
        values[MADE_WITH] = dict(made_with)
    return json.dumps(values, indent=2, allow_nan=False) + "\n"


def read_recipe(path: Path) -> Recipe:
    """Read a recipe written by `recipe_json` or by hand; missing values have their defaults.

    Raises InputError: unreadable, not JSON, unknown keys, wrong types, or values out of range.
    """
    values = _json(path)
    if isinstance(values, dict):
        values.pop(MADE_WITH, None)
        _brought_up_to_date(values)
    try:
        return parse_record(Recipe, json.dumps(values))
    except ValidationError as error:
        raise InputError(f"{quote(path)}: {describe_first_error(error, Recipe)}") from error
    except UsageError as error:
        raise InputError(f"{quote(path)}: {error}") from error


def read_made_with(path: Path) -> dict[str, Any]:
    """Return the record beside the recipe, empty if missing; raise InputError if it is invalid."""
    values = _json(path)
    made_with: dict[str, Any] = values.get(MADE_WITH, {}) if isinstance(values, dict) else {}
    check_json(MadeWith, made_with, path, f"begin a new run, without {MADE_WITH}")
    return made_with


def changed(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """Return the recipe with changed values by key, as {"batch": "2", "augmentation.noise": "0.02"}.

    The text "none" removes a value. Raises UsageError: unknown key, invalid or inconsistent values.
    """
    values = asdict(recipe)
    known = [*_keys(values)]
    for key, text in settings.items():
        if key in RENAMED:
            raise UsageError(f"the value {key} has a new name: {RENAMED[key]}")
        *groups, name = key.split(".", 1) if key.startswith("rates.") else key.split(".")
        place: Any = values
        for group in groups:
            if not isinstance(place.get(group), dict):
                raise UsageError(unknown(key, known))
            place = place[group]
        if name not in place and groups != ["rates"]:
            raise UsageError(unknown(key, known))
        place[name] = _value(text, isinstance(place.get(name), bool))
    try:
        return parse_record(Recipe, json.dumps(values))
    except ValidationError as error:
        wrong = ", ".join(f"{key}={text}" for key, text in settings.items())
        raise UsageError(f"{wrong}: {describe_first_error(error, Recipe)}") from error


def choose_recipe(
    task: Task,
    name: str | None,
    values: Mapping[str, Any],
    settings: Mapping[str, str],
    *,
    unsupervised: bool,
) -> Recipe:
    """Return a named recipe, or the default of the task, with changed values.

    `name`: recipe name, or a file ending in .json. `values`: recipe fields; a maximum disparity is rounded
    up.
    `settings`: as in `changed`, applied last. `unsupervised`: use no ground truth, and start from the default
    weights by default. Network, maximum disparity and scale default to those of the initial weights. Raises
    UsageError; InputError: the recipe file; ModelError: the initial weights.
    """
    changes: dict[str, Any] = {}
    changes |= {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    if unsupervised and name is None and not {"start", "network", "variant"} & changes.keys():
        changes["start"] = DEFAULT_MATCHING
    stored = read_header(locate(changes["start"])).spec if "start" in changes else None
    asked = changes.get("network")
    if asked is not None and asked not in list_architectures(task):
        hint = f"{did_you_mean(asked, list_architectures(task))}known: {', '.join(list_architectures(task))}"
        raise UsageError(f"the network {asked!r} is not known", hint)
    if asked is None and stored is not None and stored.architecture in list_architectures(task):
        asked = stored.architecture if stored.architecture != TRAINED[task] else None
    file = name is not None and name.endswith(".json")
    if file:
        recipe = read_recipe(Path(name or ""))
        if recipe.task != task:
            raise UsageError(f"{name} is a recipe of pam train {recipe.task}")
    else:
        default = default_recipe(task, unsupervised=unsupervised, start=stored is not None, network=asked)
        recipe = named_recipe(name or default, task)
    if changes.keys() & {"steps", "epochs"}:  # they replace each other
        changes = {"steps": None, "epochs": None, **changes}
    if (most := changes.get("max_disparity")) is not None:
        changes["max_disparity"] = -(-most // 16) * 16
    if asked is not None:
        changes["network"] = asked
    texts: dict[str, str] = {}
    if (variant := changes.pop("variant", None)) is not None:  # together with the losses that must suit it
        texts["variant"] = variant
    if stored is not None:
        if task == "disparity" and recipe.max_disparity is None:
            changes.setdefault("max_disparity", stored.max_disparity)
        elif task == "superres" and stored.scale is not None and not file:
            changes.setdefault("scale", stored.scale)
        if (
            variant is None
            and stored.variant != recipe.variant
            and asked in (None, stored.architecture)
            and not file
        ):
            texts["variant"] = stored.variant
    recipe = replace(recipe, **changes)
    if texts or settings:
        recipe = changed(recipe, texts | {**settings})
    if unsupervised and recipe.losses.need_truth and not recipe.pseudo_labels:
        what, why, hint = f"the recipe {recipe.name}", "it learns from the truth", "leave out one of them"
        if recipe.losses.mask_by_truth_below is not None and not recipe.losses.supervised:
            what, why = "mask_by_truth_below", "the mask is made of the truth"
            hint += "; `recipe` unsupervised has the same losses"
        raise UsageError(f"`unsupervised` and {what} contradict each other: {why}", hint)
    return recipe


def _keys(values: Mapping[str, Any], group: str = "") -> Iterator[str]:
    """Yield the keys of all settings: "batch", "losses.smoothness", ..."""
    for name, value in values.items():
        if isinstance(value, dict) and name != "rates":
            yield from _keys(value, f"{group}{name}.")
        else:
            yield f"{group}{name}"


def _value(text: str, switch: bool) -> Any:
    try:
        value = None if text.lower() == "none" else parse_json(text)
    except ValueError:
        value = {"true": True, "false": False}.get(text.lower(), text)
    return bool(value) if switch and value in (0, 1) else value


RENAMED = {
    "own_labels": "pseudo_labels",
    "aside": "held_out",
    "anew": "reinitialise",
    "augmentation.redraw": "augmentation.synthesize_right",
    "augmentation.insert": "augmentation.occluders",
    "scenes.kept": "scenes.pool",
    "scenes.augmentation.redraw": "scenes.augmentation.synthesize_right",
    "scenes.augmentation.insert": "scenes.augmentation.occluders",
}
"""Keys of earlier versions, with their present names."""


def _brought_up_to_date(values: dict[str, Any]) -> None:
    """Convert the values that earlier versions recorded differently."""
    for old, new in RENAMED.items():
        *groups, name = old.split(".")
        place: Any = values
        for group in groups:
            place = place.get(group) if isinstance(place, dict) else None
        if isinstance(place, dict) and name in place:
            place.setdefault(new.rpartition(".")[2], place.pop(name))
    losses = values.get("losses")
    if isinstance(losses, dict) and "refine_occluded" in losses:
        losses["occluded"] = float(bool(losses.pop("refine_occluded")))
    if "ema" in values and values["ema"] is None:
        values.pop("average_from", None)  # had no effect
    wide = values.pop("wide", None)
    if isinstance(wide, dict) and "sizes" not in values:
        values["sizes"] = [{"crop": wide.get("crop"), "shares": [wide.get("share")]}]


def _json(path: Path) -> Any:
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise InputError(f"{quote(path)} is not JSON: {str(error).splitlines()[0]}") from error
