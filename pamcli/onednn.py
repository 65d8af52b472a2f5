"""Use oneDNN features that torch does not use by itself on CPUs.

Fused convolutions apply the following operation while they write, which saves a pass over memory. Products of
float32 matrices use MKL by default, which is half as fast as possible on AMD processors. torch uses oneDNN if
results may be inexact; without AMX, oneDNN has no inexact mode, so results are exact. Elsewhere torch
computes everything as usual.
"""

import platform
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

CPUINFO = Path("/proc/cpuinfo")

_ONEDNN = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and torch.backends.cpu.get_cpu_capability().startswith("AVX")
    and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
)
FUSED = {  # True if this processor supports fused convolutions
    torch.float32: _ONEDNN,
    torch.bfloat16: _ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported(),
}


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    slope: float | None = None,
) -> Tensor:
    """Convolve x, then apply a leaky rectifier of the given slope, fused if oneDNN supports it."""
    if slope is None or not _can_fuse(x):
        if weight.shape[2:] == (1, 1) and x.device.type == "cpu":
            dilation = 2  # no effect except that torch uses oneDNN, even with one thread
        x = F.conv2d(x, weight, bias, stride, padding, dilation)
        return x if slope is None else F.leaky_relu_(x, slope)
    how = padding, (stride, stride), (dilation, dilation), 1
    made: Tensor = torch.ops.mkldnn._convolution_pointwise(x, weight, bias, *how, "leaky_relu", [slope], "")
    return made


def add_convolution(
    total: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    slope: float | None = None,
) -> Tensor:
    """Add a convolution of x to `total`, in place, then rectify with `slope`, fused if oneDNN supports it."""
    if not _can_fuse(x):
        total.add_(convolve(x, weight, bias, 1, padding, dilation))
    else:
        rectifier, slope = ("relu", None) if slope == 0 else (None, slope)
        how = padding, (1, 1), (dilation, dilation), 1, "add", None, rectifier
        torch.ops.mkldnn._convolution_pointwise_(total, x, weight, bias, *how, [], "")
    return total if slope is None else F.leaky_relu_(total, slope)


def multiply_by_convolution(factor: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Multiply `factor`, which may be overwritten, by a 1x1 convolution of x; float32 is slower fused."""
    if x.dtype == torch.float32 or not _can_fuse(x):
        return factor.mul_(convolve(x, weight, bias))
    how = (0, 0), (1, 1), (1, 1), 1
    with_factor = torch.ops.mkldnn._convolution_pointwise.binary
    made: Tensor = with_factor(x, factor, weight, bias, *how, "mul", None, None, [], None)
    return made


def _can_fuse(x: Tensor) -> bool:
    return x.device.type == "cpu" and FUSED.get(x.dtype, False)


@cache
def is_onednn_faster() -> bool:
    """Return whether oneDNN is faster here and, as tested, exact."""
    named = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else platform.processor()
    if "AuthenticAMD" not in named or not hasattr(torch.backends.mkldnn, "matmul"):
        return False
    a, b = torch.linspace(1, 2, 64 * 64).view(2, 64, 32).chunk(2)
    return torch.allclose(_multiply(a, b.mT), torch.matmul(a.double(), b.mT.double()).float(), rtol=1e-6)


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    with _enable_onednn():
        return torch.matmul(a, b)


def use_faster_products() -> AbstractContextManager[None]:
    """Multiply float32 matrices by the faster library, in full precision, in all of a network's run.

    All threads of the program share torch's setting. It is enabled for whole runs, so that each product of a
    network comes from the same library, whatever networks run in other threads.
    """
    return _enable_onednn() if is_onednn_faster() else nullcontext()


_LOCK = threading.Lock()
_RUNS: list[str] = []  # the setting before each run in progress


@contextmanager
def _enable_onednn() -> Iterator[None]:
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    with _LOCK:
        _RUNS.append(_RUNS[0] if _RUNS else settings.fp32_precision)
        settings.fp32_precision = "bf16"
    try:
        yield
    finally:
        with _LOCK:
            before = _RUNS.pop()
            if not _RUNS:
                settings.fp32_precision = before
