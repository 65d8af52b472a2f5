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
FUSED = {  # True if this device supports fused convolutions
    ("cpu", torch.float32): _ONEDNN,
    ("cpu", torch.bfloat16): _ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported(),
}


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    dilation: int = 1,
    slope: float | None = None,
    add_to: Tensor | None = None,
) -> Tensor:
    """Convolve x, add that to `add_to` in place, then apply a leaky rectifier of the given slope.

    All in one operation if oneDNN supports it, which has no gradient.
    """
    if (slope is None and add_to is None) or not FUSED.get((x.device.type, x.dtype), False):
        if weight.shape[2:] == (1, 1) and x.device.type == "cpu" and not torch.compiler.is_compiling():
            dilation = 2  # no effect except that torch uses oneDNN, even with one thread
        made = F.conv2d(x, weight, bias, stride, padding, dilation)
        made = made if add_to is None else add_to.add_(made)
        return made if slope is None else F.leaky_relu_(made, slope)
    how = padding, (stride, stride), (dilation, dilation), 1
    if add_to is None:
        fused: Tensor = torch.ops.mkldnn._convolution_pointwise(
            x, weight, bias, *how, "leaky_relu", [slope], ""
        )
        return fused
    rectifier = "relu" if slope == 0 else None
    torch.ops.mkldnn._convolution_pointwise_(add_to, x, weight, bias, *how, "add", None, rectifier, [], "")
    return F.leaky_relu_(add_to, slope) if slope else add_to


def multiply_by_convolution(factor: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Multiply `factor`, which may be overwritten, by a 1x1 convolution of x; float32 is slower fused."""
    if x.dtype == torch.float32 or not FUSED.get((x.device.type, x.dtype), False):
        return factor.mul_(convolve(x, weight, bias))
    how = (0, 0), (1, 1), (1, 1), 1
    with_factor = torch.ops.mkldnn._convolution_pointwise.binary
    made: Tensor = with_factor(x, factor, weight, bias, *how, "mul", None, None, [], None)
    return made


@cache
def is_onednn_faster() -> bool:
    """Return whether oneDNN is faster here and, as tested, exact."""
    named = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else platform.processor()
    if "AuthenticAMD" not in named or not hasattr(torch.backends.mkldnn, "matmul"):
        return False
    a, b = torch.linspace(1, 2, 64 * 64).view(2, 64, 32).chunk(2)
    with _enable_onednn():
        product = torch.matmul(a, b.mT)
    return torch.allclose(product, torch.matmul(a.double(), b.mT.double()).float(), rtol=1e-6)


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
