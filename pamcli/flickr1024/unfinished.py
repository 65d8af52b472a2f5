"""A folder in which work goes on: what it is for, what of it is done, and how it becomes the result.

    OUT/x4.unfinished/job.json          options and pictures: another run with the same ones goes on here
    OUT/x4.unfinished/done/000012.json  what came of the twelfth picture; it is written last
    OUT/x4.unfinished/store/            what is renamed to the result when all is done

So a run may end at any moment, and whatever it had done stays done.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pamcli.errors import InputError, OutputError, UsageError
from pamcli.files.atomic import check_writable, explained, require_folder, write_atomically
from pamcli.files.finding import read_text, shown
from pamcli.workers import done_in_processes

Request = Mapping[str, Any]  # what is asked for, as JSON: "options" (name -> value) and "pictures" (a list)


@dataclass(frozen=True)
class Item:
    """The work on one picture or pair, whatever process does it."""

    number: int
    folder: Path
    """Of all the work."""

    def mark(self, result: Any) -> None:
        """Say what came of it, after all of it is on the disk. Raises OutputError."""
        require_folder(self.folder, "job.json")
        write_json(self.folder / "done" / f"{self.number:06d}.json", result, indent=None)


AnItem = TypeVar("AnItem", bound=Item)


@dataclass(frozen=True)
class Unfinished(Generic[AnItem]):
    """The work for a request, and its folder; nothing is made before `carry_out`."""

    folder: Path
    target: Path
    """What it becomes."""
    record: Path
    """A file that says with what the target was made."""
    request: Request
    items: tuple[AnItem, ...]

    @cached_property
    def done(self) -> frozenset[int]:
        """Numbers of the items that an earlier run did."""
        return frozenset(self.results())

    @cached_property
    def finished(self) -> bool:
        """Whether the target is there already.

        Raises UsageError: it is another request's, or the folder is; InputError: that cannot be read;
        OutputError: it is not there, and cannot be written.
        """
        begun, target = self.folder / "job.json", shown(self.target)
        if self.target.exists():
            if not self.record.exists():
                said = f"{target} exists already, and no run of this command finished it"
                raise UsageError(said, "name another folder")
            if other := difference(read_json(self.record).get("job", {}), self.request):
                raise UsageError(f"{target} was made with {other}", "name another folder, or remove this one")
            return True
        if begun.exists() and (other := difference(read_json(begun), self.request)):
            hint = "repeat that command, or remove the folder, or name another one"
            raise UsageError(f"{shown(self.folder)} was begun with {other}", hint)
        check_writable(self.target)
        return False

    def begin(self) -> Path:
        """Make the folder; where the result grows. Raises OutputError."""
        store = self.folder / "store"
        with writing(store):
            store.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "job.json").exists():
            write_json(self.folder / "job.json", self.request)
        return store

    def carry_out(
        self, do: Callable[[AnItem], None], workers: int, advance: Callable[[], None]
    ) -> dict[int, str]:
        """Do what is not done yet; why some could not be read, by their numbers. advance: called for each."""
        done = self.results()
        for _ in done:
            advance()
        failed = {}
        todo = [item for item in self.items if item.number not in done]
        for item, result in done_in_processes(do, todo, workers):
            if isinstance(result, InputError):
                failed[item.number] = result.message
            advance()
        return dict(sorted(failed.items()))

    def results(self) -> dict[int, Any]:
        """What came of each item so far, by its number."""
        paths = sorted((self.folder / "done").glob("*.json"))
        return {int(path.stem): read_json(path, None) for path in paths if path.stem.isdigit()}

    def complete(self) -> None:
        """Rename the store to its final name and drop the rest. Raises OutputError."""
        store = self.folder / "store"
        with writing(self.target):
            for left_over in store.glob(".pam-*.tmp"):  # of a run that was killed
                left_over.unlink()
            if store.exists():  # else the last run was stopped right behind the next line
                os.rename(store, self.target)
            shutil.rmtree(self.folder)


def difference(old: Request, new: Request) -> str:
    """In which way two requests differ, in words; "" where they do not."""
    new, options = json.loads(json.dumps(new)), old.get("options")
    for name, value in new["options"].items():
        before = options.get(name) if isinstance(options, dict) else None
        if before != value:
            return f"another {name}: {before}, now {value}"
    there, here = old.get("pictures"), new["pictures"]
    if not isinstance(there, list):
        return "no list of pictures: it is damaged"
    how = " of other names or sizes" if len(there) == len(here) else ""
    return "" if there == here else f"other pictures: {len(there)}, now {len(here)}{how}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError into an OutputError that names the path."""
    try:
        yield
    except OSError as error:
        raise explained(path, error) from error


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """The same bytes for the same value. Raises OutputError."""
    write_atomically(path, (json.dumps(value, indent=indent) + "\n").encode())


def read_json(path: Path, kind: type | None = dict) -> Any:
    """Raises InputError: missing, damaged, or no value of a kind."""
    try:
        value = json.loads(read_text(path))
        if kind is not None and not isinstance(value, kind):
            raise ValueError
        return value
    except (ValueError, RecursionError):
        raise InputError(f"{shown(path)} is damaged", "remove its folder and prepare it anew") from None


def check_space(path: Path, needed: int, files: int) -> None:
    """Raise OutputError where a disk has not so many bytes, or not so many files, left."""
    folder = path.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        said = f"{shown(path)} needs about {size_text(needed)}, and {size_text(free)} are free"
        raise OutputError(said, "free some space or write to another disk")
    if hasattr(os, "statvfs") and os.statvfs(folder).f_files:  # 0: the file system does not count them
        left = os.statvfs(folder).f_favail
        if files > left:
            said = f"{shown(path)} needs {files:,} files, and the disk has room for {left:,}"
            raise OutputError(said, "take `store` packed, or write to another disk")


def size_text(count: int) -> str:
    """Bytes for a person: "13.5 GB"."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count} bytes"
