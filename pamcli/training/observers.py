"""Who watches a training run."""

from __future__ import annotations

from typing import Protocol

from pamcli.training.journal import Entry
from pamcli.training.validation import Validated


class Observer(Protocol):
    """Who watches a run, as the command line does."""

    def started(self, step: int, steps: int) -> None:
        """The run begins, or goes on after `step` steps."""

    def stepped(self, step: int) -> None:
        """A step is done; nothing is known of it."""

    def logged(self, entry: Entry) -> None:
        """A line of the log was written."""

    def validated(self, step: int, validated: Validated, best: bool) -> None:
        """The network was measured; best: as never before."""

    def told(self, message: str) -> None:
        """Something that a person should know."""


class Nobody:
    """Watches what other processes than the main one do."""

    def started(self, step: int, steps: int) -> None:
        pass

    def stepped(self, step: int) -> None:
        pass

    def logged(self, entry: Entry) -> None:
        pass

    def validated(self, step: int, validated: Validated, best: bool) -> None:
        pass

    def told(self, message: str) -> None:
        pass
