"""Turn functions with settings into commands: each field of the settings becomes an option.

    def match(settings: MatchSettings, console: Console) -> None: ...

A parameter whose default is a field, as `settings.options.option` returns, becomes an option, too.
"""

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field
from glob import glob
from inspect import Parameter, Signature, cleandoc, get_annotations, signature
from typing import Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from pamcli.cli.console import Console, listen
from pamcli.errors import UsageError
from pamcli.registry.catalog import REGISTERED
from pamcli.settings.options import Option, Settings, argument, find_renamed, list_options

PANELS = ("Input", "Output", "Calibration", "Learning", "Network", "Performance", "Messages", "Other")
"""Headings of `--help`, in their order."""

Member = tuple[str, str] | typer.Typer
"""A command: "MODULE:FUNCTION" in `pamcli.cli`, and its line in the help of its group. Or a group."""


def _complete_data(incomplete: str) -> list[str]:
    """Complete the name of a data set; after the colon, a folder."""
    name, colon, path = incomplete.partition(":")
    if colon:
        return [f"{name}:{found}" for found in sorted(glob(f"{path}*/"))]
    return [f"{found}:" for found in _complete_data_set(incomplete)]


def _complete_data_set(incomplete: str) -> list[str]:
    from pamcli.data.sources import SOURCES

    return [name for name in SOURCES if name.startswith(incomplete)]


def _complete_protocol(incomplete: str) -> list[str]:
    from pamcli.evaluation.protocols import PROTOCOLS

    return [name for name in PROTOCOLS if name.startswith(incomplete)]


def _complete_weights(incomplete: str) -> list[str]:
    """Complete the name of weights, or a file."""
    files = [name for suffix in ("safetensors", "onnx", "toml") for name in glob(f"{incomplete}*.{suffix}")]
    return [*(name for name in REGISTERED if name.startswith(incomplete)), *sorted(files)]


COMPLETIONS = {
    "data": _complete_data,
    "data sets": _complete_data_set,
    "protocols": _complete_protocol,
    "weights": _complete_weights,
}


def make_name_argument(what: str, names: str | Callable[[str], list[str]], metavar: str = "NAME") -> Any:
    """Return the argument of a command that lists all names, or shows one."""
    return argument(f"Name of {what} [default: list all].", metavar=metavar, complete=names)


def group(help_text: str, members: Mapping[str, Any], **more: Any) -> typer.Typer:
    """Return a group of commands, which are imported when they are used.

    members: each `Member` by its name, or those below each heading of the help.
    """
    has_headings = all(isinstance(each, Mapping) for each in members.values())
    kind = type("Group", (_Group,), {"sections": members if has_headings else {"Commands": members}})
    app = typer.Typer(
        help=help_text,
        cls=kind,
        no_args_is_help=True,
        rich_markup_mode=None,  # see _Panels
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 1000},
        **{"add_completion": False, **more},
    )
    app.callback()(lambda: None)
    return app


def make_command(name: str, short: str, function: Callable[..., None]) -> Any:
    """Return a command with a parameter for each field of its settings.

    The docstring is the help; lines "$ pam ..." at its end are examples, shown below the options.
    """
    text, _, examples = cleandoc(function.__doc__ or "").partition("\n\n$ ")
    epilog = "\n".join(("\b", *examples.split("\n$ ")))
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(name, cls=_Command, help=text, short_help=short, epilog=epilog)(unfold_settings(function))
    return typer.main.get_command(app)


def unfold_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Replace parameters that are settings by one parameter for each of their fields.

    Raises TypeError where two of them have a field of the same name.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, type[Settings]] = {}
    single: dict[str, Option] = {}
    for each in signature(function).parameters.values():
        hint: Any = hints[each.name]
        if isinstance(hint, type) and issubclass(hint, Settings):
            groups[each.name] = hint
            parameters += _list_parameters(hint)
        elif isinstance(each.default, Field):
            single[each.name] = Option(each.name, hint, each.default)
            parameters.append(_make_parameter(single[each.name], "Input"))
        else:
            parameters.append(each.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))
    if twice := [name for name, count in Counter(each.name for each in parameters).items() if count > 1]:
        raise TypeError(f"{function.__module__}: duplicate options: {', '.join(twice)}")

    def call(**values: Any) -> None:
        for name, option in single.items():
            values[name] = option.convert(values[name])
        for name, cls in groups.items():
            own = cls.__dataclass_fields__.keys() & values.keys()
            made = cls(**dict(zip(own, map(values.pop, own), strict=True)))
            values[name] = listen(made) if isinstance(made, Console) else made
        function(**values)

    call.__doc__, call.__name__, call.__module__ = function.__doc__, function.__name__, function.__module__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


def _list_parameters(cls: type[Any]) -> list[Parameter]:
    """List the fields of a class as parameters: arguments and -o, then its own, then inherited ones."""
    found: list[tuple[int, Parameter]] = []
    lineage: list[Any] = list(cls.__mro__)
    for option in list_options(cls).values():
        depth = next(i for i, base in enumerate(lineage) if option.name in get_annotations(base))
        place = -1 if "-o" in option.names or not option.names else depth
        found.append((place, _make_parameter(option, lineage[depth].panel)))
    return [parameter for _, parameter in sorted(found, key=lambda each: each[0])]


def _make_parameter(option: Option, panel: str) -> Parameter:
    """Convert an option for Typer, which passes text to `Option.convert` for all but its own types."""
    more = {key: each for key, each in option.metadata.items() if key not in ("names", "panel", "complete")}
    more |= {"metavar": option.metavar, "rich_help_panel": option.metadata.get("panel", panel)}
    if completion := option.metadata.get("complete", option.form.complete):
        more["autocompletion"] = COMPLETIONS.get(completion, completion)
    hint: Any = option.types[0]
    default = option.default
    if option.form.parse is not None or len(option.types) > 1:
        hint = str
    hint = list.__class_getitem__(hint) if option.repeatable else hint
    if default is None:
        hint = hint | None
    info = typer.Option(*option.names, **more) if option.names else typer.Argument(**more)
    default = Parameter.empty if default is MISSING else str(default) if hint is str else default
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
        if not ctx.resilient_parsing:  # as for completion
            args = _replace_renamed(self.get_params(ctx), args)
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


def _replace_renamed(params: Iterable[Any], args: list[str]) -> list[str]:
    """Return the arguments with the present names of options; print a warning for each former one."""
    known = {name for each in params if isinstance(each, TyperOption) for name in each.opts}
    found = list(args)
    for place, word in enumerate(args[: args.index("--")] if "--" in args else args):
        name, equals, value = word.partition("=")
        if now := find_renamed(name, known):
            Console().warn(f"{name} is now {now}, and will be removed in a later version")
            found[place] = now + equals + value
    return found


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


class _Commands(dict[str, Any]):
    """The commands of a group by name, each imported when it is first looked up."""

    def __getitem__(self, name: str) -> Any:
        member = super().__getitem__(name)
        if isinstance(member, typer.Typer):
            self[name] = typer.main.get_command(member)
        elif isinstance(member, tuple):
            module, _, function = member[0].partition(":")
            loaded = importlib.import_module(f"pamcli.cli.{module}")
            self[name] = make_command(name, member[1], getattr(loaded, function))
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


class _Group(_Panels, TyperGroup):
    sections: ClassVar[Mapping[str, Mapping[str, Member]]]

    def __init__(self, **attributes: Any) -> None:
        members = {name: each for named in self.sections.values() for name, each in named.items()}
        super().__init__(**{**attributes, "commands": _Commands(members)})

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, members in self.sections.items():
            rows = [
                (name, each[1] if isinstance(each, tuple) else str(each.info.help))
                for name, each in members.items()
            ]
            with formatter.section(typer.style(title, bold=True)):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)
