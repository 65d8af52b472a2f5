"""Recipes by name, of the paper and of the shipped weights (recipes.toml), and as JSON in files."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pydantic
from pydantic import ValidationError

from pamcli.checked import first_wrong, from_json, unknown
from pamcli.errors import InputError, UsageError, did_you_mean
from pamcli.files.finding import shown
from pamcli.files.guarded import parse_json, read_text
from pamcli.files.stored import Text, understood
from pamcli.registry.architectures import ARCHITECTURES, TRAINED, Task, names_of
from pamcli.registry.catalog import DEFAULT_MATCHING, locate
from pamcli.registry.spec import read_header
from pamcli.training.recipe import Recipe

MADE_WITH = "made_with"  # key of what a run folder records beside the recipe; it decides nothing


@pydantic.dataclasses.dataclass(frozen=True)
class MadeWith:
    """What must be right in the record beside a recipe, for a run to go on from it."""

    data: list[Text] | None = None
    """Fingerprints."""
    precision: Text | None = None


def _recipes() -> dict[str, Recipe]:
    text = resources.files("pamcli.training").joinpath("recipes.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)

    def values(name: str) -> dict[str, Any]:
        own = dict(tables[name])
        base = own.pop("base", None)
        return {**(values(base) if base else {}), **own, "name": name}

    return {name: from_json(Recipe, json.dumps(values(name))) for name in tables}


RECIPES: Mapping[str, Recipe] = _recipes()


def named_recipe(name: str, task: Task) -> Recipe:
    """Return the recipe of a name. Raises UsageError: there is none, or it is of the other task."""
    recipe = RECIPES.get(name)
    if recipe is not None and recipe.task == task:
        return recipe
    names = ", ".join(known for known, one in RECIPES.items() if one.task == task)
    what = f"is one of pam train {recipe.task}" if recipe else "is none"
    raise UsageError(f"the recipe {name!r} {what}", f"here: {names}; a path ends in .json")


def default_recipe(task: Task, *, unsupervised: bool, start: bool, network: str | None = None) -> str:
    """Name of the recipe where none is asked for; `start`: the run begins with trained weights."""
    if unsupervised:
        return "adapt" if start else "unsupervised"
    row = ARCHITECTURES[network or TRAINED[task]]
    return row.recipe if start else row.recipe_from_nothing or row.recipe


def recipe_json(recipe: Recipe, made_with: Mapping[str, Any] | None = None) -> str:
    """The whole recipe, every value written out. made_with: versions and the like, for the record."""
    values = asdict(recipe)
    if made_with is not None:
        values[MADE_WITH] = dict(made_with)
    return json.dumps(values, indent=2, allow_nan=False) + "\n"


def read_recipe(path: Path) -> Recipe:
    """A recipe from a file that `recipe_json` wrote, or from one by hand: what it leaves out has its default.

    Raises InputError: unreadable, not JSON, unknown keys, values of the wrong type, or out of range.
    """
    values = _json(path)
    if isinstance(values, dict):
        values.pop(MADE_WITH, None)
        _brought_up_to_date(values)
    try:
        return from_json(Recipe, json.dumps(values))
    except ValidationError as error:
        raise InputError(f"{shown(path)}: {first_wrong(error, Recipe)}") from error
    except UsageError as error:
        raise InputError(f"{shown(path)}: {error}") from error


def read_made_with(path: Path) -> dict[str, Any]:
    """What `recipe_json` was given beside the recipe; empty where that is not there. Raises InputError."""
    values = _json(path)
    made_with: dict[str, Any] = values.get(MADE_WITH, {}) if isinstance(values, dict) else {}
    understood(MadeWith, made_with, path, f"begin a new run, without {MADE_WITH}")
    return made_with


def changed(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """The recipe with other values by key, as {"batch": "2", "augmentation.noise": "0.02"}; none: no value.

    Raises UsageError: no such key, a text that its value cannot be, values that contradict each other.
    """
    values = asdict(recipe)
    known = [*_keys(values)]
    for key, text in settings.items():
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
        return from_json(Recipe, json.dumps(values))
    except ValidationError as error:
        wrong = ", ".join(f"{key}={text}" for key, text in settings.items())
        raise UsageError(f"{wrong}: {first_wrong(error, Recipe)}") from error


def asked_recipe(
    task: Task,
    name: str | None,
    values: Mapping[str, Any],
    settings: Mapping[str, str],
    *,
    unsupervised: bool,
) -> Recipe:
    """Find the recipe of a name, or the default for the task, with other values.

    name: of a recipe, or a file that ends in .json. values: fields of the recipe; a maximum disparity is
    rounded up. settings: as of `changed`, which comes last. unsupervised: no truth is opened, and
    the run begins with the default weights unless something else is said. Network, prior and scale of the
    weights to begin with count where nothing else is said.
    Raises UsageError, InputError of a recipe's file, ModelError of the weights to begin with.
    """
    changes: dict[str, Any] = {}
    changes |= {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    if unsupervised and name is None and not {"start", "network", "variant"} & changes.keys():
        changes["start"] = DEFAULT_MATCHING
    stored = read_header(locate(changes["start"])).spec if "start" in changes else None
    asked = changes.get("network")
    if asked is not None and asked not in names_of(task):
        hint = f"{did_you_mean(asked, names_of(task))}known: {', '.join(names_of(task))}"
        raise UsageError(f"the network {asked!r} is not known", hint)
    if asked is None and stored is not None and stored.architecture in names_of(task):
        asked = stored.architecture if stored.architecture != TRAINED[task] else None
    file = name is not None and name.endswith(".json")
    if file:
        recipe = read_recipe(Path(name or ""))
        if recipe.task != task:
            raise UsageError(f"{name} is a recipe of pam train {recipe.task}")
    else:
        default = default_recipe(task, unsupervised=unsupervised, start=stored is not None, network=asked)
        recipe = named_recipe(name or default, task)
    if changes.keys() & {"steps", "epochs"}:  # one takes the place of the other
        changes = {"steps": None, "epochs": None, **changes}
    if (most := changes.get("max_disparity")) is not None:
        changes["max_disparity"] = -(-most // 16) * 16
    if asked is not None:
        changes["network"] = asked
    texts: dict[str, str] = {}
    if (variant := changes.pop("variant", None)) is not None:  # together with the losses, which must suit it
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
    if unsupervised and recipe.losses.need_truth and not recipe.own_labels:
        what, why, hint = f"the recipe {recipe.name}", "it learns from the truth", "leave out one of them"
        if recipe.losses.mask_by_truth_below is not None and not recipe.losses.supervised:
            what, why = "mask_by_truth_below", "the mask is made of the truth"
            hint += "; `recipe` unsupervised has the same losses"
        raise UsageError(f"`unsupervised` and {what} contradict each other: {why}", hint)
    return recipe


def _keys(values: Mapping[str, Any], group: str = "") -> Iterator[str]:
    """Yield the keys of all settings: "batch", "losses.smoothness" ..."""
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


def _brought_up_to_date(values: dict[str, Any]) -> None:
    """What runs of earlier versions have recorded otherwise."""
    losses = values.get("losses")
    if isinstance(losses, dict) and "refine_occluded" in losses:
        losses["occluded"] = float(bool(losses.pop("refine_occluded")))
    if "ema" in values and values["ema"] is None:
        values.pop("average_from", None)  # which was of no effect
    wide = values.pop("wide", None)
    if isinstance(wide, dict) and "sizes" not in values:
        values["sizes"] = [{"crop": wide.get("crop"), "shares": [wide.get("share")]}]


def _json(path: Path) -> Any:
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise InputError(f"{shown(path)} is not JSON: {str(error).splitlines()[0]}") from error
