"""What a command says of a batch: its results as they come, and how it ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer

from pamcli.cli.console import CLOSED_PIPE, Console, as_options
from pamcli.cli.groups import as_keywords
from pamcli.cli.options import Messages
from pamcli.errors import BATCH_FAILED, UsageError

if TYPE_CHECKING:
    from pamcli.batch.job import Outcome
    from pamcli.batch.run import Batch


def work_off(
    files: Callable[..., Batch],
    inputs: Sequence[str] | None,
    messages: Messages,
    results: Sequence[Any],
    *groups: Any,
    loading: str | None = None,
) -> None:
    """Work a batch off and tell of it; exits with 6 when a pair of several failed.

    files: makes it of the inputs and of the options of all groups; results: the groups of results, the one
    with --jsonl first. loading: the network's name. The error of a pair that was named by itself is raised.
    Paths of videos come last. Raises UsageError: a result that cannot go to stdout.
    """
    console = messages.console(jsonl=results[0].jsonl)
    given = as_keywords(*results)
    for option in (as_options(f"`{name}`") for name, place in given.items() if place == "-"):
        if console.jsonl:
            raise UsageError(f"{option} - and --jsonl would both go to stdout", "drop one of them")
        if sys.stdout.isatty():
            raise UsageError(f"{option} - would write binary data to the terminal", "pipe it, or name a file")
    batch = files(*(inputs or ()), **as_keywords(*groups), **given)
    if loading is not None and not batch.request.remote:
        with console.starting(loading):
            batch.start()
    told = _Reporter(batch.many, console)
    try:
        with console.progress("pairs", batch.total) as bar:
            batch.bar = None if console.quiet else bar
            with closing(iter(batch)) as outcomes:
                for outcome in outcomes:
                    told(outcome)
    except (KeyboardInterrupt, SystemExit) as stop:
        if batch.many and getattr(stop, "code", None) != CLOSED_PIPE:
            console.inform(f"stopped after {told.summary()}; {batch.going_on}")
        raise
    if not console.jsonl:
        for path in batch.made:
            console.path(path)
    shard = batch.request.shard
    if not batch.many and shard is None:
        return
    if shard is not None and not any(told.counts.values()):
        console.inform(f"shard {shard[0]}/{shard[1]} is empty: the batch has fewer pairs")
    else:
        console.inform(told.summary())
    if told.counts["failed"]:
        raise typer.Exit(BATCH_FAILED)


class _Reporter:
    def __init__(self, many: bool, console: Console) -> None:
        self.many, self.console = many, console
        self.counts = {"ok": 0, "skipped": 0, "failed": 0}

    def __call__(self, outcome: Outcome) -> None:
        job, error, status = outcome.job, outcome.error, outcome.status
        self.counts[status] += 1
        for warning in outcome.warnings:
            self.console.warn(f"{job.names[0]}: {warning}")
        files = [*job.names, *map(str, job.places.values())]
        if error is not None and job.names and not any(name in str(error) for name in files):
            error.message = f"{job.names[0]}: {error.message}"
        if self.console.jsonl:
            self.console.record(outcome.record(as_options))
        elif outcome.data is not None:
            self.console.binary(outcome.data)
        elif status == "ok":
            for name, path in outcome.outputs.items():
                if name not in job.videos:  # which are there at the end
                    self.console.path(path)
        if status == "skipped":
            self.console.detail(f"{job.names[0]}: every result exists, skipped")
        if error is not None:
            if not self.many:
                raise error
            self.console.error(str(error), error)

    def summary(self) -> str:
        return ", ".join(f"{count} {status}" for status, count in self.counts.items() if count) or "no pairs"
