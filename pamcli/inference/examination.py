"""What a machine computes with, and whether a network does so rightly here."""

import os
import time

import numpy as np
import torch

from pamcli.errors import PamError
from pamcli.inference.device import Compute, processor_has_bf16
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.memory import free_memory

SHIFT = 8  # pixels between the two views of the self-test


def processor() -> dict[str, str]:
    """What it computes with."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "bf16": "in hardware" if processor_has_bf16() else "emulated, slow",
        "cores": f"{mine} of {os.cpu_count()}, {torch.get_num_threads()} used",
    }


def devices() -> dict[str, str]:
    """What `auto` chooses for networks that have no int8, and the GPUs."""
    found = {"auto": ", ".join(Compute.choose(reduce=True).describe().values())}
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        found[f"cuda:{index}"] = f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
    return found


def memory() -> str:
    """Free memory of the CPU, for people."""
    free = free_memory(torch.device("cpu"))
    if free is None:
        return "not reported by the system"
    return f"{free / 1e9:.1f} GB free, within the container's limits"


def self_test() -> str:
    """The shipped network on a made-up pair whose disparity is known. Raises PamError where it is off."""
    matcher = StereoMatcher.load()
    coarse = np.random.default_rng(0).random((16, 32, 3)).repeat(4, 0).repeat(4, 1)
    texture = (255 * (coarse + np.roll(coarse, 1, 0) + np.roll(coarse, 1, 1)) / 3).astype(np.uint8)
    start = time.perf_counter()
    found = matcher(texture[:, : 128 - SHIFT], texture[:, SHIFT:], extras=()).disparity
    seconds = time.perf_counter() - start
    off = float(np.median(np.abs(found[:, SHIFT:] - SHIFT)))
    if not off < 1:
        raise PamError(f"a pair {SHIFT} px apart is matched with {off:.2f} px of error, not below 1")
    return f"a pair {SHIFT} px apart matched to {off:.2f} px in {seconds:.2f} s"
