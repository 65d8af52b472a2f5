"""A batch whose loading, computing and saving overlap, so that the network sets the pace. No torch here."""

import itertools
import queue
import threading
import traceback
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from pamcli.errors import DeviceError, PamError, of_the_system
from pamcli.inference import PAIRS_AT_ONCE

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")
Computed = TypeVar("Computed")
Saved = TypeVar("Saved")


def run_overlapped(
    jobs: Iterable[Item],
    load: Callable[[Item], Loaded],
    compute: Callable[[Item, Loaded], Computed],
    save: Callable[[Item, Computed], Saved],
) -> Generator[tuple[Item, Saved | PamError], None, None]:
    """Run three steps for every job and yield, in their order, each with what was saved or went wrong.

    `load` runs in one thread, which also iterates `jobs` (a slow producer holds up nobody), `compute` in the
    caller's, `save` in a third. A step that raises ends its own job only. What `jobs` itself raises is raised
    once the jobs before it are done. When the caller stops early or is interrupted, what is being saved is
    saved whole, and nothing after it.
    """
    # (urgency, order, event, job, value): what is saved is reported before the next pair is computed.
    events: queue.PriorityQueue[tuple[int, int, str, Any, Any]] = queue.PriorityQueue()
    order = itertools.count()
    computed: queue.SimpleQueue[tuple[Any, Any] | None] = queue.SimpleQueue()
    room = threading.Semaphore(PAIRS_AT_ONCE)
    stopped = threading.Event()
    loading_one = threading.Lock()

    def load_all() -> None:
        failure = None
        try:
            for job in jobs:
                room.acquire()
                with loading_one:
                    if stopped.is_set():
                        return
                    loaded = attempt(load, job)
                events.put((1, next(order), "loaded", job, loaded))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            failure = error
        events.put((1, next(order), "all loaded", None, failure))

    def save_all() -> None:
        for job, value in iter(computed.get, None):
            if stopped.is_set():
                return
            events.put((0, next(order), "saved", job, attempt(save, job, value)))
            room.release()

    # Daemons: a producer that never ends, or a pipe that nobody reads, must not outlive the program.
    threading.Thread(target=load_all, name="load", daemon=True).start()
    saver = threading.Thread(target=save_all, name="save", daemon=True)
    saver.start()
    failure, loading, unsaved = None, True, 0
    try:
        while loading or unsaved:
            try:
                _, _, event, job, value = events.get(timeout=1)
            except queue.Empty:  # time to see a signal that came in the moment before the waiting began
                continue
            if event == "loaded":
                computed.put((job, attempt(compute, job, value)))
                unsaved += 1
            elif event == "saved":
                unsaved -= 1
                yield job, value
            else:
                loading, failure = False, value
    finally:
        stopped.set()
        room.release()
        computed.put(None)
        saver.join()
        # The interpreter aborts where it ends while a thread is inside a C++ library, so let a picture be
        # decoded; but one that is waited for (on stdin) may never come.
        loading_one.acquire(timeout=1)
    if failure is not None:
        raise failure


def attempt(step: Callable[..., Any], *arguments: Any) -> Any:
    """A step's result, or its error as a value; an error that comes in as an argument goes straight on."""
    if isinstance(arguments[-1], PamError):
        return arguments[-1]
    try:
        return step(*arguments)
    except PamError as error:
        return _without_frames(error)
    except MemoryError:
        return DeviceError("not enough memory for this pair", "reduce the pictures")
    except Exception as error:  # noqa: BLE001 - a batch goes on past any bad pair
        said = f"unexpected {type(error).__name__}: {error}"
        unexpected = of_the_system(error) or PamError(said, "PAM_TRACEBACK=1 shows where")
        unexpected.__cause__ = error
        traceback.clear_frames(error.__traceback__)  # they would keep the pair
        return unexpected


def _without_frames(error: PamError) -> PamError:
    """The error without its traceback, whose frames would keep the pair and what was computed of it.

    The frames are not cleared: an error that came with its job names that of the jobs' generator, which that
    would end.
    """
    part: BaseException | None = error
    while part is not None:
        part.__traceback__ = None
        part = part.__cause__ or part.__context__
    return error
