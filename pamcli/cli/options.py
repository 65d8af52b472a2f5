"""Groups of options that several commands share; `groups.command` unfolds them."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pamcli.cli import completion, parsing
from pamcli.cli.console import Console
from pamcli.cli.groups import argument, flag, option, result
from pamcli.errors import UsageError
from pamcli.files.atomic import check_writable
from pamcli.files.finding import shown
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES, PackedLayout

Precision = Literal["auto", "fp32", "bf16", "fp16"]
PRECISION = "Of the convolutions; auto: bf16 for disparity on CPUs that have it, else fp32."


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What is not even decoded."""

    panel: ClassVar[str] = "Input"
    max_pixels: int | None = option(
        "Refuse files with more pixels, before decoding them.",
        default=400_000_000,
        metavar="N|none",
        parse=parsing.number_or_none,
    )


@dataclass(frozen=True, kw_only=True)
class Pairs(Limit):
    """Which pictures belong together. Raises UsageError for what contradicts itself."""

    inputs: list[str] | None = argument(
        "Two pictures, two folders (paired by equal stem), or two templates in which {} stands for "
        "the same text. With --packed: pictures or folders that hold both views, or - for stdin.",
        metavar="LEFT RIGHT",
        show_default=False,
    )
    pairs: str | None = option(
        "A list of pairs: left<TAB>right[<TAB>output] a line; - reads stdin as it arrives.", metavar="FILE"
    )
    null: bool = flag("The list is NUL-separated: left NUL right NUL.", "-0", "--null")
    packed: PackedLayout | None = option(
        "One picture holds both views. lr: the left view on the left; rl: on the right "
        "(cross-eyed); tb: the left view on top; bt: below; -half: squeezed into the frame of one view; "
        "auto: as the file says, which .mpo and .jps do without being asked."
    )
    side_by_side: bool = flag("The same as --packed lr.")
    root: Path | None = option(
        "Results of a list, and of several --packed pictures, mirror the paths of the left pictures below "
        "this folder, by default the current one.",
        metavar="DIR",
    )
    shard: slice | None = option(
        "Every N-th pair alone, from the I-th on: 1/4 to 4/4 together are the whole batch.",
        metavar="I/N",
        parse=parsing.shard,
    )
    skip_unpaired: bool = flag("Go on without pictures that have no partner.")

    def __post_init__(self) -> None:
        if self.packed != "lr":
            at_most_one({"--side-by-side": self.side_by_side, f"--packed {self.packed}": self.packed})
        if self.root is not None and not self.root.is_dir():
            raise UsageError(f"--root {shown(self.root)} is no folder")

    @property
    def layout(self) -> PackedLayout | None:
        """Of pictures that hold both views; None: there are two pictures."""
        return "lr" if self.side_by_side else self.packed


@dataclass(frozen=True, kw_only=True)
class Results:
    """What happens to results that exist, and how the new ones are reported. Raises UsageError."""

    panel: ClassVar[str] = "Output"
    skip_existing: bool = flag("Leave out pairs whose results all exist.")
    overwrite: bool = flag("Replace results that exist.")
    jsonl: bool = flag("One JSON object a pair on stdout, instead of the paths written.")

    def __post_init__(self) -> None:
        at_most_one({"--overwrite": self.overwrite, "--skip-existing": self.skip_existing})


@dataclass(frozen=True, kw_only=True)
class Pictures(Results):
    """Results that are both pictures of a pair."""

    output: str | None = result(
        "The left picture (.png, .tif, .jpg, .webp); a folder receives both.",
        PICTURE_OUTPUT_SUFFIXES,
        "-o",
        name="left",
        folder_tag="_left",
        metavar="FILE|FOLDER|TEMPLATE|-",
    )
    output_right: str | None = result(
        "The right picture.",
        PICTURE_OUTPUT_SUFFIXES,
        name="right",
        folder_tag="_right",
        joins_main_folder=True,
    )
    format_name: Literal["png", "tif", "jpg", "webp"] | None = option(
        "Of pictures in a folder or on stdout; by default png.", "--format"
    )


@dataclass(frozen=True, kw_only=True)
class Network:
    """Whose weights."""

    panel: ClassVar[str] = "Network"
    weights: str | None = option(
        "A name of `pam weights list`, a file (also .onnx), or hf:owner/repo/file.safetensors[@revision].",
        metavar="NAME|PATH|hf:...",
        autocompletion=completion.weights,
        parse=parsing.name,
    )


@dataclass(frozen=True, kw_only=True)
class Matching(Network):
    """A network for disparity. Raises UsageError for a prior that is none."""

    max_disparity: int | Literal["stored"] | None = option(
        "Search only disparities below N px (rounded up to a multiple of 16); by default what is "
        "stored with the weights.",
        default="stored",
        metavar="N|none",
        parse=parsing.prior,
        show_default=False,
    )
    min_disparity: int = option(
        "Search from N px, below 0 for pictures that were shifted onto each other or converge.",
        default=0,
        min=-100_000,
        max=100_000,
        metavar="N",
    )
    enlarge: float | Literal["auto"] | None = option(
        "Match pictures N times (1 to 4) as large as they are: finer, for N² times the time; auto "
        "enlarges small ones alone. By default auto, and 1 for the paper's network.",
        metavar="N|auto",
        parse=parsing.enlargement,
    )

    def __post_init__(self) -> None:
        limit = self.max_disparity
        if isinstance(limit, int) and limit <= self.min_disparity:
            raise UsageError(
                f"--min-disparity {self.min_disparity} and --max-disparity {limit} leave nothing to search"
            )


@dataclass(frozen=True, kw_only=True)
class Device:
    """Where to compute. Raises UsageError for what names no device, without asking torch which there are."""

    panel: ClassVar[str] = "Performance"
    device: str = option(
        "auto, cpu, cuda, cuda:N or mps; tensorrt for .onnx files.", default="auto", metavar="DEVICE"
    )

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|cpu|(cuda|tensorrt)(:[0-9]+)?|mps", self.device):
            raise UsageError(f"--device {self.device!r} is no device", "one of auto, cpu, cuda, cuda:N, mps")


@dataclass(frozen=True, kw_only=True)
class Compute(Device):
    """Where and how to compute, in how much memory."""

    precision: Precision = option(PRECISION, default="auto")
    max_memory: int | None = option(
        "Memory that pam may take in all, as in 4GB, 1.5GiB or 800MB; by default what is free allows.",
        metavar="SIZE",
        parse=parsing.memory_size,
    )
    """Bytes."""

    @property
    def resources(self) -> dict[str, Any]:
        """What the loading of a network takes of it."""
        return {"device": self.device, "precision": self.precision, "max_memory": self.max_memory}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Other machines that may work off a batch."""

    panel: ClassVar[str] = "Performance"
    engine: Literal["local", "ray"] = option(
        "ray: the batch over a cluster (pam guide clusters).", default="local"
    )
    ray_address: str = option(
        "Of the cluster; auto: the one that this machine belongs to; local: this machine alone.",
        default="auto",
        metavar="auto|local|HOST",
        parse=parsing.name,
    )
    ray_cores: int | None = option(
        "Of each of Ray's workers without a GPU, by default 4, to rectify 1.", min=1
    )

    @property
    def remote(self) -> bool:
        """Other machines do the work."""
        return self.engine == "ray"

    @property
    def gpus(self) -> bool:
        """Whether a worker is to have one, where the cluster has any."""
        return False

    @property
    def cores(self) -> int | None:
        """Of each worker; None: as many as suit a network."""
        return self.ray_cores or 1


@dataclass(frozen=True, kw_only=True)
class Engine(Compute, Cluster):
    """Where to compute a batch with a network."""

    @property
    def gpus(self) -> bool:
        """As of `Cluster`."""
        return self.device != "cpu"

    @property
    def cores(self) -> int | None:
        """As of `Cluster`."""
        return self.ray_cores


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Processes that share the work."""

    panel: ClassVar[str] = "Performance"
    workers: int | None = option("Processes.", min=1, show_default="processors, at most 8")

    @property
    def count(self) -> int:
        """Of the processes."""
        from pamcli.data.preparation.workers import default_workers

        return self.workers or default_workers()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Text or JSON, for commands with one answer."""

    panel: ClassVar[str] = "Output"
    json: bool = flag("One JSON object instead of text.")


@dataclass(frozen=True, kw_only=True)
class Text:
    """Text or JSON, for commands whose answer is a list."""

    panel: ClassVar[str] = "Output"
    jsonl: bool = flag("JSON instead of text, one object a line.")


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """How much is said, for commands without details."""

    panel: ClassVar[str] = "Messages"
    quiet: bool = flag("No progress, only warnings and errors.", "-q")

    def console(self, **more: Any) -> Console:
        """The console that talks so. more: other fields of it."""
        return Console(**{"quiet": self.quiet, **more})


@dataclass(frozen=True, kw_only=True)
class Messages(Quiet):
    """How much is said."""

    verbose: bool = flag("Say what is used and done.", "-v")

    def console(self, **more: Any) -> Console:
        """The console that talks so. more: other fields of it."""
        return super().console(verbose=self.verbose, **more)


def at_most_one(given: Mapping[str, object]) -> None:
    """Raise UsageError where several of these options have a value."""
    if len(names := [name for name, value in given.items() if value]) > 1:
        raise UsageError(f"{' and '.join(names)} contradict each other", "give one of them")


def check_new_file(path: Path, *suffixes: str, overwrite: bool, option: str = "--output") -> None:
    """Raise UsageError, OutputError where a file cannot be written, or not without being asked."""
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{option} {shown(path)} must end in {', '.join(suffixes)}")
    if os.path.isdir(path):
        raise UsageError(f"{shown(path)} is a folder", "name a file")
    if os.path.lexists(path) and not overwrite:  # of os.path: a name that cannot be is no error yet
        raise UsageError(f"{shown(path)} exists already", "--overwrite replaces it")
    if os.path.islink(path) and Path(os.path.realpath(path)).suffix.lower() not in suffixes:
        raise UsageError(f"{shown(path)} is a link to {shown(os.path.realpath(path))}", "name another file")
    check_writable(path)
