"""Choose the device and precision of computation, and deterministic algorithms."""

import platform
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from pamcli.errors import DeviceError, UsageError
from pamcli.inference.memory import first_line, peak_memory

CPUINFO = Path("/proc/cpuinfo")

PRECISIONS = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True)
class Compute:
    """A device with the precision of convolutions; attention and disparity are always float32."""

    device: torch.device
    precision: str
    """Either "fp32", "bf16" or "fp16"."""
    runtime: str = ""
    """Runtime, if other than torch."""

    @classmethod
    def choose(cls, device: str = "auto", precision: str = "auto", *, reduce: bool = False) -> "Compute":
        """Choose device and precision by name.

        "auto" means the first GPU, else the CPU, and fp32, or with `reduce` the fastest precision of the
        device. Raises UsageError: unknown value; DeviceError: this machine lacks the device, or the device
        lacks the precision.
        """
        if precision not in ("auto", *PRECISIONS):
            raise UsageError(
                f"unknown precision {precision!r}, expected one of auto, {', '.join(PRECISIONS)}"
            )
        chosen = _device(device)
        if precision == "fp16" and chosen.type == "cpu":
            raise DeviceError("fp16 requires a GPU", "use `precision` fp32 or bf16 on the CPU")
        if precision == "bf16" and chosen.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise DeviceError(f"{chosen} does not support bf16", "use `precision` fp16 or fp32")
        if precision == "auto":
            precision = hardware_precision(chosen) if reduce else "fp32"
        return cls(chosen, precision)

    def describe(self) -> dict[str, str]:
        """Return the names of device and precision."""
        return {"device": self.runtime or str(self.device), "precision": self.precision}

    def peak_memory(self) -> int:
        """Return the peak memory of this process, bytes: GPU memory for a CUDA GPU."""
        return peak_memory(self.device)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of weights and feature maps."""
        return PRECISIONS[self.precision]

    def full_precision(self) -> AbstractContextManager[object]:
        """Compute float32 in full precision: torch would use TF32 in GPU convolutions."""
        if self.device.type == "cuda":
            return torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
        return nullcontext()

    def autocast(self) -> AbstractContextManager[object]:
        """Run a network with float32 weights in this precision, for training."""
        if self.precision == "fp32":
            return self.full_precision()
        return torch.autocast(self.device.type, self.dtype)


def _has_cpu_features(*features: str) -> bool:
    return any(getattr(torch.cpu, f"_is_{each}_supported", lambda: False)() for each in features)


def cpu_has_bf16() -> bool:
    """Return True if this CPU multiplies bf16 in hardware (AVX512-BF16, AMX) instead of slow emulation."""
    return _has_cpu_features("avx512_bf16", "amx_tile")


def is_cpu_faster_in_bf16() -> bool:
    """Return True if bf16 is faster than fp32 on this CPU: AMX, or AVX512-BF16 of other makers than Intel.

    Intel's AVX512-BF16 has the throughput of fp32: convolutions take 1.5 times as long.
    """
    named = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else platform.processor()
    return cpu_has_bf16() and (_has_cpu_features("amx_tile") or "GenuineIntel" not in named)


def hardware_precision(device: torch.device) -> str:
    """Return the fastest precision, at least 16 bits, judged by the device's features and not by timing."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return "bf16" if device.type == "cpu" and is_cpu_faster_in_bf16() else "fp32"


def _device(text: str) -> torch.device:
    if text == "auto":
        if not torch.cuda.is_available():  # Apple GPUs must be named, because they are untested
            return torch.device("cpu")
        try:
            return torch.device("cuda", torch.cuda.current_device())
        except RuntimeError as error:  # for example in use by another program
            raise DeviceError(f"cannot use the GPU: {first_line(error)}", "use `device` cpu") from error
    if not re.fullmatch(r"cpu|mps|cuda(:(0|[1-9][0-9]?))?", text):
        raise UsageError(
            f"unknown device {text!r}, expected one of auto, cpu, cuda, cuda:N, mps",
            "tensorrt, openvino and coreml are for .onnx files only",
        )
    device = torch.device(text)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise DeviceError(f"this machine has no {text} ({count} CUDA devices)", "use `device` cpu")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("this machine has no mps device", "use `device` cpu")
    return device


def choose_training_compute(device: str, precision: str) -> Compute:
    """Choose device and precision for training; "auto" is the fastest one with hardware support.

    That is bf16 on CPUs that gain by it and GPUs that support it, fp16 on other NVIDIA GPUs, else fp32:
    emulated bf16 is many times slower. Raises UsageError and DeviceError as `Compute.choose`.
    """
    chosen = Compute.choose(device, precision)
    return chosen if precision != "auto" else Compute(chosen.device, hardware_precision(chosen.device))


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
