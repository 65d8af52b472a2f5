"""Check that pam works on this machine. Only the checks that need PyTorch import it."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from pamcli import __version__
from pamcli.errors import DeviceError, InputError, PamError, describe_missing_package
from pamcli.registry.catalog import REGISTERED, locate

PACKAGES = (
    *("torch", "numpy", "imageio", "pillow", "tifffile", "imagecodecs", "safetensors", "huggingface-hub"),
    *("opencv-python-headless", "onnxruntime", "ray"),
)
SHIFT = 8  # px between the two images of the self-test


def run_checks() -> dict[str, Any]:
    """Run all checks in `PARTS`; return texts, texts by name, or the PamError of a failed check."""
    found: dict[str, Any] = {}
    for name, check in PARTS.items():
        try:
            found[name] = check()
        except PamError as error:
            found[name] = error
        except ImportError as error:
            found[name] = PamError(describe_missing_package(error))
        except (RuntimeError, OSError, TypeError) as error:  # of a GPU that is in use or too old
            from pamcli.inference.device import first_line

            found[name] = DeviceError(f"{type(error).__name__}: {first_line(error)}", "try `device` cpu")
    return found


def format_checks(checks: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in checks.items():
        parts = [f"{key} {each}" for key, each in value.items()] if isinstance(value, dict) else [value]
        lines += [f"{'' if index else name:10} {part}" for index, part in enumerate(parts)]
    return lines


def check_packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def check_formats() -> str:
    """Return the image formats after writing and reading each in memory; raise InputError on failure."""
    from pamcli.files.suffixes import IMAGE_OUTPUT_SUFFIXES
    from pamcli.imaging.images import RgbImage, encode_image, read_image

    ramp = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    for suffix in IMAGE_OUTPUT_SUFFIXES:
        read = read_image(encode_image(RgbImage(ramp), suffix, name=suffix), name=suffix).pixels
        if read.shape != ramp.shape:
            raise InputError(f"an image of shape {ramp.shape} written as {suffix} is read as {read.shape}")
    return ", ".join(IMAGE_OUTPUT_SUFFIXES)


def check_processor() -> dict[str, str]:
    import torch

    from pamcli import convolutions
    from pamcli.inference.device import cpu_has_bf16
    from pamcli.limits import usable_cores

    return {
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "bf16": "in hardware" if cpu_has_bf16() else "emulated, slow",
        "fp32": "Winograd convolutions" if convolutions.available() else "slower: winograd.c is not compiled",
        "cores": f"{usable_cores()} of {os.cpu_count()}, {torch.get_num_threads()} used",
    }


def check_devices() -> dict[str, str]:
    """Return the GPUs and the device that `auto` chooses."""
    import torch

    from pamcli.inference.device import Compute

    found = {"auto": ", ".join(Compute.choose(reduce=True).describe().values())}
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        found[f"cuda:{index}"] = f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
    return found


def check_memory() -> str:
    import torch

    from pamcli.inference.device import get_free_memory

    free = get_free_memory(torch.device("cpu"))
    known = f"{(free or 0) / 1e9:.1f} GB free, within the container's limits"
    return "not reported by the system" if free is None else known


def run_self_test() -> str:
    """Match a generated pair of known disparity with the shipped network; raise PamError if it is wrong."""
    from pamcli.inference.matcher import StereoMatcher

    matcher = StereoMatcher.load()
    coarse = np.random.default_rng(0).random((16, 32, 3)).repeat(4, 0).repeat(4, 1)
    texture = (255 * (coarse + np.roll(coarse, 1, 0) + np.roll(coarse, 1, 1)) / 3).astype(np.uint8)
    start = time.perf_counter()
    disparity = matcher(texture[:, : 128 - SHIFT], texture[:, SHIFT:]).disparity
    seconds = time.perf_counter() - start
    error = float(np.median(np.abs(disparity[:, SHIFT:] - SHIFT)))
    if not error < 1:
        raise PamError(f"a pair with {SHIFT} px of disparity is matched with an error of {error:.2f} px")
    return f"a pair with {SHIFT} px of disparity matched to {error:.2f} px in {seconds:.2f} s"


PARTS: dict[str, Callable[[], str | dict[str, str]]] = {
    "pam": lambda: f"{__version__}, Python {platform.python_version()}, {platform.platform()}",
    "packages": check_packages,
    "processor": check_processor,
    "devices": check_devices,
    "memory": check_memory,
    "weights": lambda: {name: f"ok, {locate(name)}" for name in REGISTERED},
    "images": check_formats,
    "self-test": run_self_test,
}
