"""What does a command say of a batch: its results as they come, and how it ended?"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer

from pamcli.cli.console import CLOSED_PIPE, Console, as_options, listen
from pamcli.errors import BATCH_FAILED, UsageError

if TYPE_CHECKING:
    from pamcli.batch.jobs import Result
    from pamcli.batch.run import Batch


MANY = 10
"""Pairs from which on their number per second says something."""


def run_batch(files: Callable[..., Batch], settings: Any, console: Console, *, loading: Any = None) -> None:
    """Process a batch and tell of it; exits with 6 when a pair of several failed.

    files: makes it of the settings. loading: the network's name. The error of a pair that was named by itself
    is raised. Paths of videos come last. Raises UsageError: a result that cannot go to stdout.
    """
    listen(console)
    check_stdout(settings, console)
    batch = files(settings)
    if loading is not None and settings.engine != "ray":
        with console.starting(str(loading)):
            batch.start()
    counts, began = {"ok": 0, "skipped": 0, "failed": 0}, time.monotonic()
    try:
        with console.progress("pairs", batch.total) as bar:
            batch.bar = None if console.quiet else bar
            with closing(iter(batch)) as results:
                for each in results:
                    counts[each.status] += 1
                    report(each, console, alone=not batch.many)
    except (KeyboardInterrupt, SystemExit) as stop:
        if batch.many and getattr(stop, "code", None) != CLOSED_PIPE:
            console.inform(f"stopped after {summary(counts)}; {batch.going_on}")
        raise
    if not console.jsonl:
        for path in batch.made:
            console.path(path)
    shard = settings.shard
    if shard is not None and not any(counts.values()):
        console.inform(f"shard {shard[0]}/{shard[1]} is empty: the batch has fewer pairs")
    elif batch.many or shard is not None:
        rate = counts["ok"] / (time.monotonic() - began)
        console.inform(summary(counts) + (f", {rate:.2f} pairs/s" if counts["ok"] >= MANY else ""))
    if counts["failed"] and batch.many:
        raise typer.Exit(BATCH_FAILED)


def check_stdout(settings: Any, console: Console) -> None:
    """Raise UsageError for a result that cannot go to stdout."""
    for name, place in vars(settings).items():
        if place == "-" and name not in ("pairs", "inputs"):
            option = as_options(f"`{name}`")
            if console.jsonl:
                raise UsageError(f"{option} - and --jsonl would both go to stdout", "drop one of them")
            if sys.stdout.isatty():
                raise UsageError(
                    f"{option} - would write binary data to the terminal", "pipe it, or name a file"
                )


def report(outcome: Result, console: Console, *, alone: bool) -> None:
    """Print what became of a pair; the error of one that was named by itself is raised."""
    job, error = outcome.job, outcome.error
    for warning in outcome.warnings:
        console.warn(f"{job.names[0]}: {warning}")
    files = [*job.names, *map(str, job.places.values())]
    if error is not None and job.names and not any(name in str(error) for name in files):
        error.message = f"{job.names[0]}: {error.message}"
    if console.jsonl:
        console.record(outcome.record(as_options))
    elif outcome.data is not None:
        console.binary(outcome.data)
    elif outcome.status == "ok":
        for name, path in outcome.outputs.items():
            if name not in job.videos:  # which are there at the end
                console.path(path)
    if outcome.status == "skipped":
        console.detail(f"{job.names[0]}: every result exists, skipped")
    if error is not None:
        if alone:
            raise error
        console.error(str(error), error)


def summary(counts: dict[str, int]) -> str:
    """Say how many pairs went how."""
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no pairs"
