"""Groups of options become parameters of commands, and panels of their help."""

import os
import subprocess
import sys
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from pamcli.cli import app as pam
from pamcli.cli.groups import PANELS, make_command, unfold_settings
from pamcli.settings.options import Settings, option


class Place(Settings, panel="Output"):
    folder: str = option("Where.", default=..., metavar="FOLDER")


class NamedPlace(Place, panel="Network"):
    name: str = option("What.", default="result")


class Speed(Settings, panel="Performance"):
    cores: int = option("How many.", default=2, min=1)


def run(function: Any, *words: str) -> Any:
    app = typer.Typer()
    app.command()(lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", lambda app: make_command("work", "Works.", function))
        return CliRunner().invoke(app, list(words))


def test_a_command_is_given_its_groups() -> None:
    seen: list[object] = []

    def work(
        place: NamedPlace, speed: Speed, again: Annotated[bool, typer.Option("--again")] = False
    ) -> None:
        """Work."""
        seen.extend([place, speed, again])

    done = run(work, "--folder", "out", "--cores", "3", "--again")
    assert done.exit_code == 0, done.output
    assert seen == [NamedPlace(folder="out"), Speed(cores=3), True]


def test_an_option_without_a_default_is_required_and_marked() -> None:
    def work(place: NamedPlace) -> None:
        """Work."""

    assert run(work).exit_code == 2
    shown = run(work, "--help").output
    assert "work --folder FOLDER [OPTIONS]" in shown
    assert "Where.  [required]" in shown


def test_help_has_a_panel_for_each_class_in_one_order_without_types_and_with_examples() -> None:
    def work(speed: Speed, place: NamedPlace) -> None:
        """Work.

        $ program work --folder out
        $ program work --folder out --cores 3
        """

    shown = run(work, "--help").output
    at = [shown.index(f"\n{panel}:") for panel in ("Output", "Network", "Performance", "Examples")]
    assert at == sorted(at)
    assert "--cores N" in shown
    assert "<" not in shown
    assert "  program work --folder out --cores 3\n" in shown


@pytest.mark.parametrize("words", [["--enlarge", "3"], ["--enlarge=3"]])
def test_a_former_option_works_with_a_warning(words: list[str]) -> None:
    class Sized(Settings, panel="Output"):
        match_size: int = option("How large.", default=1)

    def work(sized: Sized) -> None:
        """Work."""
        typer.echo(sized.match_size)

    warning = "pam: warning: --enlarge is now --match-size, and will be removed in a later version"
    assert run(work, *words).output.splitlines() == [warning, "3"]


def test_two_options_of_one_name_are_refused() -> None:
    def work(place: Place, other: NamedPlace) -> None:
        """Work."""

    with pytest.raises(TypeError, match="folder"):
        unfold_settings(work)


def every_command(app: Any, *names: str) -> Any:
    for name, each in app.commands.items():
        if hasattr(each, "commands"):
            yield from every_command(each, *names, name)
        else:
            yield pytest.param(each, " ".join(("pam", *names, name)), id=" ".join((*names, name)))


@pytest.mark.parametrize(("each", "name"), list(every_command(typer.main.get_command(pam))))
def test_every_command_has_two_examples_and_help_and_a_panel_for_each_option(each: Any, name: str) -> None:
    examples = each.epilog.split("\n")[1:]
    assert len(examples) == 2
    assert all(example.startswith(name) for example in examples)
    for parameter in each.params:
        assert parameter.help, parameter.name
        assert parameter.rich_help_panel in PANELS, parameter.name


def test_help_is_as_wide_as_the_terminal() -> None:
    def longest(columns: str) -> int:
        shown = subprocess.run(
            [sys.executable, "-P", "-m", "pamcli", "disparity", "--help"],
            env={**os.environ, "COLUMNS": columns},
            capture_output=True,
            text=True,
            check=True,
        )
        return max(map(len, shown.stdout.partition("Examples:")[0].splitlines()))

    assert 60 < longest("80") <= 80
    assert 120 < longest("160") <= 160
