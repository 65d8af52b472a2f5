"""What `pam train` says while it runs: a bar on a terminal, elsewhere a line for each of the log's."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pamcli.cli.console import Console, rich_bar

if TYPE_CHECKING:
    from pamcli.training.journal import Entry, Observer
    from pamcli.training.validation import Validated


@contextmanager
def watching(console: Console, batch: int) -> Iterator[Observer]:
    """The observer of a run. batch: pairs in a step."""
    if console.quiet or not sys.stderr.isatty():
        yield _Lines(console, batch)
        return
    with rich_bar("steps", "{task.fields[figures]}", width=12) as bar:
        yield _Bar(console, batch, bar)


class _Lines:
    def __init__(self, console: Console, batch: int) -> None:
        self.console, self.batch, self.steps = console, batch, 0

    def started(self, step: int, steps: int) -> None:
        self.steps = steps

    def stepped(self, step: int) -> None:
        pass

    def logged(self, entry: Entry) -> None:
        if self.console.jsonl:
            self.console.record(dict(entry))
        terms = ", ".join(f"{name} {value:.4g}" for name, value in entry["losses"].items())
        figures = [f"loss {entry['loss']:.4g} ({terms})", *self.figures(entry)]
        self.console.inform(f"step {entry['step']} of {self.steps}: {', '.join(figures)}")

    def validated(self, step: int, validated: Validated, best: bool) -> None:
        if self.console.jsonl:
            figures = {"figure": validated.figure, "validation": validated.figures, "best": best}
            self.console.record({"step": step, **figures})
        for line in validated.lines():
            self.console.inform(f"validation at step {step}: {line}{' (best)' if best else ''}")

    def informed(self, message: str) -> None:
        self.console.inform(message)

    def figures(self, entry: Entry) -> list[str]:
        """Learning rate, pairs a second, time left."""
        speed = entry["pairs_per_second"]
        left = datetime.timedelta(seconds=round((self.steps - entry["step"]) * self.batch / speed))
        found = [f"rate {entry['learning_rate']:.2e}", f"{speed:.2f} pairs/s"]
        return [*found, f"{left} left"] if left else found


class _Bar(_Lines):
    def __init__(self, console: Console, batch: int, bar: Any) -> None:
        super().__init__(console, batch)
        self.bar = bar
        self.task = bar.add_task("steps", total=None, figures="")

    def started(self, step: int, steps: int) -> None:
        super().started(step, steps)
        self.bar.update(self.task, completed=step, total=steps)

    def stepped(self, step: int) -> None:
        self.bar.update(self.task, completed=step)

    def logged(self, entry: Entry) -> None:
        if self.console.jsonl:
            self.console.record(dict(entry))
        figures = [f"loss {entry['loss']:.4g}", *self.figures(entry)]
        self.bar.update(self.task, figures=", ".join(figures))
