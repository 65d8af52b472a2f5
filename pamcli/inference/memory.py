"""Refuse what cannot fit before it is tried: a system that runs out of memory kills without a word."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from pamcli.errors import DeviceError

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
HINT = "reduce the pictures, or use a device with more memory"


@contextmanager
def enough_memory(needed: int, width: int, height: int, device: torch.device) -> Iterator[None]:
    """Run the network on a pair of `width` x `height` px that takes about `needed` bytes at its peak.

    Raises DeviceError before it starts where less is free, and where memory runs out all the same.
    """
    free = free_memory(device)
    if free is not None and needed > free:
        raise DeviceError(
            f"a pair of {width} x {height} pixels needs about {needed / 1e9:.1f} GB of memory, "
            f"{free / 1e9:.1f} GB are free",
            HINT,
        )
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_memory_error(error):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold the network's tensors
        raise DeviceError(f"not enough memory for a pair of {width} x {height} pixels", HINT) from error


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be taken on a device; None where the system does not say.

    On the CPU what Linux calls available, and no more than the limit of the container leaves.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept  # torch keeps what it frees for its next use
    if device.type != "cpu" or not MEMINFO.exists():
        return None
    fields = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
    free = 1024 * int(fields["MemAvailable"].split()[0])
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
        kinds = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return free
    used -= int(kinds.get("inactive_file", 0))  # copies of files, which give way
    return min(free, max(limit - used, 0))


def is_memory_error(error: MemoryError | RuntimeError) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # The allocators of the CPU and of CUDA's libraries have no class of their own.
    telling = r"out of memory|alloc.*memory|memory.*alloc|alloc_failed"
    return re.search(telling, str(error), re.IGNORECASE | re.DOTALL) is not None
