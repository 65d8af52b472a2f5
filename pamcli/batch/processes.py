"""Process a batch in single-threaded processes, one per core, each with a network of its own."""

from __future__ import annotations

import logging
import math
import os
import pickle
import queue
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from pamcli.batch import LOG
from pamcli.batch.jobs import Job, Result
from pamcli.batch.processing import PairProcessor, attempt, run_one
from pamcli.errors import DeviceError, PamError, UsageError
from pamcli.limits import get_free_memory, usable_cores

LEAST_PAIRS, LEAST_PIXELS = 8, 5_000_000
"""Pairs, and pixels of their left images, per process for which its start of some seconds pays."""
AHEAD = 3
"""Jobs per process that are submitted ahead."""
PROCESS_MEMORY = 1_000_000_000
"""Free memory that a process needs, bytes."""
PATIENCE = 10.0
"""Time in which a process must end on request, s."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"), "1"
)
BOOT = """import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from pamcli.batch.processes import serve
serve()"""


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

    A job whose process ends has failed; another process replaces it. Raises what loading the network raises.
    """
    if processor.settings.max_memory is not None:
        processor.max_memory = processor.settings.max_memory // count
    helpers, reported = [_Helper(processor) for _ in range(count)], set[str]()
    free: queue.SimpleQueue[_Helper] = queue.SimpleQueue()
    for helper in helpers:
        free.put(helper)

    def answer(job: Job) -> Any:
        helper = free.get()
        try:
            return helper.ask(job)
        finally:
            free.put(helper)

    waiting: deque[tuple[Job, Future[Any]]] = deque()
    left = iter(jobs)
    threads = ThreadPoolExecutor(count)
    try:
        while True:
            for job in islice(left, AHEAD * count - len(waiting)):
                waiting.append((job, threads.submit(answer, job)))
            if not waiting:
                return
            job, future = waiting.popleft()
            outcome, lines = future.result()
            for level, line in lines:
                if line not in reported:
                    reported.add(line)
                    LOG.log(level, line)
            yield job, outcome
    finally:
        for helper in helpers:
            helper.stop()
        threads.shutdown(cancel_futures=True)
        for helper in helpers:  # a thread may have started another process meanwhile
            helper.stop()


class _Helper:
    """A process that answers jobs, and is replaced if it ends."""

    def __init__(self, processor: PairProcessor) -> None:
        self.processor, self.stopped = processor, False
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, job: Job) -> Any:
        """Return the result of a job and its log lines. Raises the errors of loading the network."""
        if job.error is not None:
            return job.error, ()
        lines: tuple[tuple[int, str], ...] = ()
        try:
            if self.process is None:
                lines = self._start()
            outcome, more = self._exchange(job)
            return outcome, (*lines, *more)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            self._end()
            hint = "if memory is short, use fewer `workers`"
            return DeviceError("the process of this pair was killed from outside", hint), lines

    def _start(self) -> tuple[tuple[int, str], ...]:
        """Start the process and let it load the network; return the logged lines."""
        if self.stopped:
            raise EOFError
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("PAM_TRACEBACK") else subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # only the main process handles Ctrl-C
        )
        if self.stopped:
            raise EOFError
        self._send(sys.path)
        loaded, lines = self._exchange(self.processor)
        if isinstance(loaded, PamError):
            raise loaded
        return tuple(lines)

    def _exchange(self, message: Any) -> Any:
        self._send(message)
        assert self.process is not None
        assert self.process.stdout is not None
        return pickle.load(self.process.stdout)

    def _send(self, message: Any) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        pickle.dump(message, self.process.stdin)
        self.process.stdin.flush()

    def stop(self) -> None:
        """End the process, after the file that it is writing."""
        self.stopped = True
        self._end()

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def serve() -> None:
    """Load the network and answer jobs until stdin is closed: the program of a `_Helper`."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print, and stdout holds the answers
    lines: list[tuple[int, str]] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append((record.levelno, record.getMessage()))

    LOG.handlers, LOG.propagate = [Collector()], False
    LOG.setLevel(logging.DEBUG)
    processor: Any = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            message = pickle.load(questions)
            outcome = attempt(message.start) if processor is None else run_one(processor, message)
            processor = processor or message
            pickle.dump((outcome, tuple(lines)), answers)
            answers.flush()
            lines.clear()
