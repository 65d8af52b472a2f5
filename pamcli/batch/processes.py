"""Process a batch in single-threaded processes, one per core, each with a network of its own."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Generator, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pamcli.batch.jobs import Job, Result
from pamcli.batch.processing import PairProcessor, attempt, run_one
from pamcli.errors import PamError, UsageError
from pamcli.limits import get_free_memory, usable_cores
from pamcli.workers import answer_in_processes

LEAST_PAIRS, LEAST_PIXELS = 8, 5_000_000
"""Pairs, and pixels of their left images, per process for which its start of some seconds pays."""
PROCESS_MEMORY = 1_000_000_000
"""Free memory that a process needs, bytes."""


def count_workers(batch: Any) -> int:
    """Return the number of processes for a `Batch`. Raises UsageError if several are not supported."""
    settings, count = batch.settings, batch.settings.workers
    conflicts = {
        "`pairs` -": batch.pairing is None,
        "`steady`": getattr(settings, "steady", False),
        "`range` shared": batch.processor.needs_whole_batch,
        "videos": bool(batch.videos) or (_has_frames(batch) and batch.recording is None),
    }
    conflict = next(filter(conflicts.get, conflicts), None)
    if count != "auto":
        if conflict is not None:
            raise UsageError(f"cannot use both `workers` {count} and {conflict}", "drop `workers`")
        return int(min(count, batch.total or 1))
    is_foreign = Path(settings.name).suffix in (".onnx", ".toml")
    if conflict is not None or is_foreign or not _uses_cpu(settings.device):
        return 1
    cores, pairs = usable_cores(), batch.total or 0
    if cores == 1 or pairs < 2 * LEAST_PAIRS:
        return 1
    free = get_free_memory()
    memory = min(settings.max_memory or math.inf, math.inf if free is None else free)
    most = min(cores, pairs // LEAST_PAIRS, pairs * _count_pixels(batch) // LEAST_PIXELS)
    return int(max(1, min(most, memory // PROCESS_MEMORY)))


def _has_frames(batch: Any) -> bool:
    return bool(batch.pairing and next(iter(batch.pairing.pairs)).frames)


def _count_pixels(batch: Any) -> int:
    """Return the pixels of the first readable left image, or 0 if the first three cannot be read."""
    for job in islice(batch.jobs(), 3):
        with suppress(PamError):
            pair = batch.processor.read(job)
            return int(pair.width * pair.height)
    return 0


def _uses_cpu(device: str) -> bool:
    """Return whether a network will run on the CPU, without PyTorch, whose import takes seconds."""
    if device != "auto":
        return device == "cpu"
    paths = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
    return not any(map(os.path.exists, paths)) and shutil.which("nvidia-smi") is None


def run_in_processes(
    jobs: Iterable[Job], processor: PairProcessor, count: int
) -> Generator[tuple[Job, Result | PamError], None, None]:
    """Run all steps of every job in other processes; yield each, in order, with its result or error.

    A job whose process ends has failed. Raises what loading the network raises.
    """
    if processor.settings.max_memory is not None:
        processor.max_memory = processor.settings.max_memory // count
    return answer_in_processes(partial(_run_job, processor), jobs, count, prepares=True)


def _run_job(processor: PairProcessor, job: Job | None) -> Any:
    """Load the network for None, else return the result or error of a job."""
    return attempt(processor.start) if job is None else run_one(processor, job)
