"""The memory that a method takes while it works on a pair, beyond what the process held before."""

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_of(run: Callable[[], Result], *, gpu: Any = None) -> tuple[Result, int | None]:
    """Run something: what it returns, and the bytes that it took at most beyond those held before.

    gpu: a torch.device, whose memory counts instead of this process's. None: this system does not tell it, as
    others than Linux.
    """
    from pamcli.inference.memory import gpu_peak_of, remember_peak

    if gpu is not None:
        return gpu_peak_of(run, gpu)
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)  # what is free but kept would be taken again unseen
    remember_peak()
    try:
        _RESET.write_text("5")  # the peak becomes what is held now
        held = _status("VmRSS")
    except (OSError, ValueError):
        return run(), None
    result = run()
    return result, max(0, _status("VmHWM") - held)


def _status(name: str) -> int:
    """Read a number of bytes. Raises OSError, ValueError: it is not told."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"no {name}")
    return int(found[1]) * 1024
