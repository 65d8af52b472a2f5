"""Define how library functions report progress: to a `Reporter`, such as the console of the command line."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class Progress(Protocol):
    """A counter of completed items."""

    watch: Callable[[int], Callable[[float], None]] | None  # from rows of a pair to its progress

    def advance(self) -> None:
        """Count one more item."""

    def expect(self, count: int) -> None:
        """Raise the expected number of items."""


class Reporter(Protocol):
    """A receiver of progress reports."""

    def starting(self, what: str) -> AbstractContextManager[None]:
        """Report while a network is loaded."""

    def progress(self, what: str, total: int | None) -> AbstractContextManager[Any]:
        """Report a number of items; enters a `Progress`."""


class SilentReporter:
    """A `Reporter`, `Progress` and `training.journal.Observer` that ignores all reports."""

    watch: Callable[[int], Callable[[float], None]] | None = None

    def _ignore(self, *values: Any, **named: Any) -> None:
        pass

    advance = expect = show = _ignore
    on_start = on_step = on_log = on_validation = inform = _ignore

    def starting(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()

    def progress(self, what: str, total: int | None) -> AbstractContextManager[Any]:
        return nullcontext(self)


SILENT = SilentReporter()
