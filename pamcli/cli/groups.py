"""Turn functions with settings into commands: each field of the settings becomes an option.

    def match(settings: MatchSettings, console: Console) -> None: ...

A parameter whose default is a field, as `settings.options.option` returns, becomes an option, too.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from glob import glob
from inspect import Parameter, Signature, cleandoc, signature
from operator import attrgetter
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from pamcli import __version__
from pamcli.cli.console import Console, listen
from pamcli.errors import UsageError
from pamcli.registry.catalog import REGISTERED
from pamcli.settings.options import Option, Settings, argument, find_renamed, flag, list_options

PANELS = ("Input", "Output", "Calibration", "Learning", "Network", "Performance", "Messages", "Other")
"""Headings of `--help`, in their order."""


def _complete_name(module: str, table: str, incomplete: str) -> list[str]:
    """Complete a name of a table, whose module is imported for it."""
    names = getattr(importlib.import_module(module), table)
    return [name for name in names if name.startswith(incomplete)]


def _complete_data(incomplete: str) -> list[str]:
    """Complete the name of a data set; after the colon, a folder."""
    name, colon, path = incomplete.partition(":")
    if colon:
        return [f"{name}:{found}" for found in sorted(glob(f"{path}*/"))]
    return [f"{found}:" for found in _complete_name("pamcli.data.sources", "SOURCES", incomplete)]


def _complete_weights(incomplete: str) -> list[str]:
    """Complete the name of weights, or a file."""
    files = [name for suffix in ("safetensors", "onnx", "toml") for name in glob(f"{incomplete}*.{suffix}")]
    return [*(name for name in REGISTERED if name.startswith(incomplete)), *sorted(files)]


COMPLETIONS = {
    "data": _complete_data,
    "data sets": lambda incomplete: _complete_name("pamcli.data.sources", "SOURCES", incomplete),
    "protocols": lambda incomplete: _complete_name("pamcli.evaluation.protocols", "PROTOCOLS", incomplete),
    "weights": _complete_weights,
}


def make_name_argument(what: str, names: str | Callable[[str], list[str]], metavar: str = "NAME") -> Any:
    """Return the argument of a command that lists all names, or shows one."""
    return argument(f"Name of {what} [default: list all].", metavar=metavar, complete=names)


def show_version(version: bool = flag("Print the version.", "--version", "-V", panel="Other")) -> None:
    """Print the version of pam; without the option, do nothing."""
    if version:
        typer.echo(f"pam {__version__}")
        raise typer.Exit


def make_command(name: str, short: str, function: Callable[..., None]) -> Any:
    """Return a command with an option for each field of the settings that its function takes.

    The docstring is the help; lines "$ pam ..." at its end are examples, shown below the options.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters: list[Parameter] = []
    settings: dict[str, type[Settings]] = {}
    single: dict[str, Option] = {}
    for each in signature(function).parameters.values():
        if isinstance(each.default, Field):
            single[each.name] = Option(each.name, hints[each.name], each.default)
            parameters.append(_make_parameter(single[each.name]))
        else:
            settings[each.name] = hints[each.name]
            options = sorted(list_options(hints[each.name]).values(), key=attrgetter("place"))
            parameters += map(_make_parameter, options)

    def call(**given: Any) -> None:
        values: dict[str, Any] = {}
        for name, option in single.items():
            values[name] = option.default if given[name] is None else option.convert(given[name])
        for name, cls in settings.items():
            chosen = {}
            for option in list_options(cls).values():
                if given[option.name] is not None:
                    chosen[option.name] = given[option.name]
            values[name] = made = cls(**chosen)
            if isinstance(made, Console):
                listen(made)
        function(**values)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    for each in parameters:
        call.__annotations__[each.name] = each.annotation
    text, _, examples = cleandoc(function.__doc__ or "").partition("\n\n$ ")
    epilog = "\n".join(("\b", *examples.split("\n$ ")))
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(name, cls=_Command, help=text, short_help=short, epilog=epilog)(call)
    return typer.main.get_command(app)


def _make_parameter(option: Option) -> Parameter:
    """Convert an option for Typer, which passes None for its default, and text for all but its own types."""
    declared, default = option.metadata, option.default
    shown: bool | str = True
    hint: Any = str if option.form.parse is not None or len(option.types) > 1 else option.types[0]
    hint = list.__class_getitem__(hint) if option.repeatable else hint
    if default is MISSING:
        default = Parameter.empty
    elif hint is not bool:
        hint |= None
        if default not in (None, ""):
            shown, default = str(default), None
    completion = declared.get("complete", option.form.complete)
    more: dict[str, Any] = {
        "help": declared["help"],
        "show_default": declared.get("show_default", shown),
        "metavar": option.metavar,
        "min": declared.get("min"),
        "max": declared.get("max"),
        "rich_help_panel": option.panel,
        "autocompletion": COMPLETIONS.get(completion, completion),
    }
    info = typer.Option(*option.names, **more) if option.names else typer.Argument(**more)
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info])


class _Panels:
    """Formats help in panels, without Rich, whose import would take 0.1 s."""

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is None:
                continue
            names, text = record
            if each.param_type_name == "argument":
                names = names.partition(" <")[0]
            text = re.sub(r"x>=(\d+)", r"\1 or more", re.sub(r"<=x<=?", " to ", text))
            text = re.sub(r"\[default: \((.*)\)(;[^;]*)?\]$", r"[default: \1\2]", text)
            panel = getattr(each, "rich_help_panel", None) or "Other"
            panels.setdefault(panel, []).append((re.sub(r"<([\w|]+)>", r"\1", names), text))
        for name in sorted(panels, key=PANELS.index):
            with formatter.section(typer.style(name, bold=True)):
                formatter.write_dl(panels[name])


class _Command(_Panels, TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the arguments, with the present names of renamed options.

        Raises UsageError for typing errors that would turn an option into a value or an input: another dash,
        as word processors write it; one hyphen instead of two; a missing value.
        """
        takes_value: dict[str, bool] = {}
        for each in self.get_params(ctx):
            if isinstance(each, TyperOption):
                takes_value |= dict.fromkeys(each.opts, not each.is_flag)
        found, before = list(args), ""
        for place, word in enumerate(() if ctx.resilient_parsing else args):  # as for completion
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if name.startswith("--") and name not in takes_value and (now := find_renamed(name, takes_value)):
                Console().warn(f"{name} is now {now}, and will be removed in a later version")
                found[place] = word = now + equals + value
            if takes_value.get(before) and word in takes_value:
                raise UsageError(f"{before} requires a value, got the option {word}")
            meant = "--" + re.sub("^[-\u2010-\u2015\u2212]+", "", word).partition("=")[0]
            known = word in takes_value or word.startswith("--")
            if meant in takes_value and not known and not takes_value.get(before):
                raise UsageError(f"no such option: {word}, did you mean {meant}?")
            before = word
        return super().parse_args(ctx, found)

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


class Group(_Panels, TyperGroup):
    """Commands, each imported when it is used."""

    commands: Any

    def __init__(self, help_text: str, sections: Mapping[str, Mapping[str, Any]], **more: Any) -> None:
        """Take the commands below each heading of the help, as `pamcli.cli.COMMANDS`."""
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": 1000}
        super().__init__(
            help=help_text, no_args_is_help=True, rich_markup_mode=None, context_settings=settings, **more
        )
        self.sections = sections
        for commands in sections.values():
            self.commands |= commands

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command, or make the group below this one."""
        member, line = self.commands.get(cmd_name, (None, ""))
        if isinstance(member, str):
            module, _, function = member.partition(":")
            loaded = importlib.import_module(f"pamcli.cli.{module}")
            return make_command(cmd_name, line, getattr(loaded, function))
        return member and Group(line, {"Commands": member})

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, members in self.sections.items():
            with formatter.section(typer.style(title, bold=True)):
                formatter.write_dl([(name, line) for name, (_, line) in members.items()])
        super().format_options(ctx, formatter)
