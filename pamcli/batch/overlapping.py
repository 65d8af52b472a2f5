"""Run the steps of a batch: read, compute and write several pairs at the same time.

No thread of a batch may drop the last reference to a network while Python ends: PyTorch would abort the
process. So all threads are joined. Only a thread that waits for a pipe cannot be joined; it is left without
references to the steps.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pamcli.batch.jobs import Job, Result
from pamcli.batch.processing import PairProcessor
from pamcli.errors import DeviceError, PamError, convert_system_error
from pamcli.inference import PAIRS_AT_ONCE

PATIENCE = 1.0
"""Time in which a thread must end if the caller stops early, s. One that waits for a pipe does not."""


def run_overlapped(
    jobs: Iterable[Job], steps: PairProcessor[Any, Any], threads: int = 1
) -> Generator[tuple[Job, Result | PamError], None, None]:
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


def run_one(
    steps: PairProcessor[Any, Any], job: Job, computing: AbstractContextManager[Any] | None = None
) -> Any:
    """Run all steps of a job; return its result or error. computing: a lock of jobs that run at once."""
    loaded = attempt(steps.load, job)
    with computing or nullcontext():
        computed = attempt(steps.compute, job, loaded)
    del loaded
    return attempt(steps.save, job, computed)


def attempt(step: Callable[..., Any], *arguments: Any) -> Any:
    """Run a step and return its result or its error; if the last argument is an error, return that one."""
    if arguments and isinstance(arguments[-1], PamError):
        return arguments[-1]
    try:
        return step(*arguments)
    except PamError as error:
        part: BaseException | None = error
        while part is not None:  # its frames would keep the pair in memory
            # They are not cleared: the error of a job also refers to the frame of the jobs' generator.
            part.__traceback__ = None
            part = part.__cause__ or part.__context__
        return error
    except MemoryError:
        return DeviceError("not enough memory for this pair", "use smaller images, or `max_memory`")
    except Exception as error:  # noqa: BLE001 - a batch continues after any failed pair
        message = f"unexpected {type(error).__name__}: {error}"
        unexpected = convert_system_error(error) or PamError(message, "PAM_TRACEBACK=1 shows where")
        unexpected.__cause__ = error
        traceback.clear_frames(error.__traceback__)  # they would keep the pair in memory
        return unexpected
