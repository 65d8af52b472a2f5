"""The network of a command: its options, finding its weights, loading it, and saying what is used."""

from __future__ import annotations

import os
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pamcli.cli import parsing
from pamcli.cli.console import Console
from pamcli.cli.groups import OptionGroup, flag, option
from pamcli.cli.options import Compute, at_most_one
from pamcli.errors import UsageError
from pamcli.registry.catalog import DEFAULT_MATCHING, DEFAULT_UPSCALING, REGISTERED, locate
from pamcli.registry.spec import read_header

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.upscaler import StereoUpscaler

DEFAULT_SCALE = 4


def find_weights(weights: str, console: Console, *, check: bool = True) -> Path:
    """File behind a `--weights` value, as `locate` finds it; says which commit of the Hub was taken.

    Raises ModelError, UsageError.
    """
    # The Hub's library talks on stderr, too: what is wrong comes from pam, once. A value that is set stays.
    if not console.verbose:
        os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    if console.quiet:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    located = locate(weights, check=check)
    if located.commit is not None:
        console.inform(f"{weights} is commit {located.commit}; add @{located.commit} to keep to it")
    return located.path


def _complete_weights(incomplete: str) -> list[str]:
    """Complete a name for the tab key: names of `pam weights list`, and files."""
    files = [*glob(f"{incomplete}*.safetensors"), *glob(f"{incomplete}*.onnx")]
    return [*(name for name in REGISTERED if name.startswith(incomplete)), *sorted(files)]


WEIGHTS = {"metavar": "NAME|PATH|hf:...", "autocompletion": _complete_weights}
"""What an option or an argument for weights has besides its help."""


class Network(OptionGroup, panel="Network"):
    """Whose weights. Its subclasses have a `name`: of those that are given, else of the default."""

    weights: str | None = option(
        "A name of `pam weights list`, a file (also .onnx), or hf:owner/repo/file.safetensors[@revision].",
        parse=parsing.name,
        **WEIGHTS,
    )


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
    match_size: float | Literal["auto"] | None = option(
        "Match pictures N times as large on each side as they are (1/16 to 4), or N px wide (from 64 on); "
        "the result has their own size all the same. auto: small ones enlarged, large ones reduced; 1: as "
        "they are. By default auto, and 1 for the paper's network.",
        metavar="auto|N",
        parse=parsing.match_size,
    )
    enlarge: float | Literal["auto"] | None = option(
        "Old name of --match-size.", metavar="auto|N", parse=parsing.match_size
    )

    @property
    def name(self) -> str:
        """Name of the weights: those that are given, else the default."""
        return self.weights or DEFAULT_MATCHING

    def __post_init__(self) -> None:
        at_most_one({"--match-size": self.match_size, "--enlarge": self.enlarge})
        limit = self.max_disparity
        if isinstance(limit, int) and limit <= self.min_disparity:
            raise UsageError(
                f"--min-disparity {self.min_disparity} and --max-disparity {limit} leave nothing to search"
            )

    def load(self, compute: Compute, console: Console) -> tuple[StereoMatcher, Path]:
        """The network, and its file. Raises ModelError, DeviceError, UsageError."""
        if self.enlarge is not None:
            console.inform("--enlarge is called --match-size now, and means the same")
        path = find_weights(self.name, console)
        with console.starting(self.name):
            from pamcli.inference.matcher import StereoMatcher

            asked = {"min_disparity": self.min_disparity, "max_disparity": self.max_disparity}
            size = self.enlarge if self.match_size is None else self.match_size
            matcher = StereoMatcher.load(path, match_size=size, **(compute.resources | asked))
        limit = "none" if matcher.max_disparity is None else f"{matcher.max_disparity} px"
        resized = "" if matcher.match_size == 1 else f", match size {matcher.match_size}"
        console.detail(f"{self.name}: {path}, {_compute(matcher)}, maximum disparity {limit}{resized}")
        return matcher, path


class Upscaling(Network):
    """A network for super-resolution."""

    scale: Literal["2", "4"] | None = option("Enlarge so many times on each side, by default 4.")
    ensemble: bool = flag("Average over the flips of the pair: finer, in four times the time.")

    @property
    def factor(self) -> int | None:
        """The scale that is asked for."""
        return int(self.scale) if self.scale else None

    @property
    def name(self) -> str:
        """Name of the weights: those that are given, else the default of the scale."""
        return self.weights or DEFAULT_UPSCALING[self.factor or DEFAULT_SCALE]

    def load(self, compute: Compute, console: Console) -> tuple[StereoUpscaler, Path]:
        """The network, and its file. Raises ModelError, DeviceError, UsageError."""
        path = find_weights(self.name, console)
        if path.suffix != ".onnx":  # which only ONNX Runtime reads
            self._check_scale(read_header(path).spec.scale)
        with console.starting(self.name):
            from pamcli.inference.upscaler import StereoUpscaler

            upscaler = StereoUpscaler.load(path, ensemble=self.ensemble, **compute.resources)
        self._check_scale(upscaler.scale)
        console.detail(f"{self.name}: {path}, {_compute(upscaler)}, enlarges {upscaler.scale} times")
        return upscaler, path

    def _check_scale(self, stored: int | None) -> None:
        if None not in (self.factor, stored) and self.factor != stored:
            raise UsageError(
                f"{self.name} enlarges {stored} times, not {self.factor}", "leave out --scale or --weights"
            )


def _compute(network: StereoMatcher | StereoUpscaler) -> str:
    return ", ".join(network.compute.describe().values())
