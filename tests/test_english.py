"""Docstrings, help texts and captions can be read alone: none begins in the middle of a thought."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from pamcli.cli import app
from pamcli.cli.ames import match

ROOT = Path(__file__).parents[1]
BEGINNING = re.compile(r"\W*(Of|As|The same|For|From|With|By|Until|On|Raises|That|Those)\b")
"""How a first line does not begin: a verb or a noun comes first."""

SOURCES = [
    path for folder in ("pamcli", "scripts", "tests") for path in sorted((ROOT / folder).rglob("*.py"))
]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring of a file: of modules, classes, functions, attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for line in body if isinstance(body, list) else ():
            text = (
                line.value.value
                if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
                else None
            )
            if isinstance(text, str):
                yield line.lineno, text


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each string of a file, with the beginnings of those that are filled in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def helps(name: str, command: Any) -> Iterator[tuple[str, str]]:
    """Name and help text of a command, of its options and arguments, and of the commands below it."""
    yield name, command.help
    yield f"{name}, in the list of commands", command.get_short_help_str()
    for each in command.params:
        yield f"{name} {each.name}", getattr(each, "help", None) or ""
    for below, each in getattr(command, "commands", {}).items():
        yield from helps(f"{name} {below}", each)


def tiles() -> Any:
    program = typer.Typer(add_completion=False)
    program.command()(match)
    return typer.main.get_command(program)


def test_no_docstring_begins_in_the_middle_of_a_thought() -> None:
    found = [(path.relative_to(ROOT).as_posix(), *each) for path in SOURCES for each in docstrings(path)]
    assert len(found) > 2000
    assert [
        f"{path}:{line}: {text.strip().splitlines()[0]}"
        for path, line, text in found
        if BEGINNING.match(text)
    ] == []


@pytest.mark.parametrize("program", ["pam", "pam-asp"])
def test_no_help_text_begins_in_the_middle_of_a_thought(program: str) -> None:
    command = typer.main.get_command(app) if program == "pam" else tiles()
    found = dict(helps(program, command))
    assert len(found) > (300 if program == "pam" else 8)
    assert {name: text for name, text in found.items() if BEGINNING.match(text)} == {}


def test_no_caption_heading_or_note_begins_so() -> None:
    """Tables, charts, the report and the page take their words from strings, templates and published.toml."""
    words = re.compile(r"\W*(Of|As of|The same)\b")
    files = [path for path in SOURCES if path.is_relative_to(ROOT / "pamcli")]
    strings = [(path, *each) for path in files for each in texts(path)]
    assert any(text.startswith("Each point stands at the lower edge") for _, _, text in strings)
    kept = [(path, line) for path in files for line, _ in docstrings(path)]
    assert [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path, line, text in strings
        if words.match(text) and (path, line) not in kept
    ] == []
    pages = [path for kind in ("html", "js", "toml") for path in sorted((ROOT / "pamcli").rglob(f"*.{kind}"))]
    assert len(pages) >= 5
    marked = re.compile(r"(?:>|title=|= |\[|`)\s*[\"']?(Of|As of|The same)\b")
    assert [path.name for path in pages if marked.search(path.read_text(encoding="utf-8"))] == []
