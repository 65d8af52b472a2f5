"""Work on many things that is the same for each, done in several processes."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from pamcli.errors import DeviceError, InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores() -> int:
    """Count the processors that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """One for each processor that this program may use, at most eight."""
    return min(8, usable_cores())


def done_in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Result | InputError]]:
    """Every item with its result, or with the InputError that it raised, in the order of their ends.

    work: a module's function; with one worker it runs in this process. Whatever else it raises ends the
    whole, after the items at hand. Raises DeviceError: a process was killed.
    """
    if workers <= 1 or len(items) <= 1:
        for item in items:
            yield item, _attempted(work, item)
        return
    # Not forked: threads of this program (the decoders', torch's) would be missing in the copies.
    context = multiprocessing.get_context("spawn")
    count = min(workers, len(items))
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(work,))
    with deaf_to_ctrl_c():
        waiting = {pool.submit(_attempted_there, item): item for item in items}
    try:
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool:
        raise DeviceError(
            "a worker process was ended from outside, perhaps for want of memory", "take fewer `workers`"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Let processes that are begun meanwhile never see SIGINT; this one sees it afterwards.

    Ctrl-C reaches all processes of a terminal, and the main one decides. A handler would come too late: a
    process is longest in its imports.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _attempted(work: Callable[[Item], Result], item: Item) -> Result | InputError:
    try:
        return work(item)
    except InputError as error:
        return error


_work: Callable[[Any], Any]
"""What this process does with each item, which it is sent once."""


def _begin(work: Callable[[Any], Any]) -> None:
    """A process that is deaf to Ctrl-C ends with the main one, however that does."""
    global _work
    _work = work
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _attempted_there(item: Item) -> Any:
    return _attempted(_work, item)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
