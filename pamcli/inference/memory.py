"""Memory: what is free, what this process has taken, and how errors of it are reported.

What cannot fit is refused before it is tried: a system that runs out of memory kills without a word.
"""

import ctypes
import math
import re
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import torch

from pamcli.errors import DeviceError

Result = TypeVar("Result")

MEMINFO = Path("/proc/meminfo")
OWN_CGROUP = Path("/proc/self/cgroup")
OWN_PAGES = Path("/proc/self/statm")
CGROUP = Path("/sys/fs/cgroup")
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of malloc.h
HINT = "use smaller images, or a device with more memory"


@contextmanager
def memory_errors(message: str, hint: str = HINT) -> Iterator[None]:
    """Where memory runs out all the same, or a GPU fails, raise DeviceError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if str(error).startswith("CUDA error") and not is_memory_error(error):
            raise DeviceError(f"the GPU fails: {first_line(error)}", "try `device` cpu") from error
        if not is_memory_error(error):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold the network's tensors
        raise DeviceError(message, hint) from error


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be taken on a device; None where the system does not say.

    On the CPU what Linux calls available, and no more than the limits of the container leave.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept  # torch keeps what it frees for its next use
    if device.type != "cpu" or not MEMINFO.exists():
        return None
    fields = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
    free = 1024 * int(fields["MemAvailable"].split()[0])
    return max(0, min([free, *_left_in_groups()]))


def readable(count: int | None, rounded: Callable[[float], int] = math.ceil) -> str:
    """Bytes in GB with two decimals, or in MB."""
    assert count is not None
    megabytes = rounded(count / 1e6)
    return f"{megabytes}MB" if megabytes < 1000 else f"{rounded(count / 1e7) / 100:.2f}GB"


def keep_freed_memory() -> None:
    """Have glibc keep all memory that is freed for its next use, as much as the program ever took at a time.

    Otherwise the layers of a network demand the same blocks from the system again and again, which takes a
    tenth to a third of the time. Elsewhere than on Linux nothing happens.
    """
    with suppress(OSError, AttributeError, TypeError):
        tell = ctypes.CDLL(None).mallopt
        for parameter, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**26)):
            tell(parameter, value)


def give_back_freed_memory() -> None:
    """Give freed memory back to the system, where glibc has kept it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def without_denormals() -> Iterator[None]:
    """Numbers too small for float32's full precision are 0: some processors take a hundred times as long.

    For this thread, and those that it begins.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def taken_memory(device: torch.device) -> int:
    """Bytes that this program has taken on a device."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        return int(OWN_PAGES.read_text().split()[1]) * resource.getpagesize()
    except OSError:  # the most so far is all that other systems say
        return peak_memory(device)


_PEAKS: dict[torch.device, int] = {}  # what was the most before a device's count of it began anew


def peak_memory(device: torch.device) -> int:
    """Bytes: the most that this process has held, of the GPU's memory where it computes there."""
    if device.type == "cuda":
        return max(torch.cuda.max_memory_allocated(device), _PEAKS.get(device, 0))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return max(most if sys.platform == "darwin" else most * 1024, _PEAKS.get(torch.device("cpu"), 0))


def remember_peak(device: torch.device | None = None) -> None:
    """Keep what `peak_memory` says, before the count of it begins anew. None: of this process's memory."""
    device = device or torch.device("cpu")
    _PEAKS[device] = peak_memory(device)


def gpu_peak_of(run: Callable[[], Result], device: torch.device) -> tuple[Result, int]:
    """Run something: what it returns, and the bytes of the GPU that it took beyond those held before."""
    remember_peak(device)
    torch.cuda.reset_peak_memory_stats(device)
    held = torch.cuda.memory_allocated(device)
    return run(), torch.cuda.max_memory_allocated(device) - held


def _left_in_groups() -> Iterator[int]:
    """What the limit of each control group around this program leaves, of either version of the interface."""
    try:
        memberships = OWN_CGROUP.read_text().splitlines()
    except OSError:
        memberships = ["0::/"]
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        if "memory" in controllers.split(","):
            roots, names = [CGROUP / "memory"], ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        elif not controllers:
            roots, names = [CGROUP, CGROUP / "unified"], ("memory.max", "memory.current", "")
        else:
            continue
        for root in roots:
            # Inside a container the path may be that outside of it, of which only the root is to be seen.
            group = root / path.strip("/")
            for each in (group, *group.parents):
                if each.is_relative_to(root) and (left := _left_in_group(each, *names)) is not None:
                    yield left


def _left_in_group(group: Path, limit: str, current: str, prefix: str) -> int | None:
    try:
        most = int((group / limit).read_text())
        used = int((group / current).read_text())
        kinds = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or one without a limit ("max")
        return None
    return most - used + int(kinds.get(f"{prefix}inactive_file", 0))  # copies of files give way


def first_line(error: Exception) -> str:
    """What an error says first."""
    return str(error).strip().partition("\n")[0]


def is_memory_error(error: Exception) -> bool:
    """Whether memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # The allocators of the CPU, of CUDA's libraries and of ONNX Runtime have no class of their own.
    telling = r"out of memory|alloc.*memory|memory.*alloc|alloc_failed|bad_alloc|available memory .*smaller"
    return re.search(telling, str(error), re.IGNORECASE | re.DOTALL) is not None
