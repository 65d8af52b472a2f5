"""The log of a run: JSON lines, and the same as events for TensorBoard."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import OutputError
from pamcli.files.atomic import write_atomically
from pamcli.training.run_folder import RunFolder

Entry = Mapping[str, Any]
"""A line of the log: `step`, and figures. Those of training have `loss`, those of validation `figure`."""


def read_entries(log: Path) -> list[Entry]:
    """Every whole line of a log, oldest first; none where there is no log."""
    if not log.is_file():
        return []
    entries: list[Entry] = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:  # the line at which a run was killed
            continue
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            entries.append(entry)
    return entries


class Journal:
    """Writes the log of a run, line by line."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        """Go on after `step` steps: what a run that was killed had logged beyond them is left out.

        Raises OutputError.
        """
        self.folder = folder
        self.entries = [entry for entry in read_entries(folder.log) if entry["step"] <= step]
        """All lines up to now."""
        write_atomically(folder.log, "".join(map(_line, self.entries)).encode())
        self._events = _Events(folder.path, step)

    def write(self, entry: Entry) -> None:
        """Append a line; its numbers become curves. Raises OutputError."""
        self.entries.append(entry)
        try:
            with self.folder.log.open("a", encoding="utf-8") as log:
                log.write(_line(entry))
            self._events.scalars(entry["step"], _flat(entry))
        except OSError as error:
            raise _cannot_write(self.folder.log, error) from error

    def picture(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        """Show a picture (H, W, 3) among the events. Raises OutputError."""
        try:
            self._events.picture(step, name, pixels)
        except OSError as error:
            raise _cannot_write(self.folder.path, error) from error

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


class _Events:
    """A file of TensorBoard events, written at once: a full disk is met here, and not by a thread."""

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboardX import summary
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        self._summary, self._proto = summary, event_pb2
        # The suffix keeps apart two starts in one second.
        self._writer = EventsWriter(str(folder / "events"), f".{step:08d}-{time.time_ns() % 10**9}")
        # TensorBoard then forgets what it has read of later steps.
        started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step + 1, session_log=started)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._write(step, summary=self._summary.scalar(name, value))
        self._writer.flush()

    def picture(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        self._write(step, summary=self._summary.image(name, pixels, dataformats="HWC"))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _write(self, step: int, **what: Any) -> None:
        self._writer.write_event(self._proto.Event(step=step, wall_time=time.time(), **what))


def _line(entry: Entry) -> str:
    return json.dumps(_plain(entry)) + "\n"


def _plain(value: Any) -> Any:
    """Numbers that JSON does not have become null."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
        f"cannot write {path}: {error.strerror or error}", "make room, then go on with --resume"
    )
