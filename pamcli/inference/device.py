"""Choose the device and precision of computation, measure its memory, and report out-of-memory errors.

Work that does not fit is rejected in advance, because systems out of memory kill processes without a message.
"""

import logging
import math
import mmap
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from pamcli import limits
from pamcli.errors import DeviceError, UsageError
from pamcli.systems import call_c_library, get_peak_memory

LOG = logging.getLogger("pamcli")
Result = TypeVar("Result")

OWN_PAGES = Path("/proc/self/statm")
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of malloc.h
HINT = "use smaller images, or a device with more memory"
CPUINFO = Path("/proc/cpuinfo")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Compute:
    """A device with the precision of convolutions; attention and disparity are always float32."""

    device: torch.device
    precision: str  # either "fp32", "bf16" or "fp16"
    runtime: str = ""  # runtime, if other than torch

    @classmethod
    def choose(cls, device: str = "auto", precision: str = "auto", *, reduce: bool = False) -> "Compute":
        """Choose device and precision by name; `reduce`: auto is the fastest precision, not fp32."""
        if precision not in ("auto", *PRECISIONS):
            raise UsageError(
                f"unknown precision {precision!r}, expected one of auto, {', '.join(PRECISIONS)}"
            )
        chosen = _parse_device(device)
        if precision == "fp16" and chosen.type == "cpu":
            raise DeviceError("fp16 requires a GPU", "use `precision` fp32 or bf16 on the CPU")
        if precision == "bf16" and chosen.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise DeviceError(f"{chosen} does not support bf16", "use `precision` fp16 or fp32")
        if precision == "auto":
            precision = hardware_precision(chosen) if reduce else "fp32"
        return cls(chosen, precision)

    def describe(self) -> dict[str, str]:
        return {"device": self.runtime or str(self.device), "precision": self.precision}

    def peak_memory(self) -> int:
        """Return the peak memory of this process, bytes: GPU memory for a CUDA GPU."""
        return peak_memory(self.device)

    def full_precision(self) -> AbstractContextManager[object]:
        """Compute float32 in full precision: torch would use TF32 in GPU convolutions."""
        if self.device.type == "cuda":
            return torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
        return nullcontext()

    def autocast(self) -> AbstractContextManager[object]:
        """Run a network with float32 weights in this precision, for training."""
        if self.precision == "fp32":
            return self.full_precision()
        return torch.autocast(self.device.type, PRECISIONS[self.precision])


@cache
def warn_of_spinning_threads() -> None:
    """Log once that PyTorch was imported before pam, so that its threads spin while they wait."""
    if sys.platform == "linux" and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & {*os.environ}:
        LOG.warning(
            "PyTorch was imported before pamcli, so its threads spin while they wait, which is slow beside "
            "other programs: import pamcli first, or set GOMP_SPINCOUNT=1000 before Python starts"
        )


def _has_cpu_feature(name: str) -> bool:
    return bool(getattr(torch.cpu, f"_is_{name}_supported", bool)())


def cpu_has_bf16() -> bool:
    """Return True if this CPU multiplies bf16 in hardware (AVX512-BF16, AMX) instead of slow emulation."""
    return _has_cpu_feature("avx512_bf16") or _has_cpu_feature("amx_tile")


def hardware_precision(device: torch.device) -> str:
    """Return the fastest precision, at least 16 bits, judged by the device's features and not by timing."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if device.type != "cpu" or not cpu_has_bf16():
        return "fp32"
    # AMX is faster than fp32. Intel's AVX512-BF16 is not: its convolutions take 1.5 times as long.
    named = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else platform.processor()
    return "bf16" if _has_cpu_feature("amx_tile") or "GenuineIntel" not in named else "fp32"


def _parse_device(text: str) -> torch.device:
    if text == "auto":
        if not torch.cuda.is_available():  # Apple GPUs must be named, because they are untested
            return torch.device("cpu")
        try:
            return torch.device("cuda", torch.cuda.current_device())
        except RuntimeError as error:  # for example in use by another program
            raise DeviceError(f"cannot use the GPU: {first_line(error)}", "use `device` cpu") from error
    if not re.fullmatch(r"cpu|mps|cuda(:(0|[1-9][0-9]?))?", str(text)):
        what = f"unknown device {text!r}, expected one of auto, cpu, cuda, cuda:N, mps"
        raise UsageError(what, "tensorrt, openvino and coreml are for .onnx files only")
    device = torch.device(text)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise DeviceError(f"this machine has no {text} ({count} CUDA devices)", "use `device` cpu")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("this machine has no mps device", "use `device` cpu")
    return device


@contextmanager
def deterministic_algorithms(device: torch.device) -> Iterator[None]:
    """Use deterministic algorithms on the CPU, where they cost nothing."""
    if device.type != "cpu":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    filling = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = filling  # type: ignore[attr-defined]


@contextmanager
def catch_memory_errors(message: str, hint: str = HINT) -> Iterator[None]:
    """Convert out-of-memory and GPU errors into DeviceError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if str(error).startswith("CUDA error") and not is_memory_error(error):
            raise DeviceError(f"the GPU failed: {first_line(error)}", "try `device` cpu") from error
        if not is_memory_error(error):
            raise
        traceback.clear_frames(error.__traceback__)  # frames hold the network's tensors
        raise DeviceError(message, hint) from error


def get_free_memory(device: torch.device) -> int | None:
    """Return the free bytes of a device, on CPUs within the container's limits; None if unknown."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept  # torch reuses the memory that it keeps
    return limits.get_free_memory() if device.type == "cpu" else None


def format_bytes(count: float) -> str:
    """Format bytes in GB with two decimals, or in MB."""
    megabytes = math.ceil(count / 1e6)
    return f"{megabytes}MB" if megabytes < 1000 else f"{math.ceil(count / 1e7) / 100:.2f}GB"


def keep_freed_memory() -> None:
    """Make glibc keep freed memory: layers request the same blocks repeatedly, 10 to 33 % of the time."""
    for parameter, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**26)):
        call_c_library("mallopt", parameter, value)


def release_freed_memory() -> None:
    call_c_library("malloc_trim", 0)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush denormal numbers to 0 in this thread; some CPUs compute them a hundred times slower."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def get_used_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        return int(OWN_PAGES.read_text().split()[1]) * mmap.PAGESIZE
    except OSError:  # other systems report only the peak
        return peak_memory(device)


_PEAKS: dict[torch.device, int] = {}  # peaks before the counters were reset, by device


def peak_memory(device: torch.device) -> int:
    """Return the peak memory of this process, bytes: GPU memory for a GPU, else that of the process.

    0 = unknown, on Windows.
    """
    if device.type == "cuda":
        return max(torch.cuda.max_memory_allocated(device), _PEAKS.get(device, 0))
    return max(get_peak_memory(), _PEAKS.get(torch.device("cpu"), 0))


def remember_peak(device: torch.device | None = None) -> None:
    """Save `peak_memory` before its counter is reset; None = memory of this process."""
    device = device or torch.device("cpu")
    _PEAKS[device] = peak_memory(device)


def measure_gpu_peak(run: Callable[[], Result], device: torch.device) -> tuple[Result, int]:
    """Run a function; return its result and peak GPU memory, bytes beyond what was in use before."""
    remember_peak(device)
    torch.cuda.reset_peak_memory_stats(device)
    held = torch.cuda.memory_allocated(device)
    return run(), torch.cuda.max_memory_allocated(device) - held


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def is_memory_error(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # The allocators of the CPU, CUDA's libraries and ONNX Runtime have no specific classes.
    telling = r"out of memory|alloc.*memory|memory.*alloc|alloc_failed|bad_alloc|available memory .*smaller"
    return re.search(telling, str(error), re.IGNORECASE | re.DOTALL) is not None
