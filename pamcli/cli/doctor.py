"""pam doctor: what a maintainer asks for first, and whether pam works here."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from pamcli import __version__
from pamcli.cli.console import Console, said
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
            facts[name] = f"FAILED: {said(error)}"
            failures.append(error)
    if text.json:
        console.record({**facts, "ok": not failures})
    else:
        for name, value in facts.items():
            for line in (
                [f"{key} {each}" for key, each in value.items()] if isinstance(value, dict) else [value]
            ):
                console.result(f"{name:10} {line}")
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


def _inside(name: str) -> Callable[[], Any]:
    """What the library says; PyTorch is imported when it is asked."""

    def ask() -> Any:
        from pamcli.inference import examination

        return getattr(examination, name)()

    return ask


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


_EXAMINED: dict[str, Any] = {
    "pam": lambda: f"{__version__}, Python {platform.python_version()}, {platform.platform()}",
    "packages": _packages,
    "processor": _inside("processor"),
    "devices": _inside("devices"),
    "memory": _inside("memory"),
    "weights": _weights,
    "pictures": _pictures,
    "self-test": _inside("self_test"),
}
