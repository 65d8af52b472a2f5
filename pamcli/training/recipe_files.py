"""Recipes as JSON: what a run folder records, and what `--recipe FILE.json` reads."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pamcli.errors import InputError, UsageError
from pamcli.files.finding import shown
from pamcli.training.recipes import Recipe

MADE_WITH = "made_with"
"""Key of what a run folder records beside the recipe; it decides nothing."""


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
    try:
        recipe = _value(Recipe, values, "the recipe")
    except (_MisfitError, UsageError) as error:
        raise InputError(f"{shown(path)}: {error}") from error
    assert isinstance(recipe, Recipe)
    return recipe


def read_made_with(path: Path) -> dict[str, Any]:
    """What `recipe_json` was given beside the recipe; empty where that is not there. Raises InputError."""
    values = _json(path)
    made_with = values.get(MADE_WITH) if isinstance(values, dict) else None
    return made_with if isinstance(made_with, dict) else {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the recipe {shown(path)}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{shown(path)} is not JSON: {str(error).splitlines()[0]}") from error


def typed(kind: type, name: str, text: str) -> Any:
    """The value that a field of a dataclass takes from the text of an option: a number, or none.

    Raises UsageError: no such field, or a text that does not fit it.
    """
    hints = typing.get_type_hints(kind)
    if name not in hints:
        raise UsageError(_unknown(name, list(hints), "term"))
    try:
        value = None if text == "none" else json.loads(text.lower())
        if hints[name] is bool and value in (0, 1):
            value = bool(value)
        return _value(hints[name], value, name)
    except (ValueError, _MisfitError) as error:
        raise UsageError(f"{name}={text} is not what {name} can be", "a number, as in 0.5") from error


class _MisfitError(Exception):
    pass


def _value(hint: Any, value: Any, name: str) -> Any:
    """A JSON value as the type `hint` of a field called `name`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if is_dataclass(hint):
        return _fields(hint, value, name)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (one for one in arguments if one is not type(None))
        return _value(inner, value, name)
    if origin is typing.Literal:
        if value not in arguments:
            raise _MisfitError(f"{name} is {value!r}, not one of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list) or (arguments[-1] is not ... and len(value) != len(arguments)):
            count = "" if arguments[-1] is ... else f" of {len(arguments)}"
            raise _MisfitError(f"{name} is {value!r}, not a list{count}")
        return tuple(_value(arguments[0], one, name) for one in value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise _MisfitError(f"{name} is {value!r}, not of type {hint.__name__}")
    return value


def _fields(kind: Any, values: Any, name: str) -> Any:
    if not isinstance(values, dict):
        raise _MisfitError(f"{name} is {values!r}, not an object")
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in hints:
            raise _MisfitError(_unknown(key, list(hints), "value"))
    given = {key: _value(hints[key], value, key) for key, value in values.items()}
    try:
        return kind(**given)
    except TypeError:
        missing = [one.name for one in fields(kind) if one.name not in given]
        raise _MisfitError(f"{name} lacks one of {', '.join(missing)}") from None


def _unknown(name: str, known: list[str], what: str) -> str:
    near = get_close_matches(name, known, 1)
    guess = f"did you mean {near[0]}? " if near else ""
    return f"no {what} is called {name!r} ({guess}known: {', '.join(known)})"
