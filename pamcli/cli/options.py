"""Options that several commands share."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from pamcli.errors import UsageError

Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LEFT RIGHT",
        help="Two pictures, two folders (paired by equal stem), or two templates in which {} stands for the "
        "same text. With --packed: pictures or folders that hold both views, or - for stdin.",
        show_default=False,
    ),
]
PairList = Annotated[
    str | None,
    typer.Option(
        "--pairs",
        metavar="FILE",
        help="A list of pairs: left<TAB>right[<TAB>output] a line; - reads stdin as it arrives.",
    ),
]
Null = Annotated[bool, typer.Option("-0", "--null", help="The list is NUL-separated: left NUL right NUL.")]
Layout = Literal["lr", "rl", "tb", "bt"]
Packed = Annotated[
    Layout | None,
    typer.Option(
        "--packed",
        help="One picture holds both views. lr: the left view on the left; rl: on the right (cross-eyed); "
        "tb: the left view on top; bt: below.",
    ),
]
SideBySide = Annotated[bool, typer.Option("--side-by-side", help="The same as --packed lr.")]
SkipUnpaired = Annotated[
    bool, typer.Option("--skip-unpaired", help="Go on without pictures that have no partner.")
]
SkipExisting = Annotated[
    bool, typer.Option("--skip-existing", help="Leave out pairs whose results all exist.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")]
MaxPixels = Annotated[
    str,
    typer.Option(
        "--max-pixels", metavar="N|none", help="Refuse pictures with more pixels, before decoding them."
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Memory that pam may take in all, as in 4GB, 1.5GiB or 800MB; by default what is free allows.",
        show_default=False,
    ),
]
JsonLines = Annotated[
    bool, typer.Option("--jsonl", help="One JSON object a pair on stdout, instead of the paths written.")
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="NAME|PATH|hf:...",
        help="A name of `pam weights list`, a file, or hf:owner/repo/file.safetensors[@revision].",
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]
Precision = Annotated[
    Literal["auto", "fp32", "bf16", "fp16"],
    typer.Option(
        "--precision", help="Of the convolutions; auto: bf16 for disparity on CPUs that have it, else fp32."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only warnings and errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say what is used and done.")]


def number_or_none(text: str, option: str) -> int | None:
    """A positive whole number, or None for "none". Raises UsageError."""
    if text == "none":
        return None
    # No number of pixels has more digits than that, and Python refuses to convert thousands of them.
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) > 0:
        return int(text)
    raise UsageError(f"{option} {text!r} is neither a positive whole number nor none")


UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}


def memory_size(text: str | None) -> int | None:
    """Bytes of a --max-memory. Raises UsageError."""
    if text is None:
        return None
    units = {unit.lower(): size for unit, size in UNITS.items()}
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([a-z]{2,3})", text.strip().lower(), re.ASCII)
    if found is None or found[2] not in units or float(found[1]) == 0:
        raise UsageError(f"--max-memory {text!r} is no size", f"a number and {', '.join(UNITS)}, as in 4GB")
    return int(float(found[1]) * units[found[2]])


def check_device(text: str) -> None:
    """Raise UsageError for what names no device, without asking torch which ones there are."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?|mps", text):
        raise UsageError(f"--device {text!r} is no device", "one of auto, cpu, cuda, cuda:N, mps")


def layout(packed: Layout | None, side_by_side: bool) -> Layout | None:
    """The layout that --packed and --side-by-side agree on. Raises UsageError."""
    if side_by_side and packed not in (None, "lr"):
        raise UsageError(f"--side-by-side and --packed {packed} contradict each other", "give one of them")
    return "lr" if side_by_side else packed
