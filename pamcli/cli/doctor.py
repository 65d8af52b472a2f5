"""pam doctor: what a maintainer asks for first, and whether pam works here."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from pamcli import __version__
from pamcli.cli.console import Console, one_line
from pamcli.cli.options import Answer
from pamcli.errors import PamError
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES
from pamcli.registry.catalog import REGISTERED, locate

PACKAGES = (
    "torch",
    "numpy",
    "imageio",
    "pillow",
    "tifffile",
    "imagecodecs",
    "safetensors",
    "huggingface-hub",
)
SHIFT = 8
"""Pixels between the two views of the self-test."""


def command(text: Answer) -> None:
    """Tell versions, what the processor can, what auto chooses, and whether weights and pictures are sound.

    Ends with the code of the first thing that is wrong.
    """
    console = Console()
    facts: dict[str, Any] = {}
    failures: list[PamError] = []
    for name, find in _EXAMINED.items():
        try:
            facts[name] = find()
        except PamError as error:
            facts[name] = f"FAILED: {error}"
            failures.append(error)
    if text.json:
        console.record({**facts, "ok": not failures})
    else:
        for name, value in facts.items():
            for line in (
                [f"{key} {each}" for key, each in value.items()] if isinstance(value, dict) else [value]
            ):
                console.result(one_line(f"{name:10} {line}"))
                name = ""
    if failures:
        raise typer.Exit(failures[0].exit_code)


def _packages() -> dict[str, str]:
    def of(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    return {name: of(name) for name in PACKAGES}


def _processor() -> dict[str, Any]:
    import torch

    from pamcli.inference.device import processor_has_bf16

    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "bf16": "in hardware" if processor_has_bf16() else "emulated, slow",
        "cores": f"{mine} of {os.cpu_count()}, {torch.get_num_threads()} used",
    }


def _devices() -> dict[str, str]:
    import torch

    from pamcli.inference.device import Compute

    found = {
        f"auto ({job})": _names(Compute.choose(reduce=job == "disparity"))
        for job in ("disparity", "superres")
    }
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        found[f"cuda:{index}"] = f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
    return found


def _names(compute: Any) -> str:
    return ", ".join(compute.describe().values())


def _memory() -> str:
    import torch

    from pamcli.inference.memory import free_memory

    free = free_memory(torch.device("cpu"))
    return (
        "not told by the system"
        if free is None
        else f"{free / 1e9:.1f} GB free, within the container's limits"
    )


def _weights() -> dict[str, str]:
    return {name: f"whole, {locate(name).path}" for name in REGISTERED}


def _pictures() -> str:
    """Each format is written and read, in memory."""
    import numpy as np

    from pamcli.imaging.images import Picture, encode_picture, read_picture

    ramp = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    for suffix in PICTURE_OUTPUT_SUFFIXES:
        data = encode_picture(Picture(ramp), suffix, name=suffix)
        read = read_picture(data, max_pixels=None, name=suffix).pixels
        if read.shape != ramp.shape:
            raise PamError(f"a picture as {suffix} comes back as {read.shape}")
    return ", ".join(PICTURE_OUTPUT_SUFFIXES)


def _test() -> str:
    """The shipped network on a made-up pair whose disparity is known."""
    import numpy as np

    from pamcli.inference.matcher import StereoMatcher

    matcher = StereoMatcher.load("pasmnet")
    coarse = np.random.default_rng(0).random((16, 32, 3)).repeat(4, 0).repeat(4, 1)
    texture = (255 * (coarse + np.roll(coarse, 1, 0) + np.roll(coarse, 1, 1)) / 3).astype(np.uint8)
    start = time.perf_counter()
    found = matcher(texture[:, : 128 - SHIFT], texture[:, SHIFT:], extras=()).disparity
    seconds = time.perf_counter() - start
    off = float(np.median(np.abs(found[:, SHIFT:] - SHIFT)))
    if not off < 1:
        raise PamError(f"a pair {SHIFT} px apart is matched with {off:.2f} px of error, not below 1")
    return f"a pair {SHIFT} px apart matched to {off:.2f} px in {seconds:.2f} s"


_EXAMINED: dict[str, Any] = {
    "pam": lambda: f"{__version__}, Python {platform.python_version()}, {platform.platform()}",
    "packages": _packages,
    "processor": _processor,
    "devices": _devices,
    "memory": _memory,
    "weights": _weights,
    "pictures": _pictures,
    "self-test": _test,
}
