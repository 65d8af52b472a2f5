"""Check that pam works on this machine: packages, devices, formats and a self-test.

Functions import PyTorch themselves, so that the other checks also run without it.
"""

import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from pamcli import __version__
from pamcli.errors import DeviceError, PamError, missing_package
from pamcli.registry.catalog import REGISTERED, locate

PACKAGES = (
    *("torch", "numpy", "imageio", "pillow", "tifffile", "imagecodecs", "safetensors", "huggingface-hub"),
    *("opencv-python-headless", "onnxruntime", "ray"),
)
SHIFT = 8  # px between the two images of the self-test


def run_checks() -> dict[str, Any]:
    """Run all checks in `PARTS`; return texts, texts by name, or the PamError of a failed check."""
    found: dict[str, Any] = {}
    for name, find in PARTS.items():
        try:
            found[name] = find()
        except PamError as error:
            found[name] = error
        except ImportError as error:
            found[name] = PamError(missing_package(error))
        except (RuntimeError, OSError, TypeError) as error:  # of a GPU that is in use or too old
            from pamcli.inference.memory import first_line

            said = f"{type(error).__name__}: {first_line(error)}"
            found[name] = DeviceError(said, "see whether `device` cpu works")
    return found


def format_checks(found: Mapping[str, Any]) -> list[str]:
    """Format the results, one line per text."""
    lines = []
    for name, value in found.items():
        parts = [f"{key} {each}" for key, each in value.items()] if isinstance(value, dict) else [value]
        lines += [f"{'' if index else name:10} {part}" for index, part in enumerate(parts)]
    return lines


def packages() -> dict[str, str]:
    """Return the versions of pam's dependencies."""

    def found(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    return {name: found(name) for name in PACKAGES}


def weights() -> dict[str, str]:
    """Return the files of the shipped networks; raise ModelError if one is damaged."""
    return {name: f"whole, {locate(name)}" for name in REGISTERED}


def pictures() -> str:
    """Return the image formats after writing and reading each in memory; raise InputError on failure."""
    from pamcli.imaging.images import try_formats

    return ", ".join(try_formats())


def processor() -> dict[str, str]:
    """Return the CPU features that pam uses."""
    import torch

    from pamcli import winograd
    from pamcli.inference.device import processor_has_bf16

    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "bf16": "in hardware" if processor_has_bf16() else "emulated, slow",
        "fp32": "Winograd's convolutions" if winograd.available() else "slower: winograd.c is not compiled",
        "cores": f"{mine} of {os.cpu_count()}, {torch.get_num_threads()} used",
    }


def devices() -> dict[str, str]:
    """Return the GPUs and the device that `auto` chooses."""
    import torch

    from pamcli.inference.device import Compute

    found = {"auto": ", ".join(Compute.choose(reduce=True).describe().values())}
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        found[f"cuda:{index}"] = f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
    return found


def memory() -> str:
    """Return the free memory of the CPU, for people."""
    import torch

    from pamcli.inference.memory import free_memory

    free = free_memory(torch.device("cpu"))
    if free is None:
        return "not reported by the system"
    return f"{free / 1e9:.1f} GB free, within the container's limits"


def self_test() -> str:
    """Match a generated pair of known disparity with the shipped network; raise PamError if it is wrong."""
    from pamcli.inference.matcher import StereoMatcher

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


PARTS: dict[str, Callable[[], str | dict[str, str]]] = {
    "pam": lambda: f"{__version__}, Python {platform.python_version()}, {platform.platform()}",
    "packages": packages,
    "processor": processor,
    "devices": devices,
    "memory": memory,
    "weights": weights,
    "pictures": pictures,
    "self-test": self_test,
}
