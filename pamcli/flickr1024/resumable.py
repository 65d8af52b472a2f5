"""Resume interrupted work: a folder with the request, the finished items and the growing result.

    OUT/x4.unfinished/job.json          options and images; a run with the same ones resumes here
    OUT/x4.unfinished/done/000012.json  result for the twelfth image, written last
    OUT/x4.unfinished/store/            renamed to the final name when everything is done

A run may thus be interrupted at any moment without losing finished items.
"""

import json
import os
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import pydantic

from pamcli.errors import InputError, OutputError, UsageError
from pamcli.files.atomic import check_writable, report_write_errors, require_folder, write_atomically
from pamcli.files.json_files import Text, load_json
from pamcli.files.paths import quote
from pamcli.workers import run_in_processes


@pydantic.dataclasses.dataclass(frozen=True)
class Request:
    """Options and images in JSON types; equal requests have equal results."""

    options: dict[Text, Any]
    pictures: list[Any]
    """Name of each image, and everything else that determines the result."""


@pydantic.dataclasses.dataclass(frozen=True)
class Record:
    """The part of a result's record that contains its request."""

    job: Request


Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Item:
    """The work on one image or pair, in any process."""

    number: int
    folder: Path
    """The folder of the whole work."""

    @property
    def record(self) -> Path:
        """Path of the result file; it exists if the item is done."""
        return self.folder / "done" / f"{self.number:06d}.json"

    def mark(self, result: Any) -> None:
        """Record the result, once all of it is on disk. Raises OutputError."""
        require_folder(self.folder, "job.json")
        write_json(self.record, result, indent=None)

    @abstractmethod
    def result(self) -> Any:
        """Return the recorded result. Raises InputError if it is damaged or its files are missing."""

    def read_record(self, kind: type[Kind]) -> Kind:
        """Return the recorded result as type `kind`. Raises InputError."""
        return load_json(kind, self.record, "remove this file, and what it is about is done anew")

    def require(self, path: Path, size: int = 0) -> None:
        """Raise InputError if a file of the result is missing or smaller than `size` bytes."""
        if not os.path.exists(path) or path.stat().st_size < size:
            said = f"{quote(self.record)} says that {quote(path)} is there, and it is not, or not whole"
            raise InputError(said, f"remove {quote(self.folder)} and begin anew")


AnItem = TypeVar("AnItem", bound=Item)


@dataclass(frozen=True)
class ResumableWork(Generic[AnItem]):
    """The work for a request, and its folder; nothing is written before `carry_out`."""

    folder: Path
    target: Path
    """Path of the finished result."""
    record: Path
    """File that records the request of the target."""
    request: Request
    items: tuple[AnItem, ...]

    @cached_property
    def done(self) -> frozenset[int]:
        """Numbers of the items that an earlier run finished."""
        return frozenset(self.results())

    @cached_property
    def is_complete(self) -> bool:
        """True if the target already exists.

        Raises:
            UsageError: If the target or the folder belongs to another request.
            InputError: If its record cannot be read.
            OutputError: If the target does not exist and cannot be written.
        """
        begun, target = self.folder / "job.json", quote(self.target)
        if self.target.exists():
            if not self.record.exists():
                said = f"{target} exists already, and no run of this command finished it"
                raise UsageError(said, "name another folder")
            made = load_json(Record, self.record, f"remove {target} and prepare it anew")
            if other := describe_difference(made.job, self.request):
                raise UsageError(f"{target} was made with {other}", "name another folder, or remove this one")
            return True
        anew = f"remove {quote(self.folder)} and begin anew"
        if (self.folder / "done").exists() and not begun.exists():
            raise InputError(f"{quote(begun)} is gone: nobody knows what the work was for", anew)
        if begun.exists():
            before = load_json(Request, begun, anew)
            if other := describe_difference(before, self.request):
                hint = "repeat that command, or remove the folder, or name another one"
                raise UsageError(f"{quote(self.folder)} was begun with {other}", hint)
        check_writable(self.target)
        return False

    def outlook(self) -> Iterator[str]:
        """Yield lines about the work that is already done."""
        if self.is_complete:
            yield f"{quote(self.target)} is finished already"
        elif self.done:
            yield f"{quote(self.target)} goes on: {len(self.done)} of {len(self.items)} pictures are done"

    def begin(self) -> Path:
        """Create the folder and return the path of the growing result. Raises OutputError."""
        store = self.folder / "store"
        with report_write_errors(store):
            store.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "job.json").exists():
            write_json(self.folder / "job.json", asdict(self.request))
        return store

    def carry_out(
        self, do: Callable[[AnItem], None], workers: int, advance: Callable[[], None]
    ) -> dict[int, str]:
        """Process the remaining items, calling `advance` for each, and return the errors by number."""
        done = self.results()
        for _ in done:
            advance()
        failed = {}
        todo = [item for item in self.items if item.number not in done]
        for item, result in run_in_processes(do, todo, workers):
            if isinstance(result, InputError):
                failed[item.number] = result.message
            advance()
        return dict(sorted(failed.items()))

    def results(self) -> dict[int, Any]:
        """Return the results so far by item number. Raises InputError if a record is damaged."""
        done = self.folder / "done"
        there = set(os.listdir(done)) if done.is_dir() else set()
        return {item.number: item.result() for item in self.items if item.record.name in there}

    def complete(self) -> None:
        """Rename the store to its final name and delete the rest. Raises OutputError."""
        store = self.folder / "store"
        with report_write_errors(self.target):
            for left_over in store.glob(".pam-*.tmp"):  # left by a killed run
                left_over.unlink()
            if store.exists():  # missing if the last run was killed after renaming it
                os.rename(store, self.target)
            shutil.rmtree(self.folder)


def describe_difference(old: Request, new: Request) -> str:
    """Return how two requests differ, or "" if they are equal."""
    for name in {**old.options, **new.options}:
        before, now = (request.options.get(name) for request in (old, new))
        if before != now:
            return f"another {quote(name)}: {quote(str(before)[:80])}, now {now}"
    count, there = len(new.pictures), len(old.pictures)
    how = " of other names or sizes" if there == count else ""
    return "" if old.pictures == new.pictures else f"other pictures: {there}, now {count}{how}"


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write a value as JSON with equal bytes for equal values. Raises OutputError."""
    write_atomically(path, (json.dumps(value, indent=indent) + "\n").encode())


def check_space(path: Path, needed: int, files: int) -> None:
    """Raise OutputError if a disk has too few free bytes or files."""
    folder = path.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        said = f"{quote(path)} needs about {format_size(needed)}, and {format_size(free)} are free"
        raise OutputError(said, "free some space or write to another disk")
    if hasattr(os, "statvfs") and os.statvfs(folder).f_files:  # 0: not counted by the file system
        left = os.statvfs(folder).f_favail
        if files > left:
            said = f"{quote(path)} needs {files:,} files, and the disk has room for {left:,}"
            raise OutputError(said, "take `store` packed, or write to another disk")


def format_size(count: int) -> str:
    """Return a number of bytes for people, as "13.5 GB"."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count} bytes"
