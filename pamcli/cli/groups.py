"""How do settings become the options of a command? Their fields become its parameters.

    @command(app, "disparity", "Disparity of a pair.")
    def disparity(settings: MatchSettings) -> None: ...

A parameter with a field as its default, as of `settings.options.option`, may stand by itself, too.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import Parameter, Signature, cleandoc, get_annotations, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from pamcli.cli.completing import COMPLETIONS
from pamcli.settings import parsing
from pamcli.settings.options import option_names

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
        for name, cls in groups.items():
            own = cls.__dataclass_fields__.keys() & values.keys()
            values[name] = cls(**dict(zip(own, map(values.pop, own), strict=True)))
        function(**values)

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
    parse, names = more.pop("parse", None if "min" in more else parse), option_names(name, made)
    more.pop("names", None)
    more.pop("check", None)
    hint = more.pop("type", hint)
    if completion := more.pop("complete", None):
        more["autocompletion"] = COMPLETIONS.get(completion, completion)
    if "Sequence[" in str(hint):
        hint = list[str] if made.default is MISSING else list[str] | None
    elif {str, Path} <= {*get_args(hint)}:
        hint = str if made.default is MISSING else str | None
    default = Parameter.empty if made.default is MISSING else made.default
    if parse is not None:
        said = names[0] if names else name.upper()
        # What is no text, or no longer the user's, is a default.
        more["parser"] = lambda text: parse(text, said) if isinstance(text, str) and text != default else text
        hint = list[str] if "list[" in str(hint) else str
    info = typer.Option(*names, **more) if names else typer.Argument(**more)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info])


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
