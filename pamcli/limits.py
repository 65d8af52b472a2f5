"""Check limits on address space and threads before libraries are imported that end the process at them."""

import math
import os
import sys
import threading
from contextlib import suppress
from importlib.abc import MetaPathFinder
from typing import Any

from pamcli.errors import DeviceError

NEEDED = {"numpy": 500, "cv2": 800, "torch": 1300}  # address space on one thread at least, MB
OF_A_THREAD = 250  # address space for each further thread, MB
OWN, KINDS = 4, 3  # threads of pam itself, and number of libraries with threads on each core
_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


class ImportWatch(MetaPathFinder):
    """Calls `require_room` before a library of `NEEDED` is first imported."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname in NEEDED:
            require_room(fullname)


def require_room(library: str) -> None:
    """Limit the threads of libraries to those that the system allows; raise DeviceError if too few."""
    cores = int(text) if (text := os.environ.get(_COUNTS[0], "")).isdecimal() else os.cpu_count() or 1
    limit = _address_space()
    if limit < NEEDED[library]:
        sizes = f"{NEEDED[library]:,} MB of address space are required, {limit:,} MB allowed"
        raise DeviceError(f"not enough memory: {sizes}", "raise the limit of ulimit -v")
    probed = OWN + KINDS * min(cores, 64)
    if limit == math.inf:
        started = _count_threads(probed)
    else:  # trying threads would use up the address space
        started = OWN + int(limit - NEEDED["torch"]) // OF_A_THREAD * KINDS
    if limit == math.inf and started < OWN:
        raise DeviceError("cannot start more threads", "raise the limit of ulimit -u, or of the container")
    if started < probed:
        os.environ.update(dict.fromkeys(_COUNTS, str(max(1, (started - OWN) // KINDS))))


def _address_space() -> float:
    if sys.platform == "win32":
        return math.inf
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit // 10**6


def _count_threads(most: int) -> int:
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
