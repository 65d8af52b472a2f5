"""Resume interrupted work: a folder with the request, the finished items and the growing result.

    OUT/x4.unfinished/job.json          options and images; a run with the same ones resumes here
    OUT/x4.unfinished/done/000012.json  result for the twelfth image, written last
    OUT/x4.unfinished/store/            renamed to the final name when everything is done

A run may thus be interrupted at any moment without losing finished items.
"""

import csv
import io
import json
import logging
import os
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import pydantic

from pamcli.errors import InputError, OutputError, UsageError
from pamcli.files.atomic import check_writable, report_write_errors, require_folder, write_atomically
from pamcli.files.json_files import Text, load_json
from pamcli.files.paths import escape_csv, quote
from pamcli.workers import run_in_processes

LOG = logging.getLogger("pamcli")


@pydantic.dataclasses.dataclass(frozen=True)
class Request:
    """Options and images in JSON types; equal requests have equal results."""

    options: dict[Text, Any]
    pictures: list[Any]  # name of each image, and everything else that determines the result


@pydantic.dataclasses.dataclass(frozen=True)
class Record:
    """The part of a result's record that contains its request."""

    job: Request


Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Item:
    """The work on one image or pair, in any process."""

    number: int
    title: str
    folder: Path  # the folder of the whole work

    @property
    def record(self) -> Path:
        """Path of the result file; it exists if the item is done."""
        return self.folder / "done" / f"{self.number:06d}.json"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def mark_done(self, result: Any) -> None:
        """Record the result, once all of it is on disk. Raises OutputError."""
        require_folder(self.folder, "job.json")
        write_json(self.record, result, indent=None)

    @abstractmethod
    def result(self) -> Any:
        """Return the recorded result. Raises InputError if it is damaged or its files are missing."""

    def read_record(self, kind: type[Kind]) -> Kind:
        """Return the recorded result as type `kind`. Raises InputError."""
        return load_json(kind, self.record, "remove this file to process the image again")

    def require(self, path: Path, size: int = 0) -> None:
        """Raise InputError if a file of the result is missing or smaller than `size` bytes."""
        if not os.path.exists(path) or path.stat().st_size < size:
            reason = f"{quote(path)}, which {quote(self.record)} lists as done, is missing or incomplete"
            raise InputError(reason, f"remove {quote(self.folder)} and start again")


AnItem = TypeVar("AnItem", bound=Item)


@dataclass(frozen=True)
class ResumableWork(Generic[AnItem]):
    """The work for a request, and its folder; nothing is written before `process`."""

    folder: Path
    target: Path  # path of the finished result
    record: Path  # file that records the request of the target
    request: Request
    items: tuple[AnItem, ...]

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @cached_property
    def done(self) -> frozenset[int]:
        """Numbers of the items that an earlier run finished."""
        return frozenset(self.results())

    @cached_property
    def is_complete(self) -> bool:
        """True if the target already exists. Raises UsageError if it belongs to another request."""
        started, target = self.folder / "job.json", quote(self.target)
        if self.target.exists():
            if not self.record.exists():
                reason = f"{target} already exists and was not made by this command"
                raise UsageError(reason, "choose another folder")
            earlier = load_json(Record, self.record, f"remove {target} and prepare it again").job
            if change := describe_difference(earlier, self.request):
                hint = "choose another folder, or remove this one"
                raise UsageError(f"{target} was made with {change}", hint)
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

    def log_progress(self) -> None:
        """Log the work that is already done."""
        if self.is_complete:
            LOG.info(f"{quote(self.target)} is already complete")
        elif self.done:
            LOG.info(
                f"{quote(self.target)} is resumed: {len(self.done)} of {len(self.items)} images are done"
            )

    def begin(self) -> None:
        """Create the folder and record the request. Raises OutputError."""
        with report_write_errors(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "job.json").exists():
            write_json(self.folder / "job.json", asdict(self.request))

    def process(
        self, do: Callable[[AnItem], None], workers: int, advance: Callable[[], None], *, skip_damaged: bool
    ) -> dict[int, str] | None:
        """Call `do` for each remaining item; return the errors by number, or None if they end the work."""
        self.begin()
        done = self.results()
        for _ in done:
            advance()
        failed = {}
        remaining = [item for item in self.items if item.number not in done]
        for item, result in run_in_processes(do, remaining, workers):
            if isinstance(result, InputError):
                failed[item.number] = result.message
            advance()
        for number, reason in sorted(failed.items()):
            level = logging.WARNING if skip_damaged else logging.ERROR
            LOG.log(level, "%s: %s", self.items[number - 1].title, reason)
        if failed and not skip_damaged:
            LOG.info(
                f"{len(self.items) - len(failed)} of {len(self.items)} images are done: repair the others "
                "and repeat the command, or add `skip_damaged` to finish without them"
            )
            return None
        return failed

    def results(self) -> dict[int, Any]:
        """Return the results so far by item number. Raises InputError if a record is damaged."""
        done = self.folder / "done"
        names = set(os.listdir(done)) if done.is_dir() else set()
        return {item.number: item.result() for item in self.items if item.record.name in names}

    def publish(self) -> None:
        """Rename the store to its final name and delete the rest. Raises OutputError."""
        with report_write_errors(self.target):
            for leftover in self.store.glob(".pam-*.tmp"):  # of a killed run
                leftover.unlink()
            if self.store.exists():  # missing if the last run was killed after renaming it
                os.rename(self.store, self.target)
            shutil.rmtree(self.folder)


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
    folder = path.absolute()
    while not folder.exists():
        folder = folder.parent
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
