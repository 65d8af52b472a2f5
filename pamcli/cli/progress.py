"""Show the progress of a command: a bar on a terminal, else an estimate, then a line per minute."""

import datetime
import time
from collections.abc import Callable
from typing import Any

SLOW = 2.0
"""Time of a pair after which its rows are shown, s."""

EVERY = 60.0
"""Time between two lines, s."""

LONG = 10.0
"""Remaining time above which the first estimate is printed, s."""


class Progress:
    """Counts finished pairs."""

    def __init__(self, total: int | None = None) -> None:
        self.total, self.completed, self.rate = total, 0, ""
        self._timed, self._began = 0, time.monotonic()
        self.remaining: float | None = None
        """Estimated time until the end, s, or None."""

    def advance(self, *, skipped: bool = False) -> None:
        """Count one more pair. skipped: its results existed, so it took no time."""
        self.completed += 1
        now = time.monotonic()
        if skipped:
            self._began = self._began if self._timed else now
        else:
            self._timed += 1
            each = max(now - self._began, 1e-9) / self._timed
            self.rate = f"{1 / each:.2f} pairs/s" if each <= 1 else f"{each:.1f} s/pair"
            self._expect(each, 0.0)
        self._display()

    def _expect(self, each: float, passed: float) -> None:
        """Estimate the remaining time. each: time per pair, s; passed: time spent on the current pair, s."""
        if self.total is not None and (left := self.total - self.completed) > 0:
            self.remaining = max(left * each - passed, 0.0)
            speed = self.rate.partition(", ")[0] if self._timed else ""
            self.rate = f"{speed}, {_format_seconds(self.remaining)} remaining".removeprefix(", ")

    def expect(self, count: int) -> None:
        """Increase the total by `count`."""
        self.total = (self.total or 0) + count
        self._display()

    def show(
        self, *, completed: int | None = None, total: int | None = None, rate: str | None = None
    ) -> None:
        """Set the number of finished pairs, the total, or the rate."""
        self.completed = self.completed if completed is None else completed
        self.total = self.total if total is None else total
        self.rate = self.rate if rate is None else rate
        self._display()

    def watch(self, rows: int) -> Callable[[float], None]:
        """Return a function that is called with the finished share of a pair of `rows` rows."""
        self.end()
        began = time.monotonic()

        def report(share: float) -> None:
            passed = time.monotonic() - began
            if 0 < share < 1 and passed > SLOW and not self._timed:
                self._expect(passed / share, passed)
            self._show_share(rows, share, passed)

        return report

    def _show_share(self, rows: int, share: float, passed: float) -> None:
        """Show the finished share of the current pair; passed: time spent on it so far, s."""

    def end(self) -> None:
        """End the display."""

    def _display(self) -> None:
        pass


class Bar(Progress):
    """Counts on a bar of Rich, with another bar for the rows of a slow pair."""

    def __init__(self, bar: Any, what: str, total: int | None) -> None:
        super().__init__(total)
        self._bar, self._task = bar, bar.add_task(what, total=total, rate="")
        self._rows: Any = None

    def _show_share(self, rows: int, share: float, passed: float) -> None:
        if share >= 1:
            self.end()
        elif self._rows is not None or passed > SLOW:
            if self._rows is None:
                self._rows = self._bar.add_task("rows", total=rows, rate="")
            self._bar.update(self._rows, completed=int(share * rows), rate=_format_remaining(passed, share))
            self._display()

    def end(self) -> None:
        if self._rows is not None:
            self._bar.remove_task(self._rows)
            self._rows = None

    def _display(self) -> None:
        rate = self.rate and f"{self.rate}, "
        self._bar.update(self._task, completed=self.completed, total=self.total, rate=rate)


class Lines(Progress):
    """Prints an estimate once it is known, and the progress every `EVERY` seconds."""

    def __init__(self, print_line: Callable[[str], None], what: str, total: int | None) -> None:
        super().__init__(total)
        self._print, self._what, self._printed = print_line, what, time.monotonic()
        self._estimated = False

    def _show_share(self, rows: int, share: float, passed: float) -> None:
        if share < 1:
            self._display(f", {share:.0%} of the next one, {self.rate or _format_remaining(passed, share)}")

    def show(self, **_: Any) -> None:
        """Show nothing: training prints lines of its own."""

    def _display(self, more: str = "") -> None:
        now = time.monotonic()
        first = not self._estimated and (self.remaining or 0.0) > LONG
        if (first or now - self._printed >= EVERY) and (self.total is None or self.completed < self.total):
            self._printed, self._estimated = now, self._estimated or first
            rate = self.rate and f", {self.rate}"
            of = "" if self.total is None else f" of {self.total}"
            self._print(f"{self._what}: {self.completed}{of}{more or rate}")


def _format_remaining(passed: float, share: float) -> str:
    return f"{_format_seconds(passed / max(share, 1e-9) * (1 - share))} remaining"


def _format_seconds(count: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=round(count))
