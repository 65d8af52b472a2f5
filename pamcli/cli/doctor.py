"""pam doctor: what a maintainer asks for first, and whether pam works here."""

import platform
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from pamcli import __version__
from pamcli.cli.console import Console, said
from pamcli.cli.options import JSON
from pamcli.errors import PamError, missing_package
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES
from pamcli.registry.catalog import REGISTERED, locate

PACKAGES = (
    *("torch", "numpy", "imageio", "pillow", "tifffile", "imagecodecs", "safetensors", "huggingface-hub"),
    *("opencv-python-headless", "onnxruntime", "ray"),
)


def command(json: bool = JSON) -> None:
    """Tell versions, what the processor can, what auto chooses, and whether weights and pictures are sound.

    Ends with the code of the first thing that is wrong.

    $ pam doctor
    $ pam doctor --json
    """
    console = Console(jsonl=json)
    facts: dict[str, Any] = {}
    failures: list[PamError] = []
    for name, find in _EXAMINED.items():
        try:
            facts[name] = find()
        except (PamError, ImportError) as error:
            failure = error if isinstance(error, PamError) else PamError(missing_package(error))
            facts[name] = f"FAILED: {said(failure)}"
            failures.append(failure)
    lines = []
    for name, value in facts.items():
        parts = [f"{key} {each}" for key, each in value.items()] if isinstance(value, dict) else [value]
        lines += [f"{'' if index else name:10} {part}" for index, part in enumerate(parts)]
    console.answer({**facts, "ok": not failures}, *lines)
    if failures:
        raise typer.Exit(failures[0].exit_code)


def _packages() -> dict[str, str]:
    found = dict.fromkeys(PACKAGES, "not installed")
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _inside(name: str) -> Any:
    """What the library says; PyTorch is imported when it is asked."""
    from pamcli.inference import examination

    return getattr(examination, name)()


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
    "processor": partial(_inside, "processor"),
    "devices": partial(_inside, "devices"),
    "memory": partial(_inside, "memory"),
    "weights": lambda: {name: f"whole, {locate(name).path}" for name in REGISTERED},
    "pictures": _pictures,
    "self-test": partial(_inside, "self_test"),
}
