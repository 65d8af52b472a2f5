"""Resume interrupted work: a folder with the request, the finished images and the growing result.

    OUT/x4.unfinished/job.json    options and images; a run with the same ones resumes here
    OUT/x4.unfinished/done.jsonl  a line for each finished image: its title and its result
    OUT/x4.unfinished/store/      renamed to the final name when everything is done

A run may thus be interrupted at any moment without losing finished images.
"""

import csv
import io
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pydantic

from pamcli.errors import InputError, OutputError, UsageError
from pamcli.files.atomic import check_writable, report_write_errors, require_folder, write_atomically
from pamcli.files.json_files import Text, check_json, load_json, parse_stored_json
from pamcli.files.paths import escape_csv, quote
from pamcli.files.safe_reading import read_text
from pamcli.reporting import Progress
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
    tasks: Mapping[str, Task]  # work by title of the image or pair
    kind: type[Result]  # result of a task in JSON
    has_files: Callable[[Path, Task, Result], bool]  # whether the store holds the files of a result

    @property
    def folder(self) -> Path:
        return self.target.with_name(f"{self.target.name}.unfinished")

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def read_results(self) -> dict[str, Result] | None:
        """Return the results so far by title, or None if the target is complete.

        Damaged lines are skipped, and results whose files are missing. Raises UsageError if the target or the
        folder belongs to another request.
        """
        started, target, folder = self.folder / "job.json", quote(self.target), quote(self.folder)
        if self.target.exists():
            if not self.record.exists():
                reason = f"{target} already exists and was not made by this command"
                raise UsageError(reason, "choose another folder")
            earlier = load_json(_Record, self.record, f"remove {target} and prepare it again").job
            if change := describe_difference(earlier, self.request):
                hint = "choose another folder, or remove this one"
                raise UsageError(f"{target} was made with {change}", hint)
            LOG.info(f"{target} is already complete")
            return None
        hint = f"remove {folder} and start again"
        if started.exists():
            if change := describe_difference(load_json(Request, started, hint), self.request):
                hint = "repeat that command, remove the folder, or choose another one"
                raise UsageError(f"{folder} was started with {change}", hint)
        elif self.store.exists():
            raise InputError(f"{quote(started)} is missing, so the options of the command are unknown", hint)
        check_writable(self.target)
        done, kind, results = self.folder / "done.jsonl", tuple[Text, self.kind], dict[str, Result]()  # type: ignore[name-defined]
        for line in read_text(done).splitlines() if done.exists() else ():
            with suppress(InputError):  # a killed run may leave half a line
                title, result = check_json(kind, parse_stored_json(line, done, ""), done, "")
                if title in self.tasks and self.has_files(self.store, self.tasks[title], result):
                    results[title] = result
        return results

    def begin(self, done: Mapping[str, Result], needed: int, files: int) -> None:
        """Create the folder and record the request. Raises OutputError, also if bytes or files do not fit."""
        check_space(self.target, needed, files)
        if done:
            LOG.info(f"{quote(self.target)} is resumed: {len(done)} of {len(self.tasks)} images are done")
        with report_write_errors(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "job.json").exists():
            write_json(self.folder / "job.json", asdict(self.request))

    def process(
        self,
        do: Callable[[Path, Task], Result],
        done: dict[str, Result],
        workers: int,
        bar: Progress,
        *,
        skip_damaged: bool,
    ) -> dict[str, str]:
        """Do the remaining tasks, in any process, and add their results to `done`.

        `do` gets the store and a task. Returns and logs the reasons of damaged images by title.
        """
        file, failed = self.folder / "done.jsonl", {}
        remaining = [each for each in self.tasks.items() if each[0] not in done]
        bar.expect(len(self.tasks))
        for _ in done:
            bar.advance()
        for (title, _), result in run_in_processes(partial(_do_task, do, self.store), remaining, workers):
            if isinstance(result, InputError):
                failed[title] = result.message
            else:
                require_folder(self.folder, "job.json")
                # The line break comes first, to end what a killed run left.
                line = "\n" + json.dumps([title, result], default=vars)
                with report_write_errors(file), file.open("a") as stream:
                    stream.write(line)
                done[title] = result
            bar.advance()
        for title, reason in failed.items():
            LOG.log(logging.WARNING if skip_damaged else logging.ERROR, "%s: %s", title, reason)
        if failed and not skip_damaged:
            LOG.info(
                f"{len(self.tasks) - len(failed)} of {len(self.tasks)} images are done: repair the others "
                "and repeat the command, or add `skip_damaged` to finish without them"
            )
            raise DamagedError("some images cannot be read", "skip them with `skip_damaged`")
        return failed

    def publish(self) -> None:
        """Rename the store to its final name and delete the rest. Raises OutputError."""
        with report_write_errors(self.target):
            for leftover in self.store.glob(".pam-*.tmp"):  # of a killed run
                leftover.unlink()
            if self.store.exists():  # missing if the last run was killed after renaming it
                os.rename(self.store, self.target)
            shutil.rmtree(self.folder)


def _do_task(do: Callable[[Path, Task], Result], store: Path, task: tuple[str, Task]) -> Result:
    return do(store, task[1])


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


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON with equal bytes for equal values. Raises OutputError."""
    write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())


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
        sizes = f"about {needed / 1e9:.3g} GB, but only {free / 1e9:.3g} GB are free"
        raise OutputError(f"{quote(path)} needs {sizes}", "free some space or write to another disk")
    if hasattr(os, "statvfs") and os.statvfs(folder).f_files:  # 0: not counted by the file system
        left = os.statvfs(folder).f_favail
        if files > left:
            reason = f"{quote(path)} needs {files:,} files, but the disk can store only {left:,} more"
            raise OutputError(reason, "use `store` packed, or write to another disk")
