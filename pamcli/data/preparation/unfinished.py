"""A folder in which work goes on: what it is for, what of it is done, and how it becomes the result.

    OUT/x4.unfinished/job.json          options and pictures: another run with the same ones goes on here
    OUT/x4.unfinished/done/000012.json  what came of the twelfth picture; it is written last
    OUT/x4.unfinished/store/            what is renamed to the result when all is done

So a run may end at any moment, and whatever it had done stays done.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pamcli.data.preparation.workers import done_in_processes
from pamcli.errors import InputError, OutputError, UsageError
from pamcli.files.atomic import check_writable, explained, require_folder, write_atomically
from pamcli.files.finding import read_text, shown

Request = Mapping[str, Any]
"""What is asked for, as JSON: "options" (name -> value) and "pictures" (a list)."""


@dataclass(frozen=True)
class Unfinished:
    """The folder of a request; nothing is made before `begin`."""

    folder: Path

    @property
    def store(self) -> Path:
        """Where the result grows."""
        return self.folder / "store"

    def exists(self) -> bool:
        return (self.folder / "job.json").exists()

    def is_finished(self, request: Request, target: Path, record: Path) -> bool:
        """Whether the result is at `target` already, by what is recorded of it in `record`.

        Raises UsageError: it is another request's, or this folder is; InputError: that cannot be read;
        OutputError: it is not there, and cannot be written.
        """
        if target.exists():
            if not record.exists():
                raise UsageError(
                    f"{shown(target)} exists already, and no run of this command finished it",
                    "name another folder",
                )
            if other := difference(read_json(record).get("job", {}), request):
                raise UsageError(
                    f"{shown(target)} was made with {other}", "name another folder, or remove this one"
                )
            return True
        if self.exists() and (other := difference(read_json(self.folder / "job.json"), request)):
            raise UsageError(
                f"{shown(self.folder)} was begun with {other}",
                "repeat that command, or remove the folder, or name another one",
            )
        check_writable(target)
        return False

    def begin(self, request: Request) -> None:
        """Make the folder. Raises OutputError."""
        with writing(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        if not self.exists():
            write_json(self.folder / "job.json", request)

    def carry_out(
        self, do: Callable[[AnItem], None], items: Sequence[AnItem], workers: int, advance: Callable[[], None]
    ) -> dict[int, str]:
        """Do what is not done yet; why some could not be read, by their numbers. advance: called for each."""
        done = self.done()
        for _ in done:
            advance()
        failed = {}
        todo = [item for item in items if item.number not in done]
        for item, result in done_in_processes(do, todo, workers):
            if isinstance(result, InputError):
                failed[item.number] = result.message
            advance()
        return dict(sorted(failed.items()))

    def done(self) -> dict[int, Any]:
        """What came of each picture so far, by its number."""
        with suppress(FileNotFoundError):
            names = sorted(os.listdir(self.folder / "done"))
            paths = [self.folder / "done" / name for name in names if name.endswith(".json")]
            return {int(path.stem): read_json(path, None) for path in paths if path.stem.isdigit()}
        return {}

    def mark(self, number: int, result: Any) -> None:
        """Say what came of a picture, after all of it is on the disk. Raises OutputError."""
        require_folder(self.folder, "job.json")
        write_json(self.folder / "done" / f"{number:06d}.json", result, indent=None)

    def finish(self, target: Path) -> None:
        """Rename the store to its final name and drop the rest. Raises OutputError."""
        with writing(target):
            for left_over in self.store.glob(".pam-*.tmp"):  # of a run that was killed
                left_over.unlink()
            if self.store.exists():  # else the last run was stopped right behind the next line
                os.rename(self.store, target)
            shutil.rmtree(self.folder)


@dataclass(frozen=True)
class Item:
    """The work on one picture or pair, whatever process does it."""

    number: int
    work: Unfinished


AnItem = TypeVar("AnItem", bound=Item)


def difference(old: Request, new: Request) -> str:
    """In which way two requests differ, in words; "" where they do not."""
    new = json.loads(json.dumps(new))
    for name, value in new["options"].items():
        options = old.get("options")
        before = options.get(name) if isinstance(options, dict) else None
        if before != value:
            return f"another {name}: {before}, now {value}"
    there, here = old.get("pictures"), new["pictures"]
    if not isinstance(there, list):
        return "no list of pictures: it is damaged"
    if there == here:
        return ""
    return f"other pictures: {len(there)}, now {len(here)}" + (
        " of other names or sizes" if len(there) == len(here) else ""
    )


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
        raise OutputError(
            f"{shown(path)} needs about {size_text(needed)}, and {size_text(free)} are free",
            "free some space or write to another disk",
        )
    if hasattr(os, "statvfs") and os.statvfs(folder).f_files:  # 0: the file system does not count them
        left = os.statvfs(folder).f_favail
        if files > left:
            raise OutputError(
                f"{shown(path)} needs {files:,} files, and the disk has room for {left:,}",
                "take `store` packed, or write to another disk",
            )


def size_text(count: int) -> str:
    """Bytes for a person: "13.5 GB"."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count} bytes"
