"""Limits of the system on address space and threads, looked at before libraries that would abort there.

Where OpenBLAS, OpenMP or C++ cannot start a thread or allocate, they print or end the process on their own,
and no Python catches that. So the command line asks first, when one of them is about to be imported.
"""

import math
import os
import sys
import threading
from contextlib import suppress
from importlib.abc import MetaPathFinder
from typing import Any

from pamcli.errors import DeviceError

NEEDED = {"numpy": 500, "cv2": 800, "torch": 1300}
"""MB of address space that a program with the library takes at least, on one thread."""
OF_A_THREAD = 250
"""MB of address space for each further thread: stacks and heaps of several libraries."""
OWN, KINDS = 4, 3
"""Threads of pam itself, and libraries with threads of their own on each core."""
_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


class Watch(MetaPathFinder):
    """Calls `require_room` when a library of `NEEDED` is first imported; finds nothing itself."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """See `MetaPathFinder`. Raises DeviceError as `require_room` does."""
        if fullname in NEEDED:
            require_room(fullname)


def require_room(library: str) -> None:
    """Let libraries use no more threads than the system allows. Raises DeviceError: it allows too few."""
    cores = int(text) if (text := os.environ.get(_COUNTS[0], "")).isdecimal() else os.cpu_count() or 1
    limit = _address_space()
    if limit < NEEDED[library]:
        said = f"{NEEDED[library]:,} MB of address space are needed, and {limit:,} MB allowed"
        raise DeviceError(f"not enough memory: {said}", "ulimit -v sets the limit")
    probed = OWN + KINDS * min(cores, 64)
    # Of little address space, each thread that is tried would take some.
    started = (
        _started(probed) if limit == math.inf else OWN + int(limit - NEEDED["torch"]) // OF_A_THREAD * KINDS
    )
    if limit == math.inf and started < OWN:
        raise DeviceError("the system allows no more threads", "ulimit -u, or the container, limits them")
    if started < probed:
        os.environ.update(dict.fromkeys(_COUNTS, str(max(1, (started - OWN) // KINDS))))


def _address_space() -> float:
    """Return the MB of memory that this process may map."""
    if sys.platform == "win32":
        return math.inf
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit // 10**6


def _started(most: int) -> int:
    """Count how many threads can be started at once, up to a number."""
    end, threads = threading.Event(), list[threading.Thread]()
    with suppress(RuntimeError, MemoryError):
        while len(threads) < most:
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            threads.append(thread)
    end.set()
    for thread in threads:
        thread.join()
    return len(threads)
