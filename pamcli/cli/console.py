"""What the commands say: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pamcli.errors import PamError


def complain(message: str) -> None:
    """An error, on one line of stderr."""
    _say(f"error: {message}")


def _say(message: str) -> None:
    line = " ".join(message.split("\n"))
    sys.stderr.write(f"pam: {line}\n".encode(errors="backslashreplace").decode())
    sys.stderr.flush()


class Progress(Protocol):
    """Counts finished pairs."""

    def advance(self) -> None: ...


@dataclass(frozen=True)
class Console:
    """How talkative a command is, and in which form its results come."""

    quiet: bool = False
    verbose: bool = False
    jsonl: bool = False

    def result(self, line: str) -> None:
        """A line of stdout, delivered at once."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def record(self, values: dict[str, Any]) -> None:
        """A JSON object on a line of stdout. Paths are written as text."""
        self.result(json.dumps(values, default=_as_text))

    def binary(self, data: bytes) -> None:
        """Bytes to stdout."""
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            sys.stdout.flush()  # which ends the program as for text

    def error(self, message: str) -> None:
        complain(message)

    def warn(self, message: str) -> None:
        _say(f"warning: {message}")

    def inform(self, message: str) -> None:
        """What a person likes to know, unless `quiet`."""
        if not self.quiet:
            _say(message)

    def detail(self, message: str) -> None:
        """What only `verbose` asks for."""
        if self.verbose:
            _say(message)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Progress]:
        """A bar with rate and time left on stderr; nothing where that is no terminal, or with `quiet`."""
        if self.quiet or not sys.stderr.isatty():
            yield _Silent()
            return
        from rich.console import Console as Terminal
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        # Results that go to a pipe must not be caught for display above the bar.
        with Bar(*columns, console=Terminal(stderr=True), redirect_stdout=sys.stdout.isatty()) as bar:
            yield _Bar(bar, bar.add_task(what, total=total, rate=""))


class _Silent:
    def advance(self) -> None:
        pass


class _Bar:
    def __init__(self, bar: Any, task: Any) -> None:
        self.bar, self.task = bar, task

    def advance(self) -> None:
        self.bar.advance(self.task)
        speed = self.bar.tasks[0].finished_speed or self.bar.tasks[0].speed
        if speed:
            self.bar.update(
                self.task, rate=f"{speed:.2f} pairs/s" if speed >= 1 else f"{1 / speed:.1f} s/pair"
            )


def failure(error: PamError) -> dict[str, Any]:
    """The fields of a JSON record that say what went wrong."""
    return {"status": "failed", "code": error.exit_code, "error": str(error)}


def _as_text(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
