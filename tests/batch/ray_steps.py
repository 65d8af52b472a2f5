"""Steps that other processes run in the tests: each job writes a file, once and whole."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from pamcli.batch.plan import Job
from pamcli.errors import InputError, ModelError


@dataclass(frozen=True)
class WriteSteps:
    folder: Path
    seconds: float = 0.0
    broken: str = ""
    notes_pid: bool = False
    settings: ClassVar[Any] = SimpleNamespace(max_memory=None)

    def start(self) -> None:
        if self.broken:
            raise ModelError(self.broken, "mend it")

    def load(self, job: Job) -> int:
        number = job.line or 0
        if number % 100 == 99:
            raise InputError(f"{number} is bad", "leave it out")
        if number % 100 == 98:
            os._exit(1)
        return number

    def compute(self, job: Job, loaded: int) -> int:
        time.sleep(self.seconds)
        return loaded**2

    def save(self, job: Job, computed: int) -> str:
        (self.folder / f"{job.line}.txt").write_text(str(computed))
        if self.notes_pid:
            (self.folder / f"{os.getpid()}.pid").write_text(str(os.getpid()))
        return str(computed)


def numbered(numbers: Iterable[int]) -> Iterator[Job]:
    """Jobs of these numbers; those below 0 are done."""
    for number in numbers:
        yield Job(None, done=number < 0, line=number)
