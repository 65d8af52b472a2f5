"""Validate fields of frozen records and arguments of functions by their types, with one-line errors."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Annotated, Any, ParamSpec, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, validate_call
from pydantic.dataclasses import dataclass

from pamcli.errors import UsageError, did_you_mean, find_closest

Record = TypeVar("Record")
Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

Count = Annotated[int, Field(ge=1, le=10**9)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
NonNegative = Annotated[float, Field(ge=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]

FEW = 12  # up to this number, errors list all known names


def validate_fields(kind: type[Record]) -> type[Record]:
    """Make a frozen dataclass whose `__init__` raises UsageError for invalid field values."""
    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    made = dataclass(kind, frozen=True, config=config)
    original = made.__init__

    def init(self: Any, *values: Any, **named: Any) -> None:
        try:
            original(self, *values, **named)
        except ValidationError as error:
            raise UsageError(describe_first_error(error, made)) from None

    made.__init__ = init  # type: ignore[method-assign]
    return typing.cast("type[Record]", made)


def check_arguments(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Make a function raise UsageError for arguments that its annotations do not allow."""
    signature = inspect.signature(function)

    @cache
    def make_checked() -> Callable[..., Returned]:
        return validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)

    @wraps(function)
    def call(*values: Arguments.args, **named: Arguments.kwargs) -> Returned:
        given = signature.bind(*values, **named).arguments
        try:
            return make_checked()(**given)
        except ValidationError as error:
            one = error.errors(include_url=False)[0]
            name = str(one["loc"][0])
            expected = inspect.formatannotation(typing.get_type_hints(function)[name])
            raise UsageError(f"`{name}` must be {expected}, got {_shorten(given[name])}") from None

    return call


def parse_record(kind: type[Record], text: str | bytes) -> Record:
    """Parse a record from JSON; raise UsageError or ValidationError (see `describe_first_error`)."""
    return TypeAdapter(kind).validate_json(text)


def describe_first_error(error: ValidationError, kind: type) -> str:
    """Describe the first error of a record of `kind` in one line."""
    one = error.errors(include_url=False)[0]
    path, place = one["loc"], ".".join(map(str, one["loc"]))
    if one["type"] == "unexpected_keyword_argument":
        return describe_unknown(place, _list_names(kind, path[:-1]))
    if one["type"] == "missing":
        return f"{place} is missing"
    expected = re.sub(r"^\w+ should ", "", one["msg"])  # such as "be a valid integer"
    if one["type"] == "json_invalid":
        return expected[:1].lower() + expected[1:]
    if one["type"] == "value_error":
        return f"{place}: {one['ctx']['error']}" if place else str(one["ctx"]["error"])
    if one["type"].startswith(("dataclass", "dict")):
        expected = "be names with values"
    return f"{place or 'the value'} must {expected}, got {_shorten(one['input'])}"


def _shorten(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= 80 else text[:77] + "..."


def describe_unknown(name: str, known: Sequence[str], what: str = "value") -> str:
    """Return the error message for an unknown name; long lists show only the closest known names."""
    if len(known) > FEW:
        near = " or ".join(find_closest(name, known))
        return f"unknown {what} {name!r}" + (f" (did you mean {near}?)" if near else "")
    guess = did_you_mean(name.rpartition(".")[2], known)
    return f"unknown {what} {name!r} ({guess}known: {', '.join(known)})"


def _list_names(kind: Any, path: Sequence[Any]) -> list[str]:
    for part in path:
        kind = typing.get_type_hints(kind)[part]
    return [field.name for field in dataclasses.fields(kind)]
