"""Apply a function to many items in several processes."""

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
from pamcli.limits import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")


def default_workers() -> int:
    return min(8, usable_cores())


def run_in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Result | InputError]]:
    """Yield every item with its result, or the InputError that it raised, in order of completion."""
    # `work`: a module-level function. Other exceptions stop everything after the current items.
    if workers <= 1 or len(items) <= 1:
        for item in items:
            yield item, _attempt(work, item)
        return
    # Forked copies would lack the threads of this program (the decoders', torch's).
    context = multiprocessing.get_context("spawn")
    count = min(workers, len(items))
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(work,))
    with block_ctrl_c():
        waiting = {pool.submit(_attempt_in_worker, item): item for item in items}
    try:
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool:
        raise DeviceError(
            "a worker process was killed, perhaps for lack of memory", "use fewer `workers`"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def block_ctrl_c() -> Iterator[None]:
    """Block SIGINT in processes started meanwhile; this process receives it afterwards."""
    # Only the main process decides about it; a handler would be too late, after the imports of a start.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _attempt(work: Callable[[Item], Result], item: Item) -> Result | InputError:
    try:
        return work(item)
    except InputError as error:
        return error


_work: Callable[[Any], Any]  # the function that this process applies to each item; it is sent once


def _begin(work: Callable[[Any], Any]) -> None:
    """Set up a worker process that ignores Ctrl-C and ends with the main process."""
    global _work
    _work = work
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _attempt_in_worker(item: Item) -> Any:
    return _attempt(_work, item)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
