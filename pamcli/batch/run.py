"""Run the jobs of a batch here, in several single-threaded processes, or on a cluster.

No thread of a batch may drop the last reference to a network while Python ends: PyTorch would abort the
process. So all threads are joined. Only a thread that waits for a pipe cannot be joined; it is left without
references to the steps.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pamcli.batch import LOG
from pamcli.batch.plan import Job, Plan, Result
from pamcli.batch.processing import Answers, PairProcessor, Results, attempt, run_one
from pamcli.errors import DiskFullError, InputError, PamError, UsageError
from pamcli.files.atomic import FolderGoneError, require_folder
from pamcli.files.paths import pluralize
from pamcli.inference import PAIRS_AT_ONCE
from pamcli.limits import get_free_memory, usable_cores
from pamcli.settings.shared import Cluster, Engine
from pamcli.workers import answer_in_processes

LEAST_PAIRS, LEAST_PIXELS = 8, 2_500_000
"""Smallest number of pairs, and pixels of their left images, for which starting another process pays: 16
pairs of 741x497 px took 23.3 s in one process on two cores and 18.9 s in two; beside other programs, 40 s in
two and more than 70 s in one."""
PROCESS_MEMORY = 1_000_000_000  # free memory that a process needs, bytes
MOST_THREADS, THREAD_PIXELS = 8, 40_000_000
"""Largest number of threads that read for a GPU, and of pixels of left images that they hold together."""
PATIENCE = 1.0
"""Time in which a thread must end if the caller stops early, s. One that waits for a pipe does not."""


class Batch:
    """Pairs that are processed while the batch is iterated; yields a `Result` for each, in their order.

    A pair that cannot be read or written fails alone: its result has an `error`. A full disk ends the
    iteration with an OutputError. If it ends early, all files are complete, and `skip_existing` resumes. On a
    cluster, results come as they are done.
    """

    bar: Any = None
    """A `Progress`, or None."""
    made: Sequence[Path] = ()
    """The files of the whole batch, such as videos, after the last pair."""

    def __init__(self, plan: Plan, processor: PairProcessor) -> None:
        """Run a processor on each pair of a plan. Raises InputError if a recording lacks its calibration."""
        self.plan, self.processor = plan, processor
        if plan.recording is not None and processor.rectifies_recording:
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
        for folder in sorted(processor.folders) if plan.many else ():
            require_folder(folder)
        self.made = processor.made
        if plan.videos:
            from pamcli.batch.video_results import make_videos

            self.made = make_videos(plan, processor.write_video, unwritten)

    def _run(self) -> Results:
        """Yield the result of each pair, and report its progress and its remarks."""
        processor, settings = self.processor, self.plan.settings
        known: dict[str, Any] = {"device": None, "precision": None} if processor.uses_gpu else {}
        options, reported = settings.to_json(), set[str]()
        with closing(self._answer()) as answers:
            for job, outcome in answers:
                result = Result(job, error=outcome) if isinstance(outcome, PamError) else outcome
                if self.bar is not None:
                    self.bar.advance(skipped=job.done)
                for remark in result.remarks:
                    if remark not in reported:
                        LOG.info(remark)
                reported.update(result.remarks)
                facts = {**known, **processor.facts, "options": options, **result.facts}
                yield replace(result, facts=facts)

    def _answer(self) -> Answers:
        """Yield each pair with its result or error, computed in the fitting way."""
        plan, processor, settings = self.plan, self.processor, self.plan.settings
        processes = count_processes(self)
        if processes == 1:
            threads = count_threads(self) if plan.many else 1
            # Several threads have no progress within a pair.
            processor.bar = self.bar if threads == 1 else None
            processor.start()
            if plan.many or "-" in map(str, settings.inputs or ()):
                # Reading stdin may never end, and this thread could not always be interrupted.
                yield from run_overlapped(plan.jobs(), processor, threads)
                return
            with ThreadPoolExecutor(1) as saver:  # a signal does not end it between the results of a pair
                saver.submit(int).result()  # a thread whose start a signal interrupts would not be joined
                for job in plan.jobs():
                    computed = attempt(processor.compute, job, attempt(processor.load, job))
                    yield job, saver.submit(attempt, processor.save, job, computed).result()
        elif processes:
            if isinstance(settings, Engine) and settings.max_memory is not None:
                processor.settings = replace(settings, max_memory=settings.max_memory // processes)
            work = partial(run_job, processor)
            yield from answer_in_processes(work, plan.jobs(), processes, prepares=True)
        else:
            from pamcli.batch.ray_cluster import run_on_ray

            assert isinstance(settings, Cluster)
            jobs, cores = processor.prepare(plan.jobs()), settings.ray_cores or processor.cores
            yield from run_on_ray(jobs, processor, settings.ray_address, cores, gpus=processor.uses_gpu)


def count_processes(batch: Batch) -> int:
    """Return the number of processes to use, or 0 if a Ray cluster computes.

    Raises UsageError: an option of the batch requires a single process.
    """
    plan, settings = batch.plan, batch.plan.settings
    if plan.uses_ray:
        return 0
    if not isinstance(settings, Engine) or settings.workers == 1 or not plan.many:
        return 1
    conflict, pairs = _find_sequential(batch), plan.total or 0
    if settings.workers != "auto":
        if conflict is not None:
            raise UsageError(f"cannot use both `workers` {settings.workers} and {conflict}", "drop `workers`")
        return int(min(settings.workers, pairs or 1))
    if conflict is not None or Path(settings.name).suffix in (".onnx", ".toml"):
        return 1
    if not _uses_cpu(settings.device) or usable_cores() == 1 or pairs < 2 * LEAST_PAIRS:
        return 1
    free = get_free_memory()
    memory = min(settings.max_memory or math.inf, math.inf if free is None else free)
    most = min(usable_cores(), pairs // LEAST_PAIRS, pairs * _count_pixels(batch) // LEAST_PIXELS)
    return int(max(1, min(most, memory // PROCESS_MEMORY)))


def count_threads(batch: Batch) -> int:
    """Return the number of threads that prepare pairs for a GPU, and of those that write its results."""
    processor = batch.processor
    if not processor.uses_gpu or "cpu" in processor.start()["device"].lower():
        return 1
    if batch.plan.recording is not None or _find_sequential(batch) is not None:
        return 1
    return max(1, min(MOST_THREADS, usable_cores(), THREAD_PIXELS // max(1, _count_pixels(batch))))


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
                pair = batch.processor.read_views(job.pair)
                return pair.width * pair.height
    return 0


def _uses_cpu(device: str) -> bool:
    """Return whether a network will run on the CPU, without PyTorch, whose import takes seconds."""
    if device != "auto":
        return device == "cpu"
    paths = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
    return not any(map(os.path.exists, paths)) and shutil.which("nvidia-smi") is None


def run_job(processor: PairProcessor, job: Job | None) -> Any:
    """Load the network for None, else return the result or error of a job, in another process."""
    return attempt(processor.start) if job is None else run_one(processor, job)


def run_overlapped(jobs: Iterable[Job], steps: PairProcessor, threads: int = 1) -> Answers:
    """Run all steps of every job; yield each, in order, with its result or error.

    `threads` threads load, and as many save. `compute` runs after `load` if these are several (a GPU does one
    thing at a time, but most of the step is done on CPUs), else in the caller's thread. Another thread
    iterates `jobs`, which may wait for a pipe. At most `PAIRS_AT_ONCE` pairs, and two more per further
    thread, are in memory. A step that raises ends only its job. What `jobs` itself raises is raised after the
    jobs before it. If the caller stops early, the current `save` is completed.
    """
    loading: deque[tuple[Job, Future[Any]]] = deque()
    saving: deque[tuple[Job, Future[Any]]] = deque()
    loader_threads: list[threading.Thread] = []
    saver_threads: list[threading.Thread] = []
    loaders = ThreadPoolExecutor(threads, "load", lambda: loader_threads.append(threading.current_thread()))
    savers = ThreadPoolExecutor(threads, "save", lambda: saver_threads.append(threading.current_thread()))
    room = threading.Semaphore(PAIRS_AT_ONCE + 2 * (threads - 1))
    changed, ended, stopped = threading.Event(), threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def submit(pool: ThreadPoolExecutor, step: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = pool.submit(step, *arguments)
        future.add_done_callback(lambda _: changed.set())
        return future

    def load(job: Job) -> Any:
        loaded = attempt(steps.load, job)
        return attempt(steps.compute, job, loaded) if threads > 1 else loaded

    def save(job: Job, computed: Any) -> Any:
        result = attempt(steps.save, job, computed)
        room.release()
        return result

    def take_jobs() -> None:
        try:
            iterator = iter(jobs)
            while room.acquire() and not stopped.is_set():
                job = next(iterator)
                loading.append((job, submit(loaders, load, job)))
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            failures.append(error)
        ended.set()
        changed.set()

    # A daemon: an endless producer of jobs must not outlive the program.
    taker = threading.Thread(target=take_jobs, name="take", daemon=True)
    taker.start()
    try:
        while not ended.is_set() or loading or saving:
            changed.clear()
            if saving and saving[0][1].done():
                job, future = saving.popleft()
                yield job, future.result()
            elif loading and loading[0][1].done():
                job, future = loading.popleft()
                value = future.result()
                if threads == 1:
                    value = attempt(steps.compute, job, value)
                saving.append((job, submit(savers, save, job, value)))
                del future, value  # they hold the images
            else:
                changed.wait(1)  # not longer: Python must handle a signal that arrived just before
    finally:
        stopped.set()
        room.release()
        # A pool does not know a thread that it was starting when a signal arrived: it cannot join it.
        for pool in (loaders, savers):
            pool.shutdown(wait=False, cancel_futures=True)
        for thread in saver_threads:
            thread.join()
        last = time.monotonic() + PATIENCE
        for thread in (taker, *loader_threads):
            thread.join(max(0.0, last - time.monotonic()))
        # A thread that still waits for a pipe must not own a network.
        steps, jobs = None, ()  # type: ignore[assignment]
    if failures:
        raise failures[0]
