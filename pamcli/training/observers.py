"""Who watches a training run."""

from __future__ import annotations

from typing import Protocol

from pamcli.training.journal import Entry
from pamcli.training.validation import Validated


class Observer(Protocol):
    """Who watches a run, as the command line does."""

    def started(self, step: int, steps: int) -> None:
        """The run begins, or goes on after `step` steps."""
        return

    def stepped(self, step: int) -> None:
        """A step is done; nothing is known of it."""
        return

    def logged(self, entry: Entry) -> None:
        """A line of the log was written."""
        return

    def validated(self, step: int, validated: Validated, best: bool) -> None:
        """The network was measured; best: as never before."""
        return

    def informed(self, message: str) -> None:
        """Something that a person should know."""
        return


class NoObserver(Observer):
    """Does nothing, for other processes than the main one."""
