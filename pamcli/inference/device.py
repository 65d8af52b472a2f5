"""Choose device and precision, run programs on it, measure its memory, and report out-of-memory errors.

A program is a function of tensors. On a GPU it is recorded as a CUDA graph when it runs a second time with
inputs of the same size, and replayed from then on.

Work that does not fit is rejected in advance, because systems out of memory kill processes without a message.
"""

import ctypes
import logging
import math
import mmap
import os
import platform
import re
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamcli import limits
from pamcli.convolutions import use_faster_products
from pamcli.errors import DeviceError, UsageError
from pamcli.systems import get_peak_memory

LOG = logging.getLogger("pamcli")
Result = TypeVar("Result")
Program = Callable[..., tuple[Tensor, ...]]  # depends only on shapes and values of its inputs
Array = NDArray[Any]

OWN_PAGES = Path("/proc/self/statm")
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of malloc.h
HINT = "use smaller images, or a device with more memory"
CPUINFO = Path("/proc/cpuinfo")
MOST_GRAPHS = 8  # cached graphs at most, which share a memory pool; the least recently used is dropped
WARM_UPS = 2  # runs on a separate stream before recording, in which libraries choose algorithms
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Compute(NamedTuple):
    """A device with the precision of convolutions; attention and disparity are always float32."""

    device: torch.device
    precision: str  # either "fp32", "bf16" or "fp16"
    runtime: str = ""  # runtime, if other than torch

    @classmethod
    def choose(cls, device: str = "auto", precision: str = "auto", *, reduce: bool = False) -> "Compute":
        """Choose device and precision by name.

        `reduce`: auto is the fastest precision, judged by the device's features and not by timing, not fp32.
        """
        if precision not in ("auto", *PRECISIONS):
            raise UsageError(
                f"unknown precision {precision!r}, expected one of auto, {', '.join(PRECISIONS)}"
            )
        is_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
        chosen = torch.device("cpu") if is_cpu else _find_gpu(device)
        if precision == "fp16" and chosen.type == "cpu":
            raise DeviceError("fp16 requires a GPU", "use `precision` fp32 or bf16 on the CPU")
        if precision == "bf16" and chosen.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise DeviceError(f"{chosen} does not support bf16", "use `precision` fp16 or fp32")
        if precision == "auto":
            precision = "fp32"
            if reduce and chosen.type == "cuda":
                precision = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
            elif reduce and chosen.type == "cpu" and cpu_has_bf16():
                # AMX is faster than fp32; convolutions of Intel's AVX512-BF16 take 1.5 times as long.
                named = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else platform.processor()
                has_amx = getattr(torch.cpu, "_is_amx_tile_supported", bool)()
                precision = "bf16" if has_amx or "GenuineIntel" not in named else "fp32"
        return cls(chosen, precision)

    def describe(self) -> dict[str, str]:
        return {"device": self.runtime or str(self.device), "precision": self.precision}

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


def cpu_has_bf16() -> bool:
    """Return True if this CPU multiplies bf16 in hardware (AVX512-BF16, AMX) instead of slow emulation."""
    has_avx = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)  # older versions of torch lack both
    return bool(has_avx() or getattr(torch.cpu, "_is_amx_tile_supported", bool)())


def _find_gpu(text: str) -> torch.device:
    if text == "auto":  # Apple GPUs must be named, because they are untested
        try:
            return torch.device("cuda", torch.cuda.current_device())
        except RuntimeError as error:  # for example in use by another program
            raise DeviceError(f"cannot use the GPU: {first_line(error)}", "use `device` cpu") from error
    if not re.fullmatch(r"mps|cuda(:(0|[1-9][0-9]?))?", str(text)):
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
def prepare_arithmetic(device: torch.device) -> Iterator[None]:
    """Flush denormals to 0 in this thread, and on the CPU use deterministic algorithms, for training."""
    # Some CPUs compute denormals a hundred times slower; determinism costs nothing on a CPU.
    before = torch.are_deterministic_algorithms_enabled()
    filling = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_flush_denormal(True)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
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
    with suppress(OSError, AttributeError, TypeError):  # other C libraries; Windows: TypeError
        library = ctypes.CDLL(None)
        for parameter, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**26)):
            library.mallopt(parameter, value)


def release_freed_memory() -> None:
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


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


def run_program(
    program: Program,
    *inputs: Array,
    compute: Compute,
    graphs: "CudaGraphs | None",
    key: Hashable,
    verify: bool = False,
) -> list[Array]:
    """Run a program on arrays (C order) without gradients; on a GPU, `key` and sizes identify it.

    `verify`: compare the first replay of a graph with the eager run, for foreign programs.
    """
    tensors = tuple(map(torch.from_numpy, inputs))
    with torch.inference_mode():
        if graphs is not None:
            return list(map(Tensor.numpy, graphs.run(program, key, tensors, verify)))
        if compute.device.type != "cpu":
            tensors = tuple(each.to(compute.device) for each in tensors)
        with use_faster_products():
            outputs = program(*tensors)
        arrays = []
        for each in outputs:  # copies, as crops would keep whole tensors in memory
            arrays.append(np.array(each.cpu().numpy(), order="C"))
        return arrays


@dataclass
class _Graph:
    """A recorded program, the tensors that it reads, and those that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class CudaGraphs:
    """Runs programs on a GPU; each is recorded when it runs a second time with inputs of the same size."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self._graphs: OrderedDict[Hashable, _Graph | None] = OrderedDict()
        """Graphs by program and size; None if it ran only once or cannot be recorded."""
        self._unrecordable: set[Hashable] = set()
        self._pool: Any = None
        self._lock = threading.RLock()
        """Held while the GPU works, because threads share the memory of graphs and the precision."""

    def run(self, program: Program, key: Hashable, inputs: tuple[Tensor, ...], verify: bool) -> list[Tensor]:
        """Return the outputs in CPU memory; `verify`: compare the first replay with the eager run."""
        with self._lock, self.compute.full_precision(), torch.cuda.device(self.compute.device):
            sizes = tuple((each.shape, each.dtype) for each in inputs)
            return self._run(program, (key, sizes), inputs, verify)

    def forget(self) -> None:
        with self._lock:
            self._graphs.clear()
            self._pool = None
        torch.cuda.empty_cache()

    def _run(
        self, program: Program, key: Hashable, tensors: tuple[Tensor, ...], verify: bool
    ) -> list[Tensor]:
        known = self._graphs.get(key)
        if known is None:
            on_device = tuple(each.to(self.compute.device, non_blocking=True) for each in tensors)
            outputs = program(*on_device)
            if key in self._graphs and key not in self._unrecordable:
                known = self._record(program, key, on_device, outputs if verify else None)
            self._graphs[key] = known
        else:
            for kept, new in zip(known.inputs, tensors, strict=True):
                kept.copy_(new, non_blocking=True)
            known.graph.replay()
            outputs = known.outputs
        self._graphs.move_to_end(key)
        while len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)
        pinned = [torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in outputs]
        for here, there in zip(pinned, outputs, strict=True):
            here.copy_(there, non_blocking=True)
        torch.cuda.current_stream().synchronize()  # all at once
        return pinned

    def _record(
        self, program: Program, key: Hashable, inputs: tuple[Tensor, ...], expected: tuple[Tensor, ...] | None
    ) -> _Graph | None:
        """Record a program; return None if that is not possible, which is tried only once."""
        try:
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    program(*inputs)
            torch.cuda.current_stream().wait_stream(side)
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                outputs = program(*inputs)
            if expected is not None:
                graph.replay()
                if not all(
                    torch.allclose(a.float(), b.float(), 1e-3, 1e-3, equal_nan=True)
                    for a, b in zip(outputs, expected, strict=True)
                ):
                    raise RuntimeError("the replayed graph returns other results")
        except (RuntimeError, ValueError) as error:
            torch.cuda.synchronize()
            if is_memory_error(error):
                raise
            LOG.debug("runs without a CUDA graph: %s", str(error).partition("\n")[0])
            self._unrecordable.add(key)
            return None
        return _Graph(graph, inputs, outputs)
