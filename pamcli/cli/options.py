"""Groups of options that several commands share; `groups.command` unfolds them."""

import re
from collections.abc import Callable, Iterable, Mapping
from glob import glob
from pathlib import Path
from typing import Any, Literal

from pamcli.cli import parsing
from pamcli.cli.console import Console, listen
from pamcli.cli.groups import OptionGroup, argument, flag, option, result
from pamcli.errors import UsageError
from pamcli.files.suffixes import PackedLayout

Precision = Literal["auto", "fp32", "bf16", "fp16"]
PRECISION = "Compute in this precision. auto: 16 bits where the device is faster in them, else fp32."


def data_sets() -> Iterable[str]:
    """Names of `pam dataset list`."""
    from pamcli.data.sources import SOURCES

    return SOURCES


def _complete_data(incomplete: str) -> list[str]:
    """Names of data sets; after the colon, what stands in the file system."""
    name, colon, path = incomplete.partition(":")
    if colon:
        return [f"{name}:{found}" for found in sorted(glob(f"{path}*/"))]
    return [f"{found}:" for found in data_sets() if found.startswith(incomplete)]


FORM = "NAME[/SPLIT]:PATH[?key=value&...]"
DATA = {"metavar": "DATA", "autocompletion": _complete_data}
"""What an option or an argument for data sets has besides its help."""


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What completes one of these names for the tab key."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def one_or_all(what: str, names: Callable[[], Iterable[str]], metavar: str = "NAME") -> Any:
    """The argument of a command that lists what there is, or shows the one of this name."""
    text = f"Name of {what}; by default all are listed."
    return argument(text, metavar=metavar, show_default=False, autocompletion=completing(names))


class Limit(OptionGroup, panel="Input"):
    """What is not even decoded."""

    max_pixels: int | None = option(
        "Refuse files with more pixels, before decoding them.",
        default=400_000_000,
        metavar="N|none",
        parse=parsing.number_or_none,
    )


class Pairs(Limit):
    """Which pictures belong together."""

    inputs: list[str] | None = argument(
        "Two pictures, two folders (paired by equal names), two templates in which {} stands for "
        "the same text, or two videos. With --packed: pictures, folders or a video that hold both views, or "
        "- for stdin.",
        metavar="LEFT RIGHT",
        show_default=False,
    )
    pairs: str | None = option(
        "Read a list of pairs: left<TAB>right[<TAB>output] a line; - reads stdin as it arrives.",
        metavar="FILE",
    )
    null: bool = flag("Read the list as NUL-separated: left NUL right NUL.", "-0", "--null")
    packed: PackedLayout | None = option(
        "One picture holds both views. lr: the left view on the left; rl: on the right "
        "(cross-eyed); tb: the left view on top; bt: below; -half: squeezed into the frame of one view; "
        "auto: as the file says, which .mpo and .jps do without being asked."
    )
    root: Path | None = option(
        "Results of a list, and of several --packed pictures, mirror the paths of the left pictures below "
        "this folder, by default the current one.",
        metavar="DIR",
    )
    start: int = option("Begin a video with this frame, counted from 0.", default=0, min=0)
    every: int = option("Take every N-th frame of a video.", default=1, min=1)
    count: int | None = option("Take so many frames of a video at most.", min=1)
    offset: int | Literal["auto"] = option(
        "Take the right video's frames N later than the left one's (earlier, where N is negative). auto: as "
        "many as let the motions in both agree.",
        default=0,
        metavar="N|auto",
        parse=parsing.offset,
    )
    shard: tuple[int, int] | None = option(
        "Process every N-th pair alone, from the I-th on: 1/4 to 4/4 together are the whole batch.",
        metavar="I/N",
        parse=parsing.shard,
    )
    skip_unpaired: bool = flag("Go on without pictures that have no partner.")


class Results(OptionGroup, panel="Output"):
    """What happens to results that exist, and how the new ones are reported."""

    skip_existing: bool = flag("Leave out pairs whose results all exist.")
    overwrite: bool = flag("Replace results that exist.")
    jsonl: bool = flag("Print one JSON object a pair, instead of the paths written.")


class Pictures(Results):
    """Results that are both pictures of a pair."""

    output: str | None = result(
        "Left picture of the result (.png, .tif, .jpg, .webp; frames: .mkv, .mp4); a folder receives both.",
        "-o",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )
    output_right: str | None = result("Right picture of the result.")
    format_name: Literal["png", "tif", "jpg", "webp"] | None = option(
        "Write pictures in this format, in a folder or on stdout; by default png.", "--format"
    )


class NewFile(OptionGroup, panel="Output"):
    """Files that are written, and over others only where that is asked for."""

    overwrite: bool = flag("Replace results that exist.")


class Device(OptionGroup, panel="Performance"):
    """Where to compute. Raises UsageError for what names no device, without asking torch which there are."""

    device: str = option(
        "Compute on auto, cpu, cuda, cuda:N or mps; .onnx files also on tensorrt, openvino or coreml.",
        default="auto",
        metavar="DEVICE",
    )

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|cpu|(cuda|tensorrt)(:[0-9]+)?|mps|openvino|coreml", self.device):
            raise UsageError(f"--device {self.device!r} is no device", "one of auto, cpu, cuda, cuda:N, mps")


class Compute(Device):
    """Where and how to compute, in how much memory."""

    precision: Precision = option(PRECISION, default="auto")
    max_memory: int | None = option(
        "Take at most this much memory in all, as in 4GB, 1.5GiB or 800MB; by default what is free.",
        metavar="SIZE",
        parse=parsing.memory_size,
    )
    """Bytes."""


class Cluster(OptionGroup, panel="Performance"):
    """Other machines that may work off a batch."""

    engine: Literal["local", "ray"] = option(
        "ray: spread the batch over a cluster (pam guide clusters).", default="local"
    )
    ray_address: str = option(
        "Address of the cluster; auto: the one that this machine belongs to; local: this machine alone.",
        default="auto",
        metavar="auto|local|HOST",
        parse=parsing.name,
    )
    ray_cores: int | None = option(
        "Cores for each of Ray's workers without a GPU; by default 4, to rectify 1.", min=1
    )


class Engine(Compute, Cluster):
    """Where to compute a batch with a network."""


WORKERS = option(
    "Work in so many processes.", min=1, show_default="processors, at most 8", rich_help_panel="Performance"
)
JSON = flag("Print one JSON object instead of text.", rich_help_panel="Output")
"""What commands with one answer take; those whose answer is a list take JSONL:"""
JSONL = flag("Print JSON instead of text, one object a line.", rich_help_panel="Output")


class Quiet(OptionGroup, panel="Messages"):
    """How much is said, for commands without details."""

    quiet: bool = flag("Show no progress, only warnings and errors.", "-q")

    def console(self, *, jsonl: bool = False) -> Console:
        """The console that talks so, for the library, too. jsonl: results are to be JSON."""
        return listen(Console(self.quiet, isinstance(self, Messages) and self.verbose, jsonl))


class Messages(Quiet):
    """How much is said."""

    verbose: bool = flag("Say what is used and done.", "-v")


def at_most_one(given: Mapping[str, object]) -> None:
    """Raise UsageError where several of these options have a value."""
    if len(names := [name for name, value in given.items() if value]) > 1:
        raise UsageError(f"{' and '.join(names)} contradict each other", "give one of them")
