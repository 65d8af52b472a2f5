"""Run the jobs of a batch here, in several single-threaded processes, or on a cluster."""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pamcli.batch import LOG
from pamcli.batch.jobs import Job, Result
from pamcli.batch.overlapping import attempt, run_one, run_overlapped
from pamcli.batch.plan import Plan
from pamcli.batch.processing import PairProcessor, Results
from pamcli.errors import DiskFullError, InputError, PamError, UsageError
from pamcli.files.atomic import FolderGoneError, require_folder
from pamcli.files.paths import pluralize
from pamcli.limits import get_free_memory, usable_cores
from pamcli.settings.shared import Cluster, Engine
from pamcli.workers import answer_in_processes

LEAST_PAIRS, LEAST_PIXELS = 8, 2_500_000
"""Smallest number of pairs, and pixels of their left images, for which starting another process pays: 16
pairs of 741x497 px took 23.3 s in one process on two cores and 18.9 s in two; beside other programs, 40 s in
two and more than 70 s in one."""
PROCESS_MEMORY = 1_000_000_000
"""Free memory that a process needs, bytes."""
MOST_THREADS, THREAD_PIXELS = 8, 40_000_000
"""Largest number of threads that read for a GPU, and of pixels of left images that they hold together."""


class Batch:
    """Pairs that are processed while the batch is iterated; yields a `Result` for each, in their order.

    A pair that cannot be read or written fails alone: its result has an `error`. A full disk ends the
    iteration with an OutputError. If it ends early, all files are complete, and `skip_existing` resumes. On a
    cluster, results come as they are done.
    """

    bar: Any = None
    """A `Progress`, or None."""
    made: Sequence[Path] = ()
    """The finished videos, after the last pair."""

    def __init__(self, plan: Plan, processor: PairProcessor[Any, Any]) -> None:
        """Run a processor on each pair of a plan. Raises InputError if a recording lacks its calibration."""
        self.plan, self.processor = plan, processor
        if plan.recording is not None and processor.reader.rectifies_recording:
            plan.recording.require_calibration()

    @property
    def total(self) -> int | None:
        """Number of pairs; None while a list is being read."""
        return self.plan.total

    def start(self) -> None:
        """Load the network if this process needs one; otherwise the first pair does."""
        if count_processes(self) == 1:
            self.processor.start()

    @property
    def resume_hint(self) -> str:
        """Hint for resuming the batch after an interruption."""
        videos, names = self.plan.videos.keys(), self.plan.names.templates.keys()
        if self.processor.resume_hint is not None:
            return self.processor.resume_hint
        if not self.plan.settings.overwrite:
            return "to resume, add `skip_existing` to the same command"
        if videos and names <= videos:
            return "to resume, repeat the command with `skip_existing` instead of `overwrite`"
        return "start again: `skip_existing` would keep old results"

    def __iter__(self) -> Results:
        plan, processor = self.plan, self.processor
        if plan.videos and plan.settings.overwrite:
            from pamcli.batch.video_results import remove_all_frames

            remove_all_frames(plan)
        unwritten, repeated = False, dict[str, list[str]]()
        with closing(self._run()) as run, closing(processor.finish(run)) as results:
            for result in results:
                unwritten |= result.error is not None and not isinstance(result.error, InputError)
                if isinstance(result.error, (FolderGoneError, DiskFullError)):  # as for all
                    raise result.error
                for text in result.video_warnings:
                    repeated.setdefault(re.sub(r"[\d.]+", "", text), []).append(text)
                yield result
        for first, *others in repeated.values():
            LOG.warning(first + (f" (and in {pluralize(len(others), 'other frame')})" if others else ""))
        for folder in sorted(processor.folders):
            require_folder(folder)
        if plan.videos:
            from pamcli.batch.video_results import make_videos

            self.made = make_videos(plan, processor.write_video, unwritten)

    def _run(self) -> Results:
        """Yield the result of each pair, and report its progress and its remarks."""
        plan, processor, settings = self.plan, self.processor, self.plan.settings
        processes = count_processes(self)
        threads = count_threads(self) if processes == 1 and plan.many else 1
        # Several threads have no progress within a pair.
        processor.bar = self.bar if processes == threads == 1 else None
        known: dict[str, Any] = {"device": None, "precision": None} if processor.uses_gpu else {}
        known |= processor.start() if processes == 1 else {}
        known["options"] = settings.to_json()
        answers: Generator[tuple[Job, Result | PamError], None, None]
        if processes == 1:
            answers = run_overlapped(plan.jobs(), processor, threads)
        elif processes:
            if isinstance(settings, Engine) and settings.max_memory is not None:
                processor.settings = replace(settings, max_memory=settings.max_memory // processes)
            do = partial(run_job, processor)
            answers = answer_in_processes(do, plan.jobs(), processes, prepares=True)
        else:
            from pamcli.batch.ray_cluster import run_on_ray

            assert isinstance(settings, Cluster)
            jobs, cores = processor.prepare(plan.jobs()), settings.ray_cores or processor.cores
            address, gpus = settings.ray_address, processor.uses_gpu
            answers = run_on_ray(jobs, processor, address=address, cores=cores, gpus=gpus)
        reported = set[str]()
        with closing(answers):
            for job, outcome in answers:
                result = Result(job, error=outcome) if isinstance(outcome, PamError) else outcome
                if self.bar is not None:
                    self.bar.advance(skipped=job.done)
                for remark in result.remarks:
                    if remark not in reported:
                        LOG.info(remark)
                reported.update(result.remarks)
                yield replace(result, facts={**known, **result.facts})


def count_processes(batch: Batch) -> int:
    """Return the number of processes to use, or 0 if a Ray cluster computes.

    Raises UsageError: an option of the batch requires a single process.
    """
    plan, settings = batch.plan, batch.plan.settings
    if plan.uses_ray:
        return 0
    if not isinstance(settings, Engine) or settings.workers == 1 or not plan.many:
        return 1
    conflict = _find_sequential(batch)
    if settings.workers != "auto":
        if conflict is not None:
            raise UsageError(f"cannot use both `workers` {settings.workers} and {conflict}", "drop `workers`")
        return int(min(settings.workers, plan.total or 1))
    is_foreign = Path(settings.name).suffix in (".onnx", ".toml")
    if conflict is not None or is_foreign or not _uses_cpu(settings.device):
        return 1
    cores, pairs = usable_cores(), plan.total or 0
    if cores == 1 or pairs < 2 * LEAST_PAIRS:
        return 1
    free = get_free_memory()
    memory = min(settings.max_memory or math.inf, math.inf if free is None else free)
    most = min(cores, pairs // LEAST_PAIRS, pairs * _count_pixels(batch) // LEAST_PIXELS)
    return int(max(1, min(most, memory // PROCESS_MEMORY)))


def count_threads(batch: Batch) -> int:
    """Return the number of threads that prepare pairs for a GPU, and of those that write its results."""
    plan, processor = batch.plan, batch.processor
    if not processor.uses_gpu or "cpu" in processor.start()["device"].lower():
        return 1
    if plan.recording is not None or _find_sequential(batch) is not None:
        return 1
    pixels = max(1, _count_pixels(batch))
    return max(1, min(MOST_THREADS, usable_cores(), THREAD_PIXELS // pixels))


def _find_sequential(batch: Batch) -> str | None:
    """Return what requires that pairs are processed one after the other in one process, if anything."""
    plan = batch.plan
    if plan.pairing is None:
        return "`pairs` -"
    has_videos = plan.videos or (plan.frames is not None and plan.recording is None)
    return batch.processor.sequential or ("videos" if has_videos else None)


def _count_pixels(batch: Batch) -> int:
    """Return the pixels of the first readable left image, or 0 if the first three cannot be read."""
    for job in itertools.islice(batch.plan.jobs(), 3):
        with suppress(PamError):
            if job.pair is not None:
                pair = batch.processor.reader.read(job.pair)
                return pair.width * pair.height
    return 0


def _uses_cpu(device: str) -> bool:
    """Return whether a network will run on the CPU, without PyTorch, whose import takes seconds."""
    if device != "auto":
        return device == "cpu"
    paths = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
    return not any(map(os.path.exists, paths)) and shutil.which("nvidia-smi") is None


def run_job(processor: PairProcessor[Any, Any], job: Job | None) -> Any:
    """Load the network for None, else return the result or error of a job, in another process."""
    return attempt(processor.start) if job is None else run_one(processor, job)
