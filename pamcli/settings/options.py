"""Declare options: each is one field of a frozen dataclass, with its help, default, range and unit.

    class Compute(Settings, panel="Performance"):
        device: str = option("Compute on auto, cpu, cuda, cuda:N or mps.", default="auto", metavar="DEVICE")

The command line, the keywords of Python functions, the JSON record of a run and the guide's tables are
derived from these fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache, wraps
from numbers import Real
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from pamcli.errors import UsageError

P = ParamSpec("P")
Kind = TypeVar("Kind", bound="Settings")
KindOf = TypeVar("KindOf", bound="Settings", contravariant=True)
Answer = TypeVar("Answer")
AnswerOf = TypeVar("AnswerOf", covariant=True)
Place = str | Path
"""A file, a folder, a template with `{}`, or `-`."""


def option(help_text: str, *names: str, default: Any = None, **more: Any) -> Any:
    """Declare a field that becomes an option.

    Args:
        help_text: One line, a verb phrase or what the value is.
        names: Short names in addition to the field's own name, or long names in place of it.
        default: Default value; ... for a required option.
        more: Arguments of `typer.Option`, and `parse`, which converts the text, given the name of the option
            (a float without it and `min` must be above 0); `check`, which raises UsageError for a wrong
            value, given the name of the option; `complete`, the kind of shell completion.
    """
    return argument(help_text, default=default, names=names, **more)


def result(help_text: str, *names: str, **more: Any) -> Any:
    """Declare an option for a result of each pair: a file, a folder or a template."""
    return option(help_text, *names, **{"metavar": "FILE|...", **more})


def flag(help_text: str, *names: str, **more: Any) -> Any:
    """Declare an option without a value, False by default."""
    return option(help_text, *names, default=False, **more)


def argument(help_text: str, *, default: Any = None, **more: Any) -> Any:
    """Declare a field that becomes an argument; parameters as in `option`."""
    return field(default=MISSING if default is ... else default, metadata={"help": help_text, **more})


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings:
    """Options of a command. Subclasses are frozen dataclasses; panel: their heading in `--help`."""

    panel: ClassVar[str]
    positional: ClassVar[str] = "inputs"
    """The field that holds the positional arguments of a Python function."""
    conflicts: ClassVar[Sequence[tuple[str, str]]] = ()
    """Pairs of options that cannot be combined."""
    requires: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Options that require one of others, perhaps with a value; "one": one of these is required."""
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, panel: str | None = None) -> None:
        cls.panel = panel or str(getattr(cls, "panel", "Other"))
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        """Convert texts as the command line does. Raises UsageError for wrong or contradictory values."""
        rules = _rules(type(self))  # type: ignore[arg-type]
        for each in fields(self):
            value, parse = getattr(self, each.name), each.metadata.get("parse")
            if each.name in rules.repeatable and isinstance(value, str | Path):
                value = (value,)
            if parse is not None and value != each.default:
                label = f"`{get_keyword(each)}`"
                if each.name in rules.repeatable:
                    value = tuple(parse(item, label) if isinstance(item, str) else item for item in value)
                elif isinstance(value, str):
                    value = parse(value, label)
            object.__setattr__(self, each.name, value)
        for name, is_number, choices, least, most, check in rules.values:
            value = getattr(self, name)
            if choices is not None and value is not None and value not in choices:
                known = ", ".join(map(str, choices))
                raise UsageError(f"unknown `{name}` {value!r}", f"expected one of {known}")
            if is_number and value is not None and not isinstance(value, Real):
                raise UsageError(f"`{name}` must be a number, got {value!r}")
            if isinstance(value, Real) and not least <= value <= most:
                bounds = f"{least:g} or more" if most > 1e300 else f"from {least:g} to {most:g}"
                bounds = "above 0" if 0 < least < 1e-300 else "finite" if least == -math.inf else bounds
                raise UsageError(f"`{name}` must be {bounds}, got {value:g}")
            if check is not None and value is not None:
                check(value, f"`{name}`")
        for one, other in rules.conflicts:
            if self.is_set(one) and self.is_set(other):
                both = f"{rules.names[one].label} and {rules.names[other].label}"
                raise UsageError(f"cannot use both {both}", "drop one of them")
        for one, others in rules.requires:
            if one != "one" and not self.is_set(one):
                continue
            words = [other.partition(" ") for other in others]
            if not any(self.is_set(other) or self.is_stated(other) for other, *_ in words):
                needed = " or ".join(f"`{other}`{space}{value}" for other, space, value in words)
                if one == "one":
                    raise UsageError(f"{needed} is missing", "give one of them")
                add = "one of them" if len(words) > 1 else "it"
                raise UsageError(f"`{one}` requires {needed}", f"add {add}, or drop `{one}`")

    def is_set(self, keyword: str) -> bool:
        """Return whether an option differs from its default."""
        option = _rules(type(self)).names[keyword]  # type: ignore[arg-type]
        value = getattr(self, option.name)
        return value is not None and value != option.default and value not in ([], ())

    def is_stated(self, keyword: str) -> bool:
        """Return whether the inputs themselves may state the value of an option."""
        return False

    def set_options(self, *, without: Collection[str] = ()) -> list[str]:
        """List the options that differ from their defaults: "`from`", "`seed`" ..., in backticks."""
        names = _rules(type(self)).names  # type: ignore[arg-type]
        return [each.label for key, each in names.items() if each.name not in without and self.is_set(key)]

    def to_json(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by their keywords, as values of JSON."""
        values = {}
        for keyword, each in _rules(type(self)).names.items():  # type: ignore[arg-type]
            if self.is_set(keyword):
                values[keyword] = getattr(self, each.name)
        record: dict[str, Any] = json.loads(json.dumps(values, default=str))
        return record


@dataclass(frozen=True)
class _Option:
    """A field, as messages call it."""

    name: str
    default: Any
    label: str
    """The keyword in backticks, or the metavar of an argument."""


@dataclass(frozen=True)
class _Rules:
    """The constraints on the fields of a class, computed once."""

    names: Mapping[str, _Option]
    """Rules by the keyword that messages use."""
    values: Sequence[tuple[Any, ...]]
    """Name, whether it must be a number, choices, least and largest number, and a function that checks it."""
    repeatable: Collection[str]
    conflicts: Sequence[tuple[str, str]]
    requires: Sequence[tuple[str, tuple[str, ...]]]


@cache
def _rules(cls: type[Any]) -> _Rules:
    """Collect the rules of a class and its bases."""
    hints, values, repeatable = get_type_hints(cls), [], set()
    for each in fields(cls):
        hint = hints[each.name]
        united = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        parts = [part for part in united if part is not type(None)]
        is_number = {*parts} <= {int, float}
        if "Sequence[" in str(hint):
            repeatable.add(each.name)
        choices, most = None, each.metadata.get("max", math.inf)
        least, check = each.metadata.get("min", -math.inf), each.metadata.get("check")
        if all(get_origin(part) is Literal for part in parts):
            choices = tuple(choice for part in parts for choice in get_args(part))
        elif parts == [float] and not {"parse", "min"} & each.metadata.keys():
            least, most = math.ulp(0.0), 1.7e308
        if choices or check or is_number or (least, most) != (-math.inf, math.inf):
            values.append((each.name, is_number, choices, least, most, check))
    names = {}
    for each in fields(cls):
        keyword = get_keyword(each)
        label = f"`{keyword}`" if "names" in each.metadata else each.metadata["metavar"]
        names[keyword] = _Option(each.name, each.default, label)
    bases = [base.__dict__ for base in reversed(cls.__mro__)]
    conflicts = [pair for base in bases for pair in base.get("conflicts", ())]
    requires = [each for base in bases for each in base.get("requires", {}).items()]
    return _Rules(names, values, repeatable, conflicts, requires)


def option_names(name: str, field: Field[Any]) -> tuple[str, ...]:
    """List the names of a field's option, its own first; an argument has none."""
    names: tuple[str, ...] = field.metadata.get("names", ())
    if "names" not in field.metadata or any(each.startswith("--") for each in names):
        return names
    return f"--{name.replace('_', '-')}", *names


def get_keyword(each: Field[Any]) -> str:
    """Return the keyword of a field in messages: the name of its option, with underscores."""
    names = [name for name in option_names(each.name, each) if name.startswith("--")]
    return names[0].removeprefix("--").replace("-", "_") if names else each.name


class TakesSettings(Protocol[P, KindOf, AnswerOf]):
    """A function of inputs, then settings, or their fields as keywords."""

    def __call__(
        self,
        first: Place | KindOf = ...,
        second: Place | KindOf | None = ...,
        third: Place | KindOf | None = ...,
        /,
        *more: P.args,
        **options: P.kwargs,
    ) -> AnswerOf: ...


def takes(kind: Callable[P, Kind]) -> Callable[[Callable[[Kind], Answer]], TakesSettings[P, Kind, Answer]]:
    """Let a function of settings accept their fields as keywords, too.

    `match_files(left, right, MatchSettings(output="out/"))` is `match_files(left, right, output="out/")`.
    """
    cls: Any = kind

    def decorate(function: Callable[[Kind], Answer]) -> TakesSettings[P, Kind, Answer]:
        @wraps(function)
        def call(*given: Any, **options: Any) -> Answer:
            return function(make_settings(cls, given, options))

        del call.__wrapped__
        call.__annotations__ = {"given": Place | cls, "options": Any}
        return call

    return decorate


def make_settings(cls: type[Kind], arguments: Sequence[Any], options: Mapping[str, Any]) -> Kind:
    """Return the settings of a call.

    Raises UsageError: both settings and keywords are given, or an input is neither a path nor a name.
    """
    for each in arguments:
        if each is not None and not isinstance(each, str | PathLike | Settings):
            raise UsageError(
                f"an input must be a path or a name, got {type(each).__name__}",
                "give each input as an argument of its own; arrays are for StereoMatcher and StereoUpscaler",
            )
    names = _rules(cls).names  # type: ignore[arg-type]
    values = {names[key].name if key in names else key: value for key, value in options.items()}
    values |= {cls.positional: tuple(arguments)} if arguments else {}
    if not arguments or not isinstance(arguments[-1], Settings):
        return cls(**values)
    *places, settings = arguments
    if options:
        raise UsageError(f"cannot use both {type(settings).__name__} and `{next(iter(options))}`")
    if not isinstance(settings, cls):
        raise UsageError(f"{cls.__name__} must be given, got {type(settings).__name__}")
    return replace(settings, **{cls.positional: tuple(places)}) if places else settings
