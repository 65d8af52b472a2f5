"""How a run computes: device and precision, and algorithms that repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pamcli.inference.device import Compute, hardware_precision


def training_compute(device: str, precision: str) -> Compute:
    """From the names of a device and a precision; "auto" is the fastest that the processor really has.

    That is bf16 on a CPU with AVX512-BF16 or AMX and on a GPU that computes in it, fp16 on other NVIDIA GPUs,
    and else fp32: an emulated bf16 is many times slower. Raises UsageError and DeviceError as
    `Compute.choose` does.
    """
    chosen = Compute.choose(device, precision)
    return chosen if precision != "auto" else Compute(chosen.device, hardware_precision(chosen.device))


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Only algorithms whose results repeat, on the CPU, where they cost nothing."""
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
