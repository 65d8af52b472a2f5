"""Provide the folder of a run, its log (JSON lines and TensorBoard events), and its observers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pydantic
from numpy.typing import NDArray

from pamcli.errors import OutputError, UsageError
from pamcli.files.atomic import check_writable, write_atomically
from pamcli.files.json_files import Number, Whole, check_json, parse_stored_json
from pamcli.files.paths import quote
from pamcli.files.safe_reading import read_text

if TYPE_CHECKING:
    from pamcli.training.validation import ValidationResult

Entry = Mapping[str, Any]  # `step` and values; training lines have `loss`, validation lines `figure`


class RunFolder:
    """The folder of a run; only the main process writes into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.json"  # the complete recipe, and the circumstances of the run
        self.log = path / "log.jsonl"  # training and validation values, one JSON object per line
        self.checkpoints = path / "checkpoints"
        self.scenes = path / "scenes"  # the scene cache; removed when the run is finished
        self.last = path / "last.safetensors"  # the weights of the newest checkpoint
        self.best = path / "best.safetensors"  # the weights with the best validation
        self.labels = path / "labels"  # pseudo-labels of the user's own pairs, if the recipe computes them

    @property
    def weights(self) -> Path:
        """The best weights if validated, otherwise those of the newest checkpoint."""
        return self.best if self.best.is_file() else self.last

    def samples(self, step: int) -> Path:
        return self.path / "validation" / f"step-{step:08d}"

    def require_new(self) -> None:
        """Raise UsageError if the folder has contents, OutputError if it is not writable."""
        there = os.listdir(self.path) if os.path.isdir(self.path) else [""] * os.path.exists(self.path)
        for name in there:
            if not name.startswith(".pam-"):  # runs killed at the start leave these
                resume = f"continue the run with `resume` {quote(self.path)}"
                hint = resume if self.recipe.exists() else "use another"
                raise UsageError(f"{quote(self.path)} is not empty", hint)
        check_writable(self.recipe)


@pydantic.dataclasses.dataclass(frozen=True)
class Line:
    """The parts of a log line that must be valid for a run to resume."""

    step: Whole
    figure: Number | None = None  # validation value; None = missing or not finite


def read_entries(log: Path) -> list[Entry]:
    """Return the complete lines of a log, oldest first; raise InputError that names a damaged line."""
    entries: list[Entry] = []
    for number, line in enumerate(read_text(log).split("\n")[:-1] if log.is_file() else (), start=1):
        name, hint = f"line {number} of {quote(log)}", "remove the line"
        entry = parse_stored_json(line, name, hint)
        check_json(Line, entry, name, hint)
        entries.append(entry)
    return entries


class Journal:
    """A writer of the log of a run, line by line."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        """Continue after `step` steps, without later lines of a killed run. Raise InputError, OutputError."""
        from tensorboardX import SummaryWriter

        self.folder = folder
        self.entries: list[Entry] = []
        for entry in read_entries(folder.log):
            if entry["step"] <= step:
                self.entries.append(entry)
        write_atomically(folder.log, "".join(map(_line, self.entries)).encode())
        # The suffix distinguishes two starts within one second.
        suffix = f".{step:08d}-{time.time_ns() % 10**9}"
        self._events = SummaryWriter(str(folder.path), purge_step=step + 1, filename_suffix=suffix)

    def write(self, entry: Entry) -> None:
        """Append a line, also to the TensorBoard curves; raise OutputError on failure."""
        self.entries.append(entry)
        try:
            with self.folder.log.open("a", encoding="utf-8") as log:
                log.write(_line(entry))
        except OSError as error:
            raise _make_output_error(self.folder.log, error) from error
        for name, value in _flatten(entry).items():
            self._events.add_scalar(name, value, entry["step"])

    def add_image(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        """Add an image (H, W, 3) to the TensorBoard events."""
        self._events.add_image(name, pixels, step, dataformats="HWC")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._events.close()
        except OSError as failed:
            if error is None:
                raise _make_output_error(self.folder.path, failed) from failed


def _line(entry: Entry) -> str:
    """Format a log line; values that JSON lacks become null."""
    return json.dumps(json.loads(json.dumps(entry), parse_constant=lambda name: None)) + "\n"


def _flatten(entry: Entry, prefix: str = "") -> dict[str, float]:
    """Return the numbers of an entry by path, as curves are named: "losses/refined"."""
    found: dict[str, float] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            found |= _flatten(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key != "step":
            found[f"{prefix}{key}"] = float(value)
    return found


def _make_output_error(path: Path, error: OSError) -> OutputError:
    hint = "free some space, then continue with `resume`"
    return OutputError(f"cannot write {path}: {error.strerror or error}", hint)


class Observer(Protocol):
    """An observer of a run, such as the command line."""

    def on_start(self, step: int, steps: int) -> None:
        """Handle the start of a run, or its resumption after `step` steps."""

    def on_step(self, step: int) -> None:
        """Handle the end of a step, whose values are not known yet."""

    def on_log(self, entry: Entry) -> None:
        """Handle a new log line."""

    def on_validation(self, step: int, result: ValidationResult, best: bool) -> None:
        """Handle a validation; `best`: better than all before."""

    def inform(self, message: str) -> None:
        """Show a message to the user."""
