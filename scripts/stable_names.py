"""Write the list of everything that pamcli/guide/stability.md promises: tests/stable_names.txt.

python scripts/stable_names.py

scripts/release.sh runs this. A test fails if a line no longer holds, so that a break is a decision.
Names that a release adds are promises from then on.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pamcli
from pamcli import errors
from pamcli.cli import app
from pamcli.settings.options import Settings, list_options

FILE = Path(__file__).resolve().parents[1] / "tests" / "stable_names.txt"


def main() -> None:
    """Write the list, and print what is new in it."""
    promised, found = FILE.read_text(encoding="utf-8").splitlines(), names()
    FILE.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    added = [line for line in found if line not in promised]
    print(f"{FILE.name}: {len(found)} names, {len(added)} of them new", *added, sep="\n  ")


def names() -> list[str]:
    """Return one line for each exit code, option and public name of Python."""
    return [*exit_codes(), *options(app, "pam"), *python()]


def exit_codes() -> Iterator[str]:
    """Yield the exit codes of the errors."""
    codes = {f"exit code {errors.BATCH_FAILED}: batch with failed pairs"}
    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, errors.PamError):
            codes.add(f"exit code {each.exit_code}: {each.__name__}")
    yield from sorted(codes)


def options(command: Any, name: str) -> Iterator[str]:
    """Yield the options of a command, or of all commands of a group."""
    for member in getattr(command, "commands", ()):
        yield from options(command.get_command(None, member), f"{name} {member}")
    if not hasattr(command, "commands"):
        for each in command.params:
            given = " ".join(each.opts) if each.opts[0].startswith("-") else str(each.metavar or each.name)
            value = "" if getattr(each, "is_flag", True) else f" {each.metavar or 'VALUE'}"
            yield f"{name} {given}{value}"


def python() -> Iterator[str]:
    """Yield the public names of Python, with parameters, and the members of classes."""
    for name in sorted(set(pamcli.__all__) - {"__version__"}):
        each = getattr(pamcli, name)
        if not isinstance(each, type):
            yield f"pamcli.{name}{parameters(each)}"
        elif issubclass(each, Settings):
            yield from (f"pamcli.{name} {keyword}" for keyword in sorted(list_options(each)))
        else:
            yield f"pamcli.{name}"
            members = {*vars(each), *getattr(each, "__annotations__", {})}
            for member in sorted(member for member in members if not member.startswith("_")):
                value = getattr(each, member, None)
                yield f"pamcli.{name}.{member}{parameters(value) if callable(value) else ''}"


def parameters(function: Any) -> str:
    """Return the names of a function's parameters in parentheses."""
    return f"({', '.join(map(str.strip, inspect.signature(function).parameters))})"


if __name__ == "__main__":
    main()
