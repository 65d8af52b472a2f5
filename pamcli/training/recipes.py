"""The recipes by name: those of the paper, and ours for the shipped weights (recipes.toml)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from pamcli.checked import from_json
from pamcli.errors import UsageError
from pamcli.training.recipe import Network, Recipe, Task


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
    """Raises UsageError: no such recipe, or one of the other task."""
    recipe = RECIPES.get(name)
    if recipe is not None and recipe.task == task:
        return recipe
    names = ", ".join(known for known, one in RECIPES.items() if one.task == task)
    what = f"is one of pam train {recipe.task}" if recipe else "is none"
    raise UsageError(f"the recipe {name!r} {what}", f"here: {names}; a path ends in .json")


def default_recipe(task: Task, *, unsupervised: bool, start: bool, network: Network = "pasmnet") -> str:
    """Name of the recipe where none is asked for."""
    if task == "superres":
        return "passrnet2" if network == "passrnet2" else "superres"
    if not unsupervised:
        return "pasmnet2" if network == "pasmnet2" else "scenes" if start else "scratch"
    return "adapt" if start else "unsupervised"
