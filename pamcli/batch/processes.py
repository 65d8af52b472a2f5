"""How does a batch use all cores? One single-threaded process per core, sharing nothing but the job queue.

The processes are started once, with `serve` below; each loads the network once and answers one job at a time.
"""

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
from pamcli.batch.work import Work, attempt, run_one
from pamcli.errors import DeviceError, PamError, UsageError
from pamcli.workers import usable_cores

ENOUGH, WORTH = 8, 5_000_000
"""Pairs, and pixels of their left images, for each process from which they pay: it starts in some seconds."""
AHEAD = 3
"""Jobs for each process that are begun before the results of earlier ones are taken."""
EACH = 1_000_000_000
"""Bytes of memory that a process must find free."""
PATIENCE = 10.0
"""Seconds that a process has to end in, once it is asked to."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"), "1"
)
BOOT = """import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from pamcli.batch.processes import serve
serve()"""


def count_workers(batch: Any) -> int:
    """Count the processes that a `Batch` is to be processed by.

    Raises UsageError where several are asked for and it must be processed by one.
    """
    settings, asked = batch.settings, batch.settings.workers
    alone = {
        "a list that is read as it arrives": batch.pairing is None,
        "`steady`": getattr(settings, "steady", False),
        "`range` shared": batch.work.whole_batch_first,
        "videos": bool(batch.pairing and next(iter(batch.pairing.pairs)).frames) or bool(batch.videos),
    }
    reason = next(filter(alone.get, alone), None)
    if asked != "auto":
        if reason is not None:
            raise UsageError(f"cannot use both `workers` {asked} and {reason}", "leave out `workers`")
        return int(min(asked, batch.total or 1))
    foreign = Path(settings.name).suffix in (".onnx", ".toml")
    if reason is not None or foreign or not _on_cpu(settings.device):
        return 1
    cores, pairs = usable_cores(), batch.total or 0
    if cores == 1 or pairs < 2 * ENOUGH:
        return 1
    memory = min(settings.max_memory or math.inf, _free_memory())
    most = min(cores, pairs // ENOUGH, pairs * _pixels(batch) // WORTH)
    return int(max(1, min(most, memory // EACH)))


def _pixels(batch: Any) -> int:
    """Return the pixels of the first left image that can be read, 0 where none of three can."""
    for job in islice(batch.jobs(), 3):
        with suppress(PamError):
            pair = batch.work.read(job)
            return int(pair.width * pair.height)
    return 0


def _free_memory() -> float:
    """Return the bytes that Linux and the container's limit leave, without PyTorch; elsewhere infinity."""
    free = math.inf
    with suppress(OSError, ValueError, IndexError):
        free = 1024 * int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0])
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, limit - used)
    return free


def _on_cpu(device: str) -> bool:
    """Return whether a network will run on the CPU, without asking PyTorch, whose import takes seconds."""
    if device != "auto":
        return device == "cpu"
    places = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
    return not any(map(os.path.exists, places)) and shutil.which("nvidia-smi") is None


def run_in_processes(
    jobs: Iterable[Job], work: Work, count: int
) -> Generator[tuple[Job, Result | PamError], None, None]:
    """Run the steps of `Work` for every job in other processes and yield, in their order, what came of each.

    A job whose process ends has failed; another process takes its place. Raises what loading the network
    raises.
    """
    if work.settings.max_memory is not None:
        work.max_memory = work.settings.max_memory // count
    helpers, said = [_Helper(work) for _ in range(count)], set[str]()
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
                if line not in said:
                    said.add(line)
                    LOG.log(level, line)
            yield job, outcome
    finally:
        for helper in helpers:
            helper.stop()
        threads.shutdown(cancel_futures=True)
        for helper in helpers:  # of which one may have begun meanwhile
            helper.stop()


class _Helper:
    """A process that answers jobs, and another one where it was ended."""

    def __init__(self, work: Work) -> None:
        self.work, self.stopped = work, False
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, job: Job) -> Any:
        """Return what came of a job, and what was logged. Raises what loading the network raises."""
        if job.error is not None:
            return job.error, ()
        lines: tuple[tuple[int, str], ...] = ()
        try:
            if self.process is None:
                lines = self._begin()
            outcome, more = self._exchange(job)
            return outcome, (*lines, *more)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            self._end()
            hint = "too little memory, perhaps: take fewer `workers`"
            return DeviceError("the process that worked on this pair was ended from outside", hint), lines

    def _begin(self) -> tuple[tuple[int, str], ...]:
        """Start the process and let it load the network; return what was logged."""
        if self.stopped:
            raise EOFError
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("PAM_TRACEBACK") else subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # Ctrl-C is answered by the main process alone
        )
        if self.stopped:
            raise EOFError
        self._send(sys.path)
        loaded, lines = self._exchange(self.work)
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
        """End the process: at once where it waits, else once what it writes is whole or gone."""
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
    """Load a network and answer jobs, as the process of a `_Helper` does, until nobody asks any more."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    lines: list[tuple[int, str]] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append((record.levelno, record.getMessage()))

    LOG.handlers, LOG.propagate = [Kept()], False
    LOG.setLevel(logging.DEBUG)
    work: Any = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            message = pickle.load(asked)
            outcome = attempt(message.start) if work is None else run_one(work, message)
            work = work or message
            pickle.dump((outcome, tuple(lines)), answers)
            answers.flush()
            lines.clear()
