"""Resume interrupted work: a folder with the request, the finished images and the growing result.

    OUT/x4.unfinished/job.json          options and images; a run with the same ones resumes here
    OUT/x4.unfinished/done/000012.json  result for the twelfth image, written last
    OUT/x4.unfinished/store/            renamed to the final name when everything is done

A run may thus be interrupted at any moment without losing finished images.
"""

import csv
import io
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pydantic

from pamcli.errors import InputError, OutputError, UsageError
from pamcli.files.atomic import check_writable, report_write_errors, require_folder, write_atomically
from pamcli.files.json_files import Text, load_json
from pamcli.files.paths import escape_csv, quote
from pamcli.reporting import SILENT, Progress
from pamcli.workers import run_in_processes

LOG = logging.getLogger("pamcli")

Task = TypeVar("Task")
Result = TypeVar("Result")


class DamagedError(InputError):
    """Some images cannot be read, and `skip_damaged` is not set; each was logged."""

    exit_code = 6


@pydantic.dataclasses.dataclass(frozen=True)
class Request:
    """Options and images in JSON types; equal requests have equal results."""

    options: dict[Text, Any]
    pictures: list[Any]  # name of each image, and everything else that determines the result


@pydantic.dataclasses.dataclass(frozen=True)
class _Record:
    """The part of a result's record that contains its request."""

    job: Request


@dataclass(frozen=True)
class Work(Generic[Task, Result]):
    """Work on images that can be resumed; nothing is written before `begin`."""

    target: Path  # path of the finished result
    record: Path  # file that records the request of the target
    request: Request
    tasks: Mapping[str, Task]  # work by title of the image or pair; numbered in this order
    kind: type[Result]  # result of a task in JSON
    list_files: Callable[[Path, Task, Result], Iterable[tuple[Path, int]]]
    """Return the files of a result in the store, with their least sizes (bytes). Raises ValueError if the
    result does not fit the task."""

    @property
    def folder(self) -> Path:
        return self.target.with_name(f"{self.target.name}.unfinished")

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @cached_property
    def is_complete(self) -> bool:
        """True if the target already exists. Raises UsageError if it belongs to another request."""
        started, target = self.folder / "job.json", quote(self.target)
        if self.target.exists():
            if not self.record.exists():
                reason = f"{target} already exists and was not made by this command"
                raise UsageError(reason, "choose another folder")
            earlier = load_json(_Record, self.record, f"remove {target} and prepare it again").job
            if change := describe_difference(earlier, self.request):
                hint = "choose another folder, or remove this one"
                raise UsageError(f"{target} was made with {change}", hint)
            LOG.info(f"{target} is already complete")
            return True
        hint = f"remove {quote(self.folder)} and start again"
        if (self.folder / "done").exists() and not started.exists():
            raise InputError(f"{quote(started)} is missing, so the options of the command are unknown", hint)
        if started.exists():
            earlier = load_json(Request, started, hint)
            if change := describe_difference(earlier, self.request):
                hint = "repeat that command, remove the folder, or choose another one"
                raise UsageError(f"{quote(self.folder)} was started with {change}", hint)
        check_writable(self.target)
        return False

    def begin(self) -> None:
        """Create the folder and record the request. Raises OutputError."""
        if done := len(self.read_results()):
            LOG.info(f"{quote(self.target)} is resumed: {done} of {len(self.tasks)} images are done")
        with report_write_errors(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "job.json").exists():
            write_json(self.folder / "job.json", asdict(self.request))

    def process(
        self, do: Callable[[Path, Task], Any], workers: int, bar: Progress = SILENT, *, skip_damaged: bool
    ) -> dict[str, str]:
        """Do the remaining tasks, in any process; return and log the reasons of damaged images by title.

        `do` gets the store and a task and returns the result.
        """
        done, failed = self.read_results(), {}
        for _ in done:
            bar.advance()
        numbered = enumerate(self.tasks.items(), start=1)
        remaining = [(number, title, task) for number, (title, task) in numbered if title not in done]
        for (_, title, _), error in run_in_processes(partial(_process, do, self.folder), remaining, workers):
            if isinstance(error, InputError):
                failed[title] = error.message
            bar.advance()
        for title, reason in failed.items():
            LOG.log(logging.WARNING if skip_damaged else logging.ERROR, "%s: %s", title, reason)
        if failed and not skip_damaged:
            LOG.info(
                f"{len(self.tasks) - len(failed)} of {len(self.tasks)} images are done: repair the others "
                "and repeat the command, or add `skip_damaged` to finish without them"
            )
        return failed

    def read_results(self) -> dict[str, Result]:
        """Return the results so far by title. Raises InputError if a record is damaged."""
        done = self.folder / "done"
        names = set(os.listdir(done)) if done.is_dir() else set()
        records = {title: _get_record(self.folder, i) for i, title in enumerate(self.tasks, start=1)}
        return {
            title: self._read_result(record, self.tasks[title])
            for title, record in records.items()
            if record.name in names
        }

    def _read_result(self, record: Path, task: Task) -> Result:
        hint = "remove this file to process the image again"
        result = load_json(self.kind, record, hint)
        try:
            files = [*self.list_files(self.store, task, result)]
        except ValueError as error:
            raise InputError(f"{quote(record)} is damaged: {error}", hint) from None
        for path, size in files:
            if not os.path.exists(path) or path.stat().st_size < size:
                reason = f"{quote(path)}, which {quote(record)} lists as done, is missing or incomplete"
                raise InputError(reason, f"remove {quote(self.folder)} and start again")
        return result

    def publish(self) -> None:
        """Rename the store to its final name and delete the rest. Raises OutputError."""
        with report_write_errors(self.target):
            for leftover in self.store.glob(".pam-*.tmp"):  # of a killed run
                leftover.unlink()
            if self.store.exists():  # missing if the last run was killed after renaming it
                os.rename(self.store, self.target)
            shutil.rmtree(self.folder)


def _get_record(folder: Path, number: int) -> Path:
    return folder / "done" / f"{number:06d}.json"


def _process(do: Callable[[Path, Task], Any], folder: Path, numbered: tuple[int, str, Task]) -> None:
    number, _, task = numbered
    result = do(folder / "store", task)
    require_folder(folder, "job.json")
    write_json(_get_record(folder, number), result, indent=None)


def describe_difference(old: Request, new: Request) -> str:
    """Return how two requests differ, or "" if they are equal."""
    for name in {**old.options, **new.options}:
        before, now = (request.options.get(name) for request in (old, new))
        if before != now:
            return f"another {quote(name)}: {quote(str(before)[:80])}, now {now}"
    if old.pictures == new.pictures:
        return ""
    change = " of other names or sizes" if len(old.pictures) == len(new.pictures) else ""
    return f"other images: {len(old.pictures)}, now {len(new.pictures)}{change}"


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write a value as JSON with equal bytes for equal values. Raises OutputError."""
    write_atomically(path, (json.dumps(value, indent=indent) + "\n").encode())


def encode_csv(rows: Iterable[Iterable[Any]]) -> bytes:
    """Return rows as CSV, with names as they are on disk, which need not be UTF-8."""
    out = io.StringIO(newline="")
    safe = ([escape_csv(each) if isinstance(each, str) else each for each in row] for row in rows)
    csv.writer(out, lineterminator="\n").writerows(safe)
    return out.getvalue().encode("utf-8", "surrogateescape")


def check_space(path: Path, needed: int, files: int) -> None:
    """Raise OutputError if a disk has too few free bytes or files."""
    folder = next(each for each in path.absolute().parents if each.exists())
    free = shutil.disk_usage(folder).free
    if needed > free:
        reason = f"{quote(path)} needs about {format_size(needed)}, but only {format_size(free)} are free"
        raise OutputError(reason, "free some space or write to another disk")
    if hasattr(os, "statvfs") and os.statvfs(folder).f_files:  # 0: not counted by the file system
        left = os.statvfs(folder).f_favail
        if files > left:
            reason = f"{quote(path)} needs {files:,} files, but the disk can store only {left:,} more"
            raise OutputError(reason, "use `store` packed, or write to another disk")


def format_size(count: int) -> str:
    """Return a number of bytes for people, as "13.5 GB"."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count} bytes"
