"""Which device and precision to train in."""

from __future__ import annotations

import torch

from pamcli.inference.device import Compute


def training_compute(device: str, precision: str) -> Compute:
    """From the values of `--device` and `--precision`; "auto" is the fastest that the processor really has.

    That is bf16 on a CPU with AVX512-BF16 or AMX and on a GPU that computes in it, fp16 on other NVIDIA GPUs,
    and else fp32: an emulated bf16 is many times slower. Raises UsageError and DeviceError as
    `Compute.choose` does.
    """
    chosen = Compute.choose(device, precision)
    if precision != "auto":
        return chosen
    if chosen.device.type == "cuda":
        half = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
        return Compute(chosen.device, half)
    if chosen.device.type == "cpu" and cpu_computes_bf16():
        return Compute(chosen.device, "bf16")
    return chosen


def cpu_computes_bf16() -> bool:
    """Whether this CPU multiplies bf16 in hardware: AVX512-BF16 or AMX tiles."""
    # Questions of torch's own, which an older or newer one may not have: an unknown CPU computes in fp32.
    return any(
        bool(question())
        for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        if (question := getattr(torch.cpu, name, None)) is not None
    )
