"""Groups of options: the fields of a dataclass become parameters of every command that takes it.

    class Compute(OptionGroup, panel="Performance"):
        device: str = option("auto, cpu, cuda, cuda:N or mps.", default="auto", metavar="DEVICE")

    @command(app, "disparity", "Disparity of a pair.")
    def disparity(compute: Compute) -> None: ...

A new option is a new field, which names it; a parameter with such a default may stand by itself, too.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from inspect import Parameter, Signature, cleandoc, get_annotations, signature
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from pamcli.cli import parsing

Function = TypeVar("Function", bound=Callable[..., None])

PANELS = ("Input", "Output", "Calibration", "Learning", "Network", "Performance", "Messages", "Other")
"""Headings of `--help`, in the order in which they come."""

_TYPES: dict[Any, tuple[str, Any]] = {
    int: ("N", None),
    float: ("X", parsing.above_zero),
    str: ("TEXT", None),
    Path: ("PATH", parsing.path),  # an empty one would be the current folder
}
"""What an option of a type, or None, takes if it says nothing else: `metavar` and `parse`."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class OptionGroup:
    """Its subclasses are frozen dataclasses of options. panel: their heading in `--help`, else the base's."""

    panel: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, panel: str | None = None) -> None:
        cls.panel = panel or cls.panel
        dataclass(frozen=True, kw_only=True)(cls)


def option(help_text: str, *names: str, default: Any = None, **more: Any) -> Any:
    """A field that becomes an option, its default None. names: short ones beside the field's own, or others.

    default: ... for an option that must be given. more: as of `typer.Option`, and parse: from text and the
    name of the option to the value, see `parsing`; a float is above 0 if neither parse nor min is given.
    """
    return argument(help_text, default=default, names=names, **more)


def result(help_text: str, *names: str, **more: Any) -> Any:
    """A field that becomes an option for a result of each pair: a file, a folder, a template."""
    return option(help_text, *names, **{"metavar": "FILE|...", **more})


def as_keywords(*groups: Any) -> dict[str, Any]:
    """Values of groups by the names of their options, as functions of `pamcli` take them: max_pixels ..."""
    given = {}
    for group in groups:
        for each in fields(group):
            names = [name for name in _names(each.name, each) if name.startswith("--")]
            if names and each.name != "jsonl":  # which is about what a command prints
                given[names[0].removeprefix("--").replace("-", "_")] = getattr(group, each.name)
    return given


def flag(help_text: str, *names: str, **more: Any) -> Any:
    """A field that becomes an option without a value, its default False."""
    return option(help_text, *names, default=False, **more)


def argument(help_text: str, *, default: Any = None, **more: Any) -> Any:
    """A field that becomes an argument. default: as of `option`. more: as of `typer.Argument`."""
    return field(default=MISSING if default is ... else default, metadata={"help": help_text, **more})


def group(help_text: str, *, completion: bool = False) -> typer.Typer:
    """A command that consists of commands. completion: with options that install it for the tab key."""
    return typer.Typer(
        help=help_text,
        cls=_Group,
        no_args_is_help=True,
        add_completion=completion,
        rich_markup_mode=None,  # see _Panels
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 1000},
    )


def command(app: typer.Typer, name: str, short: str) -> Callable[[Function], Function]:
    """Register a function as a command, its groups unfolded.

    Its docstring is the help; lines "$ pam ..." at the end of it are examples, shown below the options.
    """

    def register(function: Function) -> Function:
        text, _, examples = cleandoc(function.__doc__ or "").partition("\n\n$ ")
        epilog = "\n".join(("\b", *examples.split("\n$ ")))
        app.command(name, cls=_Command, help=text, short_help=short, epilog=epilog)(unfolded(function))
        return function

    return register


def unfolded(function: Callable[..., None]) -> Callable[..., None]:
    """The function with a parameter for each field of its parameters that are dataclasses.

    Raises TypeError where two of them have a field of one name.
    """
    hints = get_type_hints(function, include_extras=True)
    given = signature(function).parameters.values()
    groups = {each.name: hints[each.name] for each in given if is_dataclass(hints[each.name])}

    def call(**values: Any) -> None:
        made = {
            name: cls(**{field.name: values.pop(field.name) for field in fields(cls)})
            for name, cls in groups.items()
        }
        function(**made, **values)

    parameters: list[Parameter] = []
    for each in given:
        if each.name in groups:
            parameters += _parameters(groups[each.name])
        elif isinstance(each.default, Field):
            parameters.append(_parameter(each.name, hints[each.name], each.default, "Input"))
        else:
            parameters.append(each.replace(annotation=hints[each.name], kind=Parameter.KEYWORD_ONLY))
    if twice := [name for name, count in Counter(each.name for each in parameters).items() if count > 1]:
        raise TypeError(f"{function.__module__}: options of one name: {', '.join(twice)}")
    call.__doc__, call.__name__, call.__module__ = function.__doc__, function.__name__, function.__module__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


def _parameters(cls: type[Any]) -> list[Parameter]:
    """List a class's fields as parameters, its own before those of its bases; -o before all."""
    hints = get_type_hints(cls)
    found = []
    lineage: list[Any] = list(cls.__mro__)
    for each in fields(cls):
        depth = next(i for i, base in enumerate(lineage) if each.name in get_annotations(base))
        place = -1 if "-o" in each.metadata.get("names", ()) else depth
        found.append((place, _parameter(each.name, hints[each.name], each, lineage[depth].panel)))
    return [parameter for _, parameter in sorted(found, key=lambda each: each[0])]


def _parameter(name: str, hint: Any, made: Field[Any], panel: str) -> Parameter:
    """made: by `option`, `flag` or `argument`."""
    kind = next((each for each in get_args(hint) or (hint,) if each in _TYPES), None)
    metavar, parse = _TYPES.get(kind, (None, None))
    more = {"rich_help_panel": panel, "metavar": metavar, **made.metadata}
    parse, names = more.pop("parse", None if "min" in more else parse), _names(name, made)
    more.pop("names", None)
    if parse is not None:
        said = names[0] if names else name.upper()
        more["parser"] = lambda value: parse(value, said) if isinstance(value, str) else value  # a default
        hint = list[str] if "list[" in str(hint) else str
    info = typer.Option(*names, **more) if names else typer.Argument(**more)
    default = Parameter.empty if made.default is MISSING else made.default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info])


def _names(name: str, made: Field[Any]) -> tuple[str, ...]:
    """Names of the option that a field becomes, its own first; an argument has none."""
    names: tuple[str, ...] = made.metadata.get("names", ())
    if "names" not in made.metadata or any(each.startswith("--") for each in names):
        return names
    return f"--{name.replace('_', '-')}", *names


def set_options(group: Any, *, without: Collection[str] = ()) -> list[str]:
    """The options of a group that are not as by default, but for some fields of it: "--from", "--seed" ..."""
    return [
        _names(each.name, each)[0]
        for each in fields(group)
        if each.name not in without and getattr(group, each.name) not in (each.default, [])
    ]


class _Panels:
    """Help in panels as wide as the terminal; if Rich drew it, `pam --help` would take 0.1 s more."""

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is None:
                continue
            names, text = record
            if each.param_type_name == "argument":
                names = names.partition(" <")[0]
            text = re.sub(r"x>=(\d+)", r"\1 or more", re.sub(r"<=x<=?", " to ", text))
            panel = getattr(each, "rich_help_panel", None) or "Other"
            panels.setdefault(panel, []).append((re.sub(r"<([\w|]+)>", r"\1", names), text))
        for name in sorted(panels, key=PANELS.index):
            with formatter.section(typer.style(name, bold=True)):
                formatter.write_dl(panels[name])


class _Command(_Panels, TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        needed = [
            f"{max(each.opts, key=len)} {each.metavar}"
            for each in self.get_params(ctx)
            if isinstance(each, TyperOption) and each.required
        ]
        return [*needed, *super().collect_usage_pieces(ctx)]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section(typer.style("Examples", bold=True)):
            formatter.write_text(self.epilog)


class _Group(_Panels, TyperGroup):
    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)
