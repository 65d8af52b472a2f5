"""What Ray's workers do in the tests: they write a file for each job, which has to appear once and whole."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pamcli.errors import InputError, ModelError


@dataclass(frozen=True)
class WriteSteps:
    folder: Path
    seconds: float = 0.0
    broken: str = ""

    def start(self) -> None:
        if self.broken:
            raise ModelError(self.broken, "mend it")

    def begin(self, jobs: Iterator[int]) -> Iterator[int]:
        return jobs

    def settled(self, job: int) -> str | None:
        return "skipped" if job < 0 else None

    def load(self, job: int) -> int:
        if job % 100 == 99:
            raise InputError(f"{job} is bad", "leave it out")
        if job % 100 == 98:
            os._exit(1)
        return job

    def compute(self, job: int, loaded: int) -> int:
        time.sleep(self.seconds)
        return loaded**2

    def save(self, job: int, computed: int) -> str:
        (self.folder / f"{job}.txt").write_text(str(computed))
        return str(computed)
