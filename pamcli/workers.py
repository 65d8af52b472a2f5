"""Work on many items in several single-threaded processes."""

import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from pamcli.errors import DeviceError, InputError, PamError
from pamcli.limits import THREAD_COUNTS, usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

LOG = logging.getLogger("pamcli")
SUBMITTED_AHEAD = 3  # items per process that are submitted ahead
PATIENCE = 10.0  # time in which a process must end on request, s
BOOT = """import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from pamcli.workers import serve
serve()"""


def default_workers() -> int:
    return min(8, usable_cores())


def run_in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[Item, Result | InputError]]:
    """Yield every item with its result, or the InputError that it raised, in their order.

    `work`: a module-level function. Other exceptions stop everything after the current items.
    """
    do, count = partial(_attempt, work), min(workers, len(items))
    answers: Any = ((item, do(item)) for item in items)
    if count > 1:
        answers = answer_in_processes(do, items, count)
    with closing(answers):
        for item, answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, InputError):
                raise answer
            yield item, answer


def _attempt(work: Callable[[Item], Result], item: Item) -> Result | InputError:
    try:
        return work(item)
    except InputError as error:
        return error


def answer_in_processes(
    do: Callable[[Any], Any], items: Iterable[Item], count: int, *, prepares: bool = False
) -> Generator[tuple[Item, Any], None, None]:
    """Yield each item, in order, with what `do` returns or raises for it in another process.

    An item whose process ends gets a DeviceError; another process replaces it. prepares: `do(None)` prepares
    a process, and an error that it returns is raised.
    """
    helpers, reported = [_Helper(do, prepares) for _ in range(count)], set[str]()
    free: queue.SimpleQueue[_Helper] = queue.SimpleQueue()
    for helper in helpers:
        free.put(helper)

    def answer(item: Item) -> Any:
        helper = free.get()
        try:
            return helper.ask(item)
        finally:
            free.put(helper)

    waiting: deque[tuple[Item, Future[Any]]] = deque()
    left = iter(items)
    threads = ThreadPoolExecutor(count)
    try:
        while True:
            for item in islice(left, SUBMITTED_AHEAD * count - len(waiting)):
                waiting.append((item, threads.submit(answer, item)))
            if not waiting:
                return
            item, future = waiting.popleft()
            outcome, lines = future.result()
            for level, line in lines:
                if line not in reported:
                    reported.add(line)
                    LOG.log(level, line)
            yield item, outcome
    finally:
        for helper in helpers:
            helper.stop()
        threads.shutdown(cancel_futures=True)
        for helper in helpers:  # a thread may have started another process meanwhile
            helper.stop()


class _Helper:
    """A process that answers, and is replaced if it ends. Scripts need no `if __name__ == "__main__"`."""

    def __init__(self, do: Callable[[Any], Any], prepares: bool) -> None:
        self.do, self.prepares, self.stopped = do, prepares, False
        self.process: Any = None

    def ask(self, item: Any) -> Any:
        """Return the answer to an item, and its log lines. Raises the errors of preparing the process."""
        lines: tuple[tuple[int, str], ...] = ()
        try:
            if self.process is None:
                lines = self._start()
            answer, more = self._exchange(item)
            return answer, (*lines, *more)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            self._end()
            hint = "if memory is short, use fewer `workers`"
            return DeviceError("its process was killed from outside", hint), lines

    def _start(self) -> tuple[tuple[int, str], ...]:
        """Start and prepare the process; return the logged lines."""
        if self.stopped:
            raise EOFError
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("PAM_TRACEBACK") else subprocess.DEVNULL,
            env={**os.environ, **dict.fromkeys(THREAD_COUNTS, "1")},
            start_new_session=True,  # only the main process handles Ctrl-C
        )
        if self.stopped:
            raise EOFError
        self._send(sys.path)
        self._send(self.do)
        prepared, lines = self._exchange(None) if self.prepares else (None, ())
        if isinstance(prepared, PamError):
            raise prepared
        return tuple(lines)

    def _exchange(self, item: Any) -> Any:
        self._send(item)
        return pickle.load(self.process.stdout)

    def _send(self, message: Any) -> None:
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
                pipe.close()


def serve() -> None:
    """Answer until stdin is closed: the program of a `_Helper`."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print, and stdout holds the answers
    lines: list[tuple[int, str]] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append((record.levelno, record.getMessage()))

    LOG.handlers, LOG.propagate = [Collector()], False
    LOG.setLevel(logging.DEBUG)
    with suppress(EOFError, BrokenPipeError):
        do = pickle.load(questions)
        while True:
            item = pickle.load(questions)
            try:
                answer = do(item)
            except Exception as error:  # noqa: BLE001 - the main process decides
                answer = error
            pickle.dump((answer, tuple(lines)), answers)
            answers.flush()
            lines.clear()
