"""Turn settings into the options of a command: each field becomes a parameter.

    @command(app, "disparity", "Compute disparity maps.")
    def disparity(settings: MatchSettings) -> None: ...

A parameter whose default is a field, as `settings.options.option` returns, becomes an option, too.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from glob import glob
from inspect import Parameter, Signature, cleandoc, get_annotations, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from pamcli.errors import UsageError
from pamcli.registry.catalog import REGISTERED
from pamcli.settings import parsing
from pamcli.settings.options import argument, option_names

Function = TypeVar("Function", bound=Callable[..., None])

PANELS = ("Input", "Output", "Calibration", "Learning", "Network", "Performance", "Messages", "Other")
"""Headings of `--help`, in their order."""

SECTIONS = {
    "Process image pairs": ("disparity", "superres", "rectify", "depth", "export", "view"),
    "Calibrate and check": ("calibration", "doctor"),
    "Evaluate": ("eval", "submit"),
    "Train": ("train", "dataset", "weights"),
    "Get help": ("guide", "help"),
}
"""The commands of `pam --help`, by task."""

_TYPES: dict[Any, tuple[str, Any]] = {
    int: ("N", None),
    float: ("X", parsing.parse_above_zero),
    str: ("TEXT", None),
    Path: ("PATH", parsing.parse_path),  # an empty one would be the current folder
}
"""`metavar` and `parse` of an option by its type, unless it states others."""


def data_sets() -> Iterable[str]:
    """Return the names of the data sets."""
    from pamcli.data.sources import SOURCES

    return SOURCES


def protocols() -> Iterable[str]:
    """Return the names of the protocols."""
    from pamcli.evaluation.protocols import PROTOCOLS

    return PROTOCOLS


def _complete_data(incomplete: str) -> list[str]:
    """Complete the name of a data set; after the colon, a folder."""
    name, colon, path = incomplete.partition(":")
    if colon:
        return [f"{name}:{found}" for found in sorted(glob(f"{path}*/"))]
    return [f"{found}:" for found in data_sets() if found.startswith(incomplete)]


def _complete_weights(incomplete: str) -> list[str]:
    """Complete the name of weights, or a file."""
    files = [name for suffix in ("safetensors", "onnx", "toml") for name in glob(f"{incomplete}*.{suffix}")]
    return [*(name for name in REGISTERED if name.startswith(incomplete)), *sorted(files)]


def make_completer(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that completes one of these names."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


COMPLETIONS: dict[str, Callable[[str], list[str]]] = {
    "data": _complete_data,
    "weights": _complete_weights,
    "protocols": make_completer(protocols),
    "data sets": make_completer(data_sets),
}


def make_name_argument(what: str, names: str | Callable[[str], list[str]], metavar: str = "NAME") -> Any:
    """Return the argument of a command that lists all names, or shows one."""
    return argument(f"Name of {what}.", metavar=metavar, show_default="list all", complete=names)


def group(help_text: str, *, completion: bool = False) -> typer.Typer:
    """Return a group of commands. completion: add options that install shell completion."""
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
    """Register a function as a command, with a parameter for each field of its settings.

    Its docstring is the help; lines "$ pam ..." at its end are examples, shown below the options.
    """

    def register(function: Function) -> Function:
        text, _, examples = cleandoc(function.__doc__ or "").partition("\n\n$ ")
        epilog = "\n".join(("\b", *examples.split("\n$ ")))
        app.command(name, cls=_Command, help=text, short_help=short, epilog=epilog)(unfold_settings(function))
        return function

    return register


def unfold_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Replace parameters that are dataclasses by one parameter for each of their fields.

    Raises TypeError where two of them have a field of the same name.
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
            parameters.append(_make_parameter(each.name, hints[each.name], each.default, "Input"))
        else:
            parameters.append(each.replace(annotation=hints[each.name], kind=Parameter.KEYWORD_ONLY))
    if twice := [name for name, count in Counter(each.name for each in parameters).items() if count > 1]:
        raise TypeError(f"{function.__module__}: duplicate options: {', '.join(twice)}")
    call.__doc__, call.__name__, call.__module__ = function.__doc__, function.__name__, function.__module__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


def _parameters(cls: type[Any]) -> list[Parameter]:
    """List the fields of a class as parameters: arguments and -o, then its own, then inherited ones."""
    hints = get_type_hints(cls)
    found = []
    lineage: list[Any] = list(cls.__mro__)
    for each in fields(cls):
        depth = next(i for i, base in enumerate(lineage) if each.name in get_annotations(base))
        is_first = "-o" in each.metadata.get("names", "-o")  # arguments have no names
        place = -1 if is_first else depth
        found.append((place, _make_parameter(each.name, hints[each.name], each, lineage[depth].panel)))
    return [parameter for _, parameter in sorted(found, key=lambda each: each[0])]


def _make_parameter(name: str, hint: Any, field: Field[Any], panel: str) -> Parameter:
    """Convert a field made by `option`, `flag` or `argument`."""
    kind = next((each for each in get_args(hint) or (hint,) if each in _TYPES), None)
    metavar, parse = _TYPES.get(kind, (None, None))
    more = {"rich_help_panel": panel, "metavar": metavar, **field.metadata}
    parse, names = more.pop("parse", None if "min" in more else parse), option_names(name, field)
    more.pop("names", None)
    more.pop("check", None)
    hint = more.pop("type", hint)
    if completion := more.pop("complete", None):
        more["autocompletion"] = COMPLETIONS.get(completion, completion)
    if "Sequence[" in str(hint):
        hint = list[str] if field.default is MISSING else list[str] | None
    elif {str, Path} <= {*get_args(hint)}:
        hint = str if field.default is MISSING else str | None
    default = Parameter.empty if field.default is MISSING else field.default
    if parse is not None:
        label = names[0] if names else name.upper()
        # Typer also passes defaults through the parser.
        more["parser"] = lambda text: (
            parse(text, label) if isinstance(text, str) and text != default else text
        )
        hint = list[str] if "list[" in str(hint) else str
    info = typer.Option(*names, **more) if names else typer.Argument(**more)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info])


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
        if not ctx.resilient_parsing:  # as for completion
            _check_dashes(self.get_params(ctx), args)
        return super().parse_args(ctx, args)

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


def _check_dashes(params: Iterable[Any], args: list[str]) -> None:
    """Raise UsageError for typing errors that would turn an option into a value or an input.

    These are another dash, as word processors write it; one hyphen instead of two; a missing value.
    """
    takes_value: dict[str, bool] = {}
    for each in params:
        if isinstance(each, TyperOption):
            takes_value |= dict.fromkeys(each.opts, not each.is_flag)
    for word, before in zip(args, ("", *args), strict=False):
        if word == "--":
            return
        if takes_value.get(before) and word in takes_value:
            raise UsageError(f"{before} requires a value, got the option {word}")
        name = "--" + re.sub("^[-\u2010-\u2015\u2212]+", "", word).partition("=")[0]
        known = word in takes_value or word.startswith("--")
        if name in takes_value and not known and not takes_value.get(before):
            raise UsageError(f"no such option: {word}, did you mean {name}?")


class _Group(_Panels, TyperGroup):
    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections = {"Commands": tuple(self.list_commands(ctx))} if ctx.parent else SECTIONS
        for title, names in sections.items():
            with formatter.section(typer.style(title, bold=True)):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(200)) for name in names])
        super().format_options(ctx, formatter)
