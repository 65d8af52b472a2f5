"""Help of the commands, and former options."""

import os
import subprocess
import sys
from typing import Any

import pytest
import typer
from pam_program import pam

from pamcli.cli import app
from pamcli.cli.groups import PANELS


@pytest.mark.parametrize("words", ["--enlarge 0.5", "--enlarge=0.5"])
def test_a_former_option_works_with_a_warning(words: str) -> None:
    run = pam(f"disparity none.png right.png -o d.pfm {words}")
    warning, error = run.complaints
    assert warning == "warning: --enlarge is now --match-size, and will be removed in a later version"
    assert error == "error: no such file: none.png"


def every_command(group: Any, *names: str) -> Any:
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from every_command(each, *names, name)
        else:
            yield pytest.param(each, " ".join(("pam", *names, name)), id=" ".join((*names, name)))


@pytest.mark.parametrize(("each", "name"), list(every_command(typer.main.get_command(app))))
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
