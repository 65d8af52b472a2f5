"""Measure the cores and memory that system and container allow, before libraries meet those limits."""

import math
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from pamcli.errors import DeviceError
from pamcli.systems import count_cores, get_address_space

NEEDED = {"numpy": 500, "cv2": 800, "torch": 1300}  # address space on one thread at least, MB
OF_A_THREAD = 250  # address space for each further thread, MB
OWN, KINDS = 4, 3  # threads of pam itself, and number of libraries with threads on each core
MEMINFO, OWN_CGROUP, CGROUP = map(Path, ("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup"))
THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


class ImportWatch(MetaPathFinder):
    """Calls `require_room` before a library of `NEEDED` is first imported."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname in NEEDED:
            require_room(fullname)


def require_room(library: str) -> None:
    """Limit the threads of libraries to those that the system allows; raise DeviceError if too few."""
    text = os.environ.get(THREAD_COUNTS[0], "")
    default, cores = (int(text),) * 2 if text.isdecimal() else (count_cores(), usable_cores())
    limit = get_address_space()
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
    threads = cores if started >= probed else max(1, (started - OWN) // KINDS)
    if threads < default:
        os.environ.update(dict.fromkeys(THREAD_COUNTS, str(threads)))


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


def usable_cores() -> int:
    """Count the cores that this program may use, within the CPU limit of its container."""
    cores = count_cores()
    for group, is_v1 in _iterate_groups("cpu"):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if is_v1 else ("cpu.max",)
        with suppress(OSError, ValueError):  # no such group, or no limit ("max")
            quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
            if quota > 0:
                cores = min(cores, max(1, quota // period))
    return cores


def get_free_memory() -> int | None:
    """Return the free memory within the limits of the container, bytes; None on systems other than Linux."""
    if not MEMINFO.exists():
        return None
    free = 1024 * int(MEMINFO.read_text().split("MemAvailable:")[1].split()[0])
    for group, is_v1 in _iterate_groups("memory"):
        limit, current, prefix = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            if is_v1
            else ("memory.max", "memory.current", "")
        )
        with suppress(OSError, ValueError):
            most, used = int((group / limit).read_text()), int((group / current).read_text())
            kinds = dict(map(str.split, (group / "memory.stat").read_text().splitlines()))
            # The file cache is reclaimable.
            free = min(free, most - used + int(kinds.get(f"{prefix}inactive_file", 0)))
    return max(0, free)


def _iterate_groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """Yield the folder of each control group of this program, and whether it is one of cgroup v1."""
    try:
        memberships = OWN_CGROUP.read_text().splitlines()
    except OSError:
        memberships = ["0::/"]
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        is_v1 = controller in controllers.split(",")
        if controllers and not is_v1:
            continue
        for root in [CGROUP / controller] if is_v1 else [CGROUP, CGROUP / "unified"]:
            # Inside a container only the root may be visible, while the path is that outside.
            group = root / path.strip("/")
            for each in (group, *group.parents):
                if each.is_relative_to(root):
                    yield each, is_v1
