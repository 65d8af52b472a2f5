"""What a run leaves by name, its log (JSON lines and events for TensorBoard), and who else watches it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pydantic
from numpy.typing import NDArray

from pamcli.errors import InputError, OutputError, UsageError
from pamcli.files.atomic import check_writable, write_atomically
from pamcli.files.finding import shown
from pamcli.files.guarded import read_text
from pamcli.files.stored import Number, Whole, parsed, understood

if TYPE_CHECKING:
    from pamcli.training.validation import Validated

Entry = Mapping[str, Any]
"""A line of the log: `step`, and figures. Those of training have `loss`, those of validation `figure`."""


class RunFolder:
    """The folder of a run. Only the main process writes into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.json"
        """The whole recipe, and what it was made with."""
        self.log = path / "log.jsonl"
        """A JSON object a line: figures of training and of validation."""
        self.checkpoints = path / "checkpoints"
        self.scenes = path / "scenes"
        """Drawn scenes, while crops are taken of them; gone when the run is finished."""
        self.last = path / "last.safetensors"
        """The weights of the newest checkpoint."""
        self.best = path / "best.safetensors"
        """The weights of the best validation."""
        self.labels = path / "labels"
        """Disparities of a person's own pairs, where a recipe finds them first."""

    @property
    def weights(self) -> Path:
        """The best weights, where they were measured, else those of the newest checkpoint."""
        return self.best if self.best.is_file() else self.last

    def samples(self, step: int) -> Path:
        """Folder of a validation's pictures."""
        return self.path / "validation" / f"step-{step:08d}"

    def require_new(self) -> None:
        """Raise UsageError where something is there already, OutputError where nothing can be written."""
        there = os.listdir(self.path) if os.path.isdir(self.path) else [""] * os.path.exists(self.path)
        # A run that is killed as it begins leaves .pam-...
        if not all(name.startswith(".pam-") for name in there):
            hint = f"`resume` {shown(self.path)} goes on with it" if self.recipe.exists() else "name another"
            raise UsageError(f"{shown(self.path)} holds something already", hint)
        check_writable(self.recipe)

    def require_run(self) -> None:
        """Raise InputError where no run has begun."""
        if not self.recipe.is_file():
            raise InputError(
                f"{shown(self.path)} is no training run: it has no recipe.json", "give a run's folder"
            )


@pydantic.dataclasses.dataclass(frozen=True)
class Line:
    """What must be right in a line of a log, for a run to go on from it."""

    step: Whole
    figure: Number | None = None
    """Figure of a validation; None: no finite number, too."""


def read_entries(log: Path) -> list[Entry]:
    """Every whole line of a log, oldest first; none where there is no log.

    The line at which a run was killed has no end, and is left out. Raises InputError naming a damaged line.
    """
    if not log.is_file():
        return []
    entries: list[Entry] = []
    for number, line in enumerate(read_text(log).split("\n")[:-1], start=1):
        name, hint = f"line {number} of {shown(log)}", "remove the line"
        entry = parsed(line, name, hint)
        understood(Line, entry, name, hint)
        entries.append(entry)
    return entries


class Journal:
    """Writes the log of a run, line by line."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        """Go on after `step` steps: what a run that was killed had logged beyond them is left out.

        Raises InputError: a line is damaged; OutputError.
        """
        from tensorboardX import SummaryWriter

        self.folder = folder
        self.entries = [entry for entry in read_entries(folder.log) if entry["step"] <= step]
        """All lines up to now."""
        write_atomically(folder.log, "".join(map(_line, self.entries)).encode())
        # The suffix keeps apart two starts in one second.
        suffix = f".{step:08d}-{time.time_ns() % 10**9}"
        self._events = SummaryWriter(str(folder.path), purge_step=step + 1, filename_suffix=suffix)

    def write(self, entry: Entry) -> None:
        """Append a line; its numbers become curves. Raises OutputError."""
        self.entries.append(entry)
        try:
            with self.folder.log.open("a", encoding="utf-8") as log:
                log.write(_line(entry))
        except OSError as error:
            raise _cannot_write(self.folder.log, error) from error
        for name, value in _flat(entry).items():
            self._events.add_scalar(name, value, entry["step"])

    def picture(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        """Show a picture (H, W, 3) among the events."""
        self._events.add_image(name, pixels, step, dataformats="HWC")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._events.close()
        except OSError as failed:
            if error is None:
                raise _cannot_write(self.folder.path, failed) from failed


def _line(entry: Entry) -> str:
    """Numbers that JSON does not have become null."""
    return json.dumps(json.loads(json.dumps(entry), parse_constant=lambda name: None)) + "\n"


def _flat(entry: Entry, prefix: str = "") -> dict[str, float]:
    """Numbers of an entry by their path, as curves are called: "losses/refined"."""
    found: dict[str, float] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key != "step":
            found[f"{prefix}{key}"] = float(value)
    return found


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot write {path}: {error.strerror or error}", "make room, then go on with `resume`"
    )


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
