"""Provide named recipes, of the paper and of shipped weights (recipes.toml), and recipes as JSON files."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import reduce
from importlib import resources
from pathlib import Path
from typing import Any

import pydantic
from pydantic import TypeAdapter, ValidationError

from pamcli.data.open import parse_data
from pamcli.data.source import format_size
from pamcli.errors import InputError, ModelError, UsageError, did_you_mean
from pamcli.files.json_files import Text, check_json
from pamcli.files.paths import quote
from pamcli.files.safe_reading import parse_json, read_text
from pamcli.registry.architectures import ARCHITECTURES, NETWORKS, TRAINED, Task, parse_variant
from pamcli.registry.catalog import DEFAULT_MATCHING, locate, read_header
from pamcli.settings.training import TrainSettings
from pamcli.training.journal import RunFolder
from pamcli.training.recipe import Recipe
from pamcli.validation import describe_first_error, describe_unknown

MADE_WITH = "made_with"  # key for the record beside the recipe, without influence on the run
_ADAPTER = TypeAdapter(Recipe)


@pydantic.dataclasses.dataclass(frozen=True)
class MadeWith:
    """The parts of the record beside a recipe that must be valid for a run to resume."""

    data: list[Text] | None = None  # fingerprints of the data sets
    precision: Text | None = None


def _load_recipes() -> dict[str, Recipe]:
    text = resources.files("pamcli.training").joinpath("recipes.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)

    def values(name: str) -> dict[str, Any]:
        own = dict(tables[name])
        base = own.pop("base", None)
        return {**(values(base) if base else {}), **own, "name": name}

    return {name: _ADAPTER.validate_json(json.dumps(values(name))) for name in tables}


RECIPES: Mapping[str, Recipe] = _load_recipes()


def get_recipe(name: str, task: Task) -> Recipe:
    """Return the recipe of a name; raise UsageError if it is unknown or of the other task."""
    recipe = RECIPES.get(name)
    if recipe is not None and recipe.task == task:
        return recipe
    names = ", ".join(known for known, one in RECIPES.items() if one.task == task)
    what = f"is for pam train {recipe.task}" if recipe else "does not exist"
    raise UsageError(f"the recipe {name!r} {what}", f"recipes: {names}; the name of a file must end in .json")


def recipe_json(recipe: Recipe, made_with: Mapping[str, Any] | None = None) -> str:
    """Format the complete recipe as JSON. `made_with`: versions and similar facts for the record."""
    values = _ADAPTER.dump_python(recipe, mode="json")
    values |= {} if made_with is None else {MADE_WITH: dict(made_with)}
    return json.dumps(values, indent=2, allow_nan=False) + "\n"


def read_recipe(path: Path, changes: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe of `recipe_json` or written by hand; missing values have their defaults.

    `changes`: values by key ("network", "losses.refined") that a contradiction in the file may need.
    """
    values = _read_json(path)
    if isinstance(values, dict):
        values.pop(MADE_WITH, None)
    try:
        return _ADAPTER.validate_json(json.dumps(values))
    except (ValidationError, UsageError) as error:
        if changes and isinstance(error, UsageError):
            with suppress(ValidationError, UsageError, AttributeError, TypeError):
                for key, value in changes.items():
                    *groups, name = key.split(".")
                    reduce(lambda place, group: place.setdefault(group, {}), groups, values)[name] = value
                return _ADAPTER.validate_json(json.dumps(values))
        problem = error if isinstance(error, UsageError) else describe_first_error(error, Recipe)
        raise InputError(f"{quote(path)}: {problem}") from error


def read_made_with(path: Path) -> dict[str, Any]:
    values = _read_json(path)
    made_with: dict[str, Any] = values.get(MADE_WITH, {}) if isinstance(values, dict) else {}
    check_json(MadeWith, made_with, path, f"start a new run, without {MADE_WITH}")
    return made_with


def change_recipe(
    recipe: Recipe, settings: Mapping[str, str], changes: Mapping[str, Any] | None = None
) -> Recipe:
    """Return the recipe with changed values by key ("augmentation.noise": "0.02"; "none" removes a value).

    `changes`: values of fields, which the settings complete before the recipe is checked.
    """
    values = _ADAPTER.dump_python(recipe, mode="json") | dict(changes or {})
    for key, text in settings.items():
        *groups, name = key.split(".", 1) if key.startswith("rates.") else key.split(".")
        place: Any = values
        for group in groups:
            place = place[group] if isinstance(place.get(group), dict) else {}
        if name not in place and groups != ["rates"]:
            raise UsageError(
                describe_unknown(key, [*_keys(values)], "setting"), "pam guide recipes lists the settings"
            )
        place[name] = _parse_value(text, isinstance(place.get(name), bool))
    try:
        return _ADAPTER.validate_json(json.dumps(values))
    except ValidationError as error:
        wrong = ", ".join(f"{key}={text}" for key, text in settings.items())
        problem = describe_first_error(error, Recipe)
        raise UsageError(f"{wrong}: {problem}" if wrong else problem) from error


def plan_run(settings: TrainSettings) -> tuple[RunFolder, Recipe | None]:
    """Return the folder of a run and its recipe (None to resume), without loading PyTorch."""
    for text in [*(settings.data or ()), *(settings.validation or ())]:
        parse_data(text)
    folder = RunFolder(Path(settings.output or settings.resume or ""))
    if settings.resume is not None:
        return folder, None
    folder.require_new()
    return folder, make_recipe(settings)


def make_recipe(settings: TrainSettings) -> Recipe:
    """Return the requested or default recipe, changed by the options, with the form of the initial weights.

    Raises UsageError; InputError: the recipe file; ModelError: the initial weights.
    """
    task, name = settings.task, settings.recipe
    unsupervised = getattr(settings, "unsupervised", False)
    changes: dict[str, Any] = {}
    for key in Recipe.__dataclass_fields__:
        value = getattr(settings, key, None)
        if value not in (None, [], (), "stored"):
            changes[key] = tuple(value) if isinstance(value, list) else value
    if settings.crop is not None:
        changes["crop"] = format_size(settings.crop[::-1])
    most: Any = getattr(settings, "max_disparity", "stored")
    if most != "stored":
        changes["max_disparity"] = None if most is None else -(-most // 16) * 16
    if unsupervised and name is None and not {"start", "network", "variant"} & changes.keys():
        changes["start"] = DEFAULT_MATCHING
    stored = read_header(locate(changes["start"])).spec if "start" in changes else None
    network = changes.get("network")
    known = NETWORKS[task]
    if network is not None and network not in known:
        hint = f"{did_you_mean(network, known)}known: {', '.join(known)}"
        raise UsageError(f"unknown network {network!r}", hint)
    if stored is not None and stored.architecture not in known:
        other = f"{changes['start']} has weights of {stored.architecture}, for pam train {stored.row.task}"
        raise ModelError(other, f"set `from` to weights of {' or '.join(known)}")
    if network is None and stored is not None:
        network = stored.architecture if stored.architecture != TRAINED[task] else None
    from_file = name is not None and name.endswith(".json")
    if from_file:
        corrections = {key: _parse_value(text, False) for key, text in settings.settings or ()}
        if network is not None:
            corrections["network"] = network
        recipe = read_recipe(Path(name or ""), corrections)
        if recipe.task != task:
            raise UsageError(f"{name} is a recipe for pam train {recipe.task}")
    else:
        row = ARCHITECTURES[network or TRAINED[task]]
        default = row.recipe if stored else row.recipe_from_nothing or row.recipe
        if unsupervised:
            default = "adapt" if stored else "unsupervised"
        recipe = get_recipe(name or default, task)
    if changes.keys() & {"steps", "epochs"}:  # they replace each other
        changes = {"steps": None, "epochs": None, **changes}
    if network is not None:
        changes["network"] = network
    if stored is not None:
        if task == "disparity" and recipe.max_disparity is None:
            changes.setdefault("max_disparity", stored.max_disparity)
        elif task == "superres" and stored.scale is not None and not from_file:
            changes.setdefault("scale", stored.scale)
        if network in (None, stored.architecture) and not from_file and stored.variant != recipe.variant:
            form = parse_variant(stored.architecture, stored.variant)
            changes.setdefault("variant", form.weights_variant if recipe.augmentation.camera else form.text)
    # Options and settings apply together: a network may need losses that the settings change.
    recipe = change_recipe(recipe, dict(settings.settings or ()), changes)
    if unsupervised and recipe.losses.needs_truth and not recipe.pseudo_labels:
        masked = recipe.losses.mask_by_truth_below is not None and not recipe.losses.is_supervised
        what = "mask_by_truth_below" if masked else f"the recipe {recipe.name}"
        more = "; `recipe` unsupervised has the same losses without it" if masked else ""
        hint = f"omit one of them{more}"
        raise UsageError(f"cannot use both `unsupervised` and {what}, which needs ground truth", hint)
    return recipe


def _keys(values: Mapping[str, Any], group: str = "") -> Iterator[str]:
    """Yield the keys of all settings: "batch", "losses.smoothness", ..."""
    for name, value in values.items():
        if isinstance(value, dict) and name != "rates":
            yield from _keys(value, f"{group}{name}.")
        else:
            yield f"{group}{name}"


def _parse_value(text: str, switch: bool) -> Any:
    try:
        value = None if text.lower() == "none" else parse_json(text)
    except ValueError:
        value = {"true": True, "false": False}.get(text.lower(), text)
    return bool(value) if switch and value in (0, 1) else value


def _read_json(path: Path) -> Any:
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise InputError(f"{quote(path)} is not JSON: {str(error).splitlines()[0]}") from error
