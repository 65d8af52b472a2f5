"""Groups of options: the annotated fields of a dataclass become parameters of every command that takes it.

    @dataclass(frozen=True, kw_only=True)
    class Compute:
        panel: ClassVar[str] = "Performance"
        device: Annotated[str, typer.Option("--device", help="...")] = "auto"

    @command(app, "disparity", "Disparity of a pair.", "pam disparity left.png right.png -o d.pfm")
    def disparity(compute: Compute) -> None: ...

A new option is a new field. `panel` is the heading of a class's fields in `--help`, and of its subclasses'.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, get_annotations, signature
from typing import Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

Function = TypeVar("Function", bound=Callable[..., None])

PANELS = ("Input", "Output", "Calibration", "Learning", "Network", "Performance", "Messages", "Other")
"""In this order."""

_PLACEHOLDERS = {"<int range>": "N", "<int>": "N", "<float>": "X", "<str>": "TEXT", "<path>": "PATH"}


def group(help_text: str, *, completion: bool = False) -> typer.Typer:
    """A command that consists of commands. completion: with options that install it for the tab key."""
    return typer.Typer(
        help=help_text,
        cls=_Group,
        no_args_is_help=True,
        add_completion=completion,
        rich_markup_mode=None,  # see _Command
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 1000},
    )


def command(app: typer.Typer, name: str, short: str, *examples: str) -> Callable[[Function], Function]:
    """Register a function as a command, its groups unfolded. examples: shown below its options."""

    def register(function: Function) -> Function:
        epilog = "\n".join(("\b", *examples))
        app.command(name, cls=_Command, short_help=short, epilog=epilog)(unfolded(function))
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
        else:
            parameters.append(each.replace(annotation=hints[each.name], kind=Parameter.KEYWORD_ONLY))
    if twice := [name for name, count in Counter(each.name for each in parameters).items() if count > 1]:
        raise TypeError(f"{function.__module__}: options of one name: {', '.join(twice)}")
    call.__doc__, call.__name__, call.__module__ = function.__doc__, function.__name__, function.__module__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


def _parameters(cls: type[Any]) -> list[Parameter]:
    """Of the fields, a class's own before those of its bases."""
    hints = get_type_hints(cls, include_extras=True)
    found = []
    lineage: list[Any] = list(cls.__mro__)
    for field in fields(cls):
        depth = next(i for i, base in enumerate(lineage) if field.name in get_annotations(base))
        annotation = copy(hints[field.name])
        annotation.__metadata__ = tuple(map(copy, annotation.__metadata__))  # of this class alone
        for each in annotation.__metadata__:
            each.rich_help_panel = each.rich_help_panel or lineage[depth].panel
        default = Parameter.empty if field.default is field.default_factory else field.default
        parameter = Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        found.append((depth, parameter))
    return [parameter for _, parameter in sorted(found, key=lambda each: each[0])]


class _Command(TyperCommand):
    """Help in panels as wide as the terminal; if Rich drew it, `pam --help` would take 0.1 s more."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        needed = [
            f"{max(each.opts, key=len)} {each.metavar}"
            for each in self.get_params(ctx)
            if isinstance(each, TyperOption) and each.required
        ]
        return [*needed, *super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _format_panels(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section(typer.style("Examples", bold=True)):
            formatter.write_text(self.epilog)


class _Group(TyperGroup):
    """The same for a command that consists of commands."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        _format_panels(self, ctx, formatter)


def _format_panels(self: Any, ctx: Any, formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for each in self.get_params(ctx):
        if (record := each.get_help_record(ctx)) is None:
            continue
        names, text = record
        if each.param_type_name == "argument":
            names = names.partition(" <")[0]
        panel = getattr(each, "rich_help_panel", None) or "Other"
        panels.setdefault(panel, []).append((_plain(names), re.sub(r"x>=(\d+)", r"\1 or more", text)))
    for name in sorted(panels, key=PANELS.index):
        with formatter.section(typer.style(name, bold=True)):
            formatter.write_dl(panels[name])


def _plain(text: str) -> str:
    """What an option takes, without the names of Python's types."""
    for leaked, placeholder in _PLACEHOLDERS.items():
        text = text.replace(leaked, placeholder)
    return re.sub(r"<([\w|]+)>", r"\1", text)
