"""Whom does the library tell how far it is? A `Reporter`: the command line's console, or nobody."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class Progress(Protocol):
    """What counts how far something is."""

    def advance(self) -> None:
        """Count one more."""

    def expect(self, count: int) -> None:
        """Raise the number of those that are to come."""

    @property
    def watch(self) -> Callable[[int], Callable[[float], None]] | None:
        """What is told the rows of a pair, and returns what is told the share of them that is done."""


class Reporter(Protocol):
    """What is told how far a function is."""

    def starting(self, what: str) -> AbstractContextManager[None]:
        """While a network is loaded."""

    def progress(self, what: str, total: int | None) -> AbstractContextManager[Any]:
        """While so many things are done: a `Progress`."""


class SilentReporter:
    """Is told, and does nothing."""

    watch = None

    def advance(self, *, skipped: bool = False) -> None:
        """Do nothing."""

    def expect(self, count: int) -> None:
        """Do nothing."""

    def show(self, **changes: Any) -> None:
        """Do nothing."""

    def starting(self, what: str) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def progress(self, what: str, total: int | None) -> AbstractContextManager[Any]:
        """Do nothing."""
        return nullcontext(self)


SILENT = SilentReporter()
