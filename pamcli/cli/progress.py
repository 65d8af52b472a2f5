"""The progress of a command: a bar on a terminal; elsewhere an estimate, then a line a minute."""

import datetime
import time
from collections.abc import Callable
from typing import Any

SLOW = 2.0
"""Seconds that a pair takes before its rows are counted on a bar."""

EVERY = 60.0
"""Seconds from one line to the next."""

WORTH_SAYING = 10.0
"""Seconds that remain from which on the estimate is printed as soon as it is known."""


class Progress:
    """Counts what is done, and tells nobody."""

    def __init__(self, total: int | None = None) -> None:
        self.total, self.completed, self.rate = total, 0, ""
        self._timed, self._began = 0, time.monotonic()
        self.remaining: float | None = None
        """Estimated seconds until the end; None: not known."""

    def advance(self, *, skipped: bool = False) -> None:
        """One more. skipped: it took no time, and says nothing about speed."""
        self.completed += 1
        now = time.monotonic()
        if skipped:
            self._began = self._began if self._timed else now
        else:
            self._timed += 1
            each = max(now - self._began, 1e-9) / self._timed
            self.rate = f"{1 / each:.2f} pairs/s" if each <= 1 else f"{each:.1f} s/pair"
            self._expect(each, 0.0)
        self._tell()

    def _expect(self, each: float, passed: float) -> None:
        """Estimate the time that remains. each: seconds of a pair; passed: those of the current one."""
        if self.total is not None and (left := self.total - self.completed) > 0:
            self.remaining = max(left * each - passed, 0.0)
            speed = self.rate.partition(", ")[0] if self._timed else ""
            self.rate = f"{speed}, {_seconds(self.remaining)} left".removeprefix(", ")

    def expect(self, count: int) -> None:
        """Raise the number of pairs that are to come by `count`."""
        self.total = (self.total or 0) + count
        self._tell()

    def show(
        self, *, completed: int | None = None, total: int | None = None, rate: str | None = None
    ) -> None:
        """Change what is counted, or what is said of it."""
        self.completed = self.completed if completed is None else completed
        self.total = self.total if total is None else total
        self.rate = self.rate if rate is None else rate
        self._tell()

    @property
    def watch(self) -> Callable[[int], Callable[[float], None]] | None:
        """What `within` does, where somebody is told."""
        return None if type(self) is Progress else self.within

    def within(self, rows: int) -> Callable[[float], None]:
        """What is told the share that is done of a pair of so many rows, while it is worked on."""
        self.end()
        began = time.monotonic()

        def told(share: float) -> None:
            passed = time.monotonic() - began
            if 0 < share < 1 and passed > SLOW and not self._timed:
                self._expect(passed / share, passed)
            self._within(rows, share, passed)

        return told

    def _within(self, rows: int, share: float, passed: float) -> None:
        """Show the share that is done of the current pair, after so many seconds."""

    def end(self) -> None:
        """Nothing comes any more."""

    def _tell(self) -> None:
        pass


class Bar(Progress):
    """Counts on a bar of Rich, and the rows of a slow pair on another one."""

    def __init__(self, bar: Any, what: str, total: int | None) -> None:
        super().__init__(total)
        self._bar, self._task = bar, bar.add_task(what, total=total, rate="")
        self._rows: Any = None

    def _within(self, rows: int, share: float, passed: float) -> None:
        if share >= 1:
            self.end()
        elif self._rows is not None or passed > SLOW:
            if self._rows is None:
                self._rows = self._bar.add_task("rows", total=rows, rate="")
            self._bar.update(self._rows, completed=int(share * rows), rate=_left(passed, share))
            self._tell()

    def end(self) -> None:
        if self._rows is not None:
            self._bar.remove_task(self._rows)
            self._rows = None

    def _tell(self) -> None:
        rate = self.rate and f"{self.rate}, "
        self._bar.update(self._task, completed=self.completed, total=self.total, rate=rate)


class Lines(Progress):
    """Prints an estimate as soon as it is known, and every `EVERY` seconds the progress."""

    def __init__(self, say: Callable[[str], None], what: str, total: int | None) -> None:
        super().__init__(total)
        self._say, self._what, self._said = say, what, time.monotonic()
        self._estimated = False

    def _within(self, rows: int, share: float, passed: float) -> None:
        if share < 1:
            self._tell(f", {share:.0%} of the next one, {self.rate or _left(passed, share)}")

    def show(self, **_: Any) -> None:
        """Nothing: what changes so, a training, says lines of its own."""

    def _tell(self, more: str = "") -> None:
        now = time.monotonic()
        first = not self._estimated and (self.remaining or 0.0) > WORTH_SAYING
        if (first or now - self._said >= EVERY) and (self.total is None or self.completed < self.total):
            self._said, self._estimated = now, self._estimated or first
            rate = self.rate and f", {self.rate}"
            of = "" if self.total is None else f" of {self.total}"
            self._say(f"{self._what}: {self.completed}{of}{more or rate}")


def _left(passed: float, share: float) -> str:
    return f"{_seconds(passed / max(share, 1e-9) * (1 - share))} left"


def _seconds(count: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=round(count))
