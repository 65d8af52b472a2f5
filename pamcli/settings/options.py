"""Declare options: each is one field of a frozen dataclass, with its type, default, range, unit and help.

    class Compute(Settings, panel="Performance"):
        device: Device = option("Compute on auto, cpu, cuda, cuda:N or mps.", default="auto")

The command line, the keywords of Python functions, the JSON record of a run and the guide's tables are
derived from these fields. Modules with settings do not use `from __future__ import annotations`.
"""

import json
import math
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache, wraps
from inspect import get_annotations
from numbers import Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from pamcli.errors import UsageError
from pamcli.settings.parsing import DEFAULT_FORMS, Form

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
        help_text: A verb phrase or what the value is; "[default: TEXT]" at its end if the default is None.
        names: Short names in addition to the field's own name, or long names in place of it.
        default: Default value; ... for a required option.
        more: `min` and `max` of a number; `metavar` in place of that of the type; `panel`, the heading in
            help in place of that of the class; `show_default=False` to hide the default.
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
    text, bracket, shown = help_text.partition(" [default: ")
    metadata = {"help": f"{text}.", "show_default": shown.rstrip("].")} if bracket else {"help": text}
    return field(default=MISSING if default is ... else default, metadata=metadata | more)


RENAMED = {"picture": "image", "enlarge": "match_size"}
"""Former keywords of options, which still work (pam guide stability), and their present ones."""


def find_renamed(name: str, known: Collection[str]) -> str | None:
    """Return the present name of a former keyword or option, if a command has it; None for other names."""
    now = RENAMED.get(name.removeprefix("--").replace("-", "_"), "")
    found = "--" + now.replace("_", "-") if name.startswith("--") else now
    return found if found in known and name not in known else None


class Option:
    """The declaration of a field, for the command line, Python and the guide."""

    def __init__(self, name: str, hint: Any, declared: Field[Any], cls: type[Any] | None = None) -> None:
        self.name, self.default, self.metadata = name, declared.default, declared.metadata
        self.types: list[Any] = []
        """Types of the value, or of an item of a `repeatable` one, without None."""
        self.repeatable, form, waiting = False, None, [hint]
        for each in waiting:
            origin = get_origin(each)
            if origin is Annotated:
                form = each.__metadata__[0]
                waiting.append(each.__origin__)
            elif origin in (Union, UnionType, Sequence):
                waiting += get_args(each)
                self.repeatable |= origin is Sequence
            elif each is not NoneType:
                self.types.append(each)
        has_range = "min" in self.metadata
        self.form: Form = form or next(
            (DEFAULT_FORMS[each] for each in self.types if each in DEFAULT_FORMS), Form(None)
        )
        if form is None and (has_range or len(self.types) > 1):
            self.form = Form(self.form.metavar)
        self.metavar: str | None = self.metadata.get("metavar", self.form.metavar)
        self.choices = [choice for each in self.types for choice in get_args(each)]
        if not all(get_origin(each) is Literal for each in self.types):
            self.choices = []
        self.least, self.most = self.metadata.get("min", -math.inf), self.metadata.get("max", math.inf)
        if self.types == [float] and form is None and not has_range:
            self.least, self.most = math.ulp(0.0), 1.7e308
        given: tuple[str, ...] = self.metadata.get("names", ())
        is_named = any(each.startswith("--") for each in given) or "names" not in self.metadata
        self.names = given if is_named else (f"--{name.replace('_', '-')}", *given)
        """Names on the command line, its own first; an argument has none."""
        long = [each for each in self.names if each.startswith("--")]
        self.keyword = long[0].removeprefix("--").replace("-", "_") if long else name
        """Name in Python, JSON and messages."""
        self.label = f"`{self.keyword}`" if "names" in self.metadata else str(self.metavar)
        lineage: Sequence[Any] = cls.__mro__ if cls else ()
        depth = next((i for i, base in enumerate(lineage) if name in get_annotations(base)), 0)
        self.panel: str = self.metadata.get("panel", lineage[depth].panel if lineage else "Input")
        self.place = -1 if "-o" in self.names or not self.names else depth
        """Place in help: arguments and -o, then options of the class, then inherited ones."""

    def convert(self, value: Any) -> Any:
        """Convert texts, and return the value. Raises UsageError if it is wrong."""
        if self.repeatable and isinstance(value, str | Path):
            value = (value,)
        if (parse := self.form.parse) is not None and value != self.default:
            if self.repeatable and value is not None:
                value = tuple(parse(item, self.label) if isinstance(item, str) else item for item in value)
            elif isinstance(value, str):
                value = parse(value, self.label)
        if value is None:
            return None
        if self.choices and value not in self.choices:
            raise UsageError(
                f"unknown {self.label} {value!r}", f"expected one of {', '.join(map(str, self.choices))}"
            )
        if {*self.types} <= {int, float} and not self.repeatable and not isinstance(value, Real):
            raise UsageError(f"{self.label} must be a number, got {value!r}")
        if isinstance(value, Real) and not self.least <= value <= self.most:
            bounds = (
                f"{self.least:g} or more" if self.most > 1e300 else f"from {self.least:g} to {self.most:g}"
            )
            bounds = "above 0" if 0 < self.least < 1e-300 else "finite" if self.least == -math.inf else bounds
            raise UsageError(f"{self.label} must be {bounds}, got {value:g}")
        if self.form.check is not None:
            self.form.check(value, self.label)
        return value


def _list_options(cls: Any) -> dict[str, Option]:
    options = (Option(each.name, each.type, each, cls) for each in fields(cls))
    return {each.keyword: each for each in options}


list_options: Callable[[Any], dict[str, Option]] = cache(_list_options)
"""Return the options of a settings class by their keywords."""


class Rule(NamedTuple):
    """An option that cannot be used with others, or that requires one of them."""

    option: str
    """Empty if one of the others is always required."""
    others: Sequence[str]
    needed: str = ""
    """The others in words if one of them is required, such as "`focal` or `engine` ray"."""
    tip: str = ""


def forbid(options: str, *others: str) -> tuple[Rule, ...]:
    """Declare that none of the options, separated by spaces, can be used with any of the others."""
    return tuple(Rule(option, others) for option in options.split())


def require(options: str, *others: str, tip: str = "") -> tuple[Rule, ...]:
    """Declare that each of the options requires one of the others, such as "focal" or "engine ray"."""
    words = [each.partition(" ") for each in others]
    needed = " or ".join(f"`{name}`{space}{value}" for name, space, value in words)
    names = [name for name, _, _ in words]
    return tuple(Rule(option, names, needed, tip) for option in options.split() or [""])


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings:
    """Options of a command. Subclasses are frozen dataclasses; panel: their heading in `--help`."""

    panel: ClassVar[str] = "Other"
    positional: ClassVar[str] = "inputs"
    """The field that holds the positional arguments of a Python function."""
    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules of this class alone. They and `check`, if the class has it, apply after those of its bases."""
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, panel: str | None = None) -> None:
        cls.panel = panel or cls.panel
        dataclass(frozen=True, kw_only=True, repr=False)(cls)

    def __post_init__(self) -> None:
        """Convert texts as the command line does. Raises UsageError for wrong or contradictory values."""
        for each in list_options(type(self)).values():
            if (value := getattr(self, each.name)) != each.default:
                object.__setattr__(self, each.name, each.convert(value))
        for cls in reversed(type(self).__mro__):
            for rule in vars(cls).get("rules", ()):
                self._apply(rule)
            if check := vars(cls).get("check"):
                check(self)

    def _apply(self, rule: Rule) -> None:
        """Raise UsageError if the options break a rule."""
        name, needed = rule.option, rule.needed
        if name and not self.is_set(name):
            return
        other = next(filter(self.is_set, rule.others), None)
        if other and not needed:
            options = list_options(type(self))
            both = f"{options[name].label} and {options[other].label}"
            raise UsageError(f"cannot use both {both}", "drop one of them")
        if needed and not other and not any(map(self.is_stated, rule.others)):
            if not name:
                raise UsageError(f"{needed} is missing", "give one of them")
            add = "one of them" if len(rule.others) > 1 else "it"
            raise UsageError(f"`{name}` requires {needed}", f"add {add}, or drop `{name}`{rule.tip}")

    def is_set(self, keyword: str) -> bool:
        """Return whether an option differs from its default."""
        option = list_options(type(self))[keyword]
        value = getattr(self, option.name)
        return value is not None and value != option.default and value not in ([], ())

    def is_stated(self, keyword: str) -> bool:
        """Return whether the inputs themselves may state the value of an option."""
        return False

    def set_options(self, *, without: Collection[str] = ()) -> list[str]:
        """List the options that differ from their defaults: "`from`", "`seed`" ..., in backticks."""
        options = list_options(type(self)).values()
        return [each.label for each in options if each.name not in without and self.is_set(each.keyword)]

    def to_json(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by their keywords, as values of JSON."""
        values = {}
        for keyword, option in list_options(type(self)).items():
            if self.is_set(keyword):
                values[keyword] = getattr(self, option.name)
        record: dict[str, Any] = json.loads(json.dumps(values, default=str))
        return record


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
            for each in given:
                if each is not None and not isinstance(each, str | PathLike | Settings):
                    raise UsageError(
                        f"an input must be a path or a name, got {type(each).__name__}",
                        "give each input as an argument of its own; arrays are for StereoMatcher and "
                        "StereoUpscaler",
                    )
            known, values = list_options(cls), dict[str, Any]()
            for key, value in options.items():
                if now := find_renamed(key, known):
                    warnings.warn(f"`{key}` is now `{now}`", DeprecationWarning, stacklevel=2)
                name = now or key
                values[known[name].name if name in known else name] = value
            if not given or not isinstance(given[-1], Settings):
                values |= {cls.positional: given} if given else {}
                return function(cls(**values))
            *places, settings = given
            if options:
                raise UsageError(f"cannot use both {type(settings).__name__} and `{next(iter(options))}`")
            if not isinstance(settings, cls):
                raise UsageError(f"{cls.__name__} must be given, got {type(settings).__name__}")
            return function(replace(settings, **{cls.positional: tuple(places)}) if places else settings)

        del call.__wrapped__
        call.__annotations__ = {"given": Place | cls, "options": Any}
        return call

    return decorate
