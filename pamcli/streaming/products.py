"""Products of float32 matrices: by oneDNN where that is the faster one of torch's two libraries.

On AMD's processors MKL multiplies half as many numbers at a time as they could. torch leaves a product to
oneDNN if it may be inexact; and without AMX, oneDNN has no inexact way to multiply: both results are exact.
"""

import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

CPUINFO = Path("/proc/cpuinfo")


def product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices as `torch.matmul` does, with float32's precision."""
    if a.dtype != torch.float32 or a.device.type != "cpu" or not onednn_pays():
        return torch.matmul(a, b)
    return _by_onednn(a, b)


@cache
def onednn_pays() -> bool:
    """Whether oneDNN is the faster one here, and exact, which is tried."""
    named = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else platform.processor()
    if "AuthenticAMD" not in named or not hasattr(torch.backends.mkldnn, "matmul"):
        return False
    a, b = torch.linspace(1, 2, 64 * 64).view(2, 64, 32).chunk(2)
    return torch.allclose(_by_onednn(a, b.mT), torch.matmul(a.double(), b.mT.double()).float(), rtol=1e-6)


def _by_onednn(a: Tensor, b: Tensor) -> Tensor:
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    try:
        return torch.matmul(a, b)
    finally:
        settings.fp32_precision = before
