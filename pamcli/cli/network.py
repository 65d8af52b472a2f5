"""The network of a command: its options, and loading it."""

from __future__ import annotations

from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pamcli.cli import parsing
from pamcli.cli.console import Console
from pamcli.cli.groups import OptionGroup, as_keywords, flag, option
from pamcli.cli.options import Compute
from pamcli.registry.catalog import DEFAULT_MATCHING, REGISTERED, default_upscaling

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.upscaler import StereoUpscaler


def _complete_weights(incomplete: str) -> list[str]:
    """Complete a name for the tab key: names of `pam weights list`, and files."""
    files = [name for suffix in ("safetensors", "onnx", "toml") for name in glob(f"{incomplete}*.{suffix}")]
    return [*(name for name in REGISTERED if name.startswith(incomplete)), *sorted(files)]


WEIGHTS = {"metavar": "NAME|PATH|hf:...", "autocompletion": _complete_weights}
"""What an option or an argument for weights has besides its help."""


class Network(OptionGroup, panel="Network"):
    """Whose weights."""

    weights: str | None = option(
        "Use these weights: a name of `pam weights list`, a file (.safetensors, .onnx, or a .toml of `pam "
        "weights describe`), or hf:owner/repo/file.safetensors[@revision].",
        parse=parsing.name,
        **WEIGHTS,
    )
    network_from: str | None = option(
        "Run the PyTorch network that this function makes, described by the .toml of --weights; the "
        "module's code runs.",
        metavar="MODULE:FUNCTION",
        parse=parsing.name,
    )


class Matcher(Network):
    """A network for disparity, as it is."""

    @property
    def name(self) -> str:
        """Name of the weights: those that are given, else what finds disparity by default."""
        return self.weights or DEFAULT_MATCHING

    def load(self, compute: Compute, console: Console) -> tuple[StereoMatcher, Path]:
        """The network, and its file. Raises ModelError, DeviceError, UsageError."""
        with console.starting(self.name):
            from pamcli.batch.networks import load_matcher

            return load_matcher(**as_keywords(self, compute) | {"weights": self.name})


class Matching(Matcher):
    """A network for disparity, and where it searches."""

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
        "they are. By default auto, and 1 for the paper's network. --enlarge is its old name.",
        "--match-size",
        "--enlarge",
        metavar="auto|N",
        parse=parsing.match_size,
    )


class Upscaling(Network):
    """A network for super-resolution."""

    scale: float | None = option(
        "Enlarge N times on each side, by default 4; 2 and 4 are what networks do, and what they make is "
        "reduced to any other above 1.",
        metavar="N",
        parse=parsing.scale,
    )
    ensemble: bool = flag("Average over the flips of the pair: finer, in four times the time.")

    @property
    def name(self) -> str:
        """Name of the weights: those that are given, else the default of the scale."""
        return self.weights or default_upscaling(self.scale)

    def load(self, compute: Compute, console: Console) -> tuple[StereoUpscaler, Path]:
        """The network, and its file. Raises ModelError, DeviceError, UsageError."""
        with console.starting(self.name):
            from pamcli.batch.networks import load_upscaler

            return load_upscaler(**as_keywords(self, compute))
