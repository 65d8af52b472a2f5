"""Refuse what cannot fit before it is tried: a system that runs out of memory kills without a word.

A network computes as many rows at a time as pay, and no more than fit.
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
from pamcli.inference import PAIRS_AT_ONCE
from pamcli.streaming.footprint import Footprint

Result = TypeVar("Result")

MEMINFO = Path("/proc/meminfo")
OWN_CGROUP = Path("/proc/self/cgroup")
OWN_PAGES = Path("/proc/self/statm")
CGROUP = Path("/sys/fs/cgroup")
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4  # of malloc.h
KEPT = 2**26, 2**29
LARGEST_BLOCK = 2**25
"""Bytes: of freed memory that is kept; and of blocks that may be cut from it, the most that glibc takes."""
COMFORTABLE = 0.7
"""Share of the free memory that is taken without being asked for more."""
HINT = "reduce the pictures, or use a device with more memory"


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


def choose_strip(
    footprint: Footprint,
    *,
    width: int,
    height: int,
    pictures: int,
    device: torch.device,
    max_memory: int | None = None,
    taken: int = 0,
) -> int:
    """Rows to compute at a time of a pair of `width` x `height` px: all, or as many as pay, or as fit.

    `max_memory`: bytes that the program may take in all, of which it had `taken` some before it was given
    pictures; those of a pair take `pictures`, and a batch holds several pairs. Raises DeviceError where even
    the thinnest strip needs more than that, or than is free.
    """
    least, most, multiple = footprint.rows
    free = free_memory(device)
    allowed = None if max_memory is None else max_memory - taken - PAIRS_AT_ONCE * pictures
    needed = min(footprint.peak(least), footprint.peak(most))
    if allowed is not None and needed > allowed:
        raise DeviceError(
            f"a pair of {width} x {height} pixels does not fit into {readable(max_memory)} of memory",
            f"`max_memory` {readable(taken + PAIRS_AT_ONCE * pictures + needed)} is the least that would do",
        )
    if free is not None and needed > free:
        raise DeviceError(
            f"a pair of {width} x {height} pixels needs at least {readable(needed)} of memory, "
            f"{readable(free, math.floor)} are free",
            HINT,
        )
    limits = [
        limit for limit in (allowed, None if free is None else int(COMFORTABLE * free)) if limit is not None
    ]
    strip = most
    while strip > least and any(footprint.peak(strip) > limit for limit in limits):
        strip = max(least, (strip - 1) // multiple * multiple)
    # A small picture in strips takes more than as a whole.
    return strip if footprint.peak(strip) < footprint.peak(most) else most


def readable(count: int | None, rounded: Callable[[float], int] = math.ceil) -> str:
    """Bytes in GB with two decimals, or in MB."""
    assert count is not None
    megabytes = rounded(count / 1e6)
    return f"{megabytes}MB" if megabytes < 1000 else f"{rounded(count / 1e7) / 100:.2f}GB"


def keep_freed_memory(allowed: int | None = None) -> None:
    """Have glibc keep freed memory, and use it again: a tenth of what is `allowed`, 64 to 512 MB.

    Else it is given back and demanded anew with every layer, which took a third of the time; with 64 MB alone
    7 % of a pair of 1248 x 384 px. Elsewhere than on Linux nothing happens.
    """
    least, most = KEPT
    kept = least if allowed is None else max(least, min(allowed // 10, most))
    if kept > _told.get(_TRIM_THRESHOLD, 0):  # what was asked for before may be more
        _tell_malloc({_MMAP_THRESHOLD: LARGEST_BLOCK, _TRIM_THRESHOLD: kept})


def keep_all_memory() -> None:
    """Have glibc keep all memory that is freed, as much as the program ever took at a time, for its next use.

    For training, whose layers ask for the same blocks again and again, larger ones than `keep_freed_memory`
    has it keep. Elsewhere than on Linux nothing happens.
    """
    _tell_malloc({_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 2**28})


def give_back_freed_memory() -> None:
    """Give freed memory back to the system, where glibc has kept it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class GivingBack:
    """Progress of a large pair in strips, on whose way freed memory is given back ever again.

    Else the gaps between rows that are held add up: at 3840 x 2160 px to 60 MB of 1 GB, for 4 % of the time.
    """

    LARGE, EVERY = 4_000_000, 1_000_000
    """Pixels of a pair for which it is done, and after which."""

    def __init__(self, told: Callable[[float], None], pixels: int) -> None:
        self.told, self.pixels, self._done = told, pixels, 0.0

    def __call__(self, share: float) -> None:
        """Tell what share of the work is done."""
        self.told(share)
        due = share == 1 or (share - self._done) * self.pixels >= self.EVERY
        if self.pixels > self.LARGE and due:
            give_back_freed_memory()
            self._done = share


_told: dict[int, int] = {}


def _tell_malloc(settings: dict[int, int]) -> None:
    _told.update(settings)
    with suppress(OSError, AttributeError, TypeError):
        tell = ctypes.CDLL(None).mallopt
        for parameter, value in settings.items():
            tell(parameter, value)


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
