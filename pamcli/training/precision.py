"""Which device and precision to train in."""

from __future__ import annotations

from pamcli.inference.device import Compute, hardware_precision


def training_compute(device: str, precision: str) -> Compute:
    """From the values of `--device` and `--precision`; "auto" is the fastest that the processor really has.

    That is bf16 on a CPU with AVX512-BF16 or AMX and on a GPU that computes in it, fp16 on other NVIDIA GPUs,
    and else fp32: an emulated bf16 is many times slower. Raises UsageError and DeviceError as
    `Compute.choose` does.
    """
    chosen = Compute.choose(device, precision)
    return chosen if precision != "auto" else Compute(chosen.device, hardware_precision(chosen.device))
