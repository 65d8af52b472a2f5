"""Finding the weights and loading the network of a command, saying what is used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pamcli.cli.console import Console
from pamcli.cli.options import Compute, Matching
from pamcli.errors import UsageError
from pamcli.registry.catalog import locate
from pamcli.registry.spec import read_header

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.upscaler import StereoUpscaler


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


def load_matcher(weights: str, asked: Matching, compute: Compute, console: Console) -> StereoMatcher:
    """A network for disparity. Raises ModelError, DeviceError, UsageError."""
    path = find_weights(weights, console)
    with console.starting(weights):
        from pamcli.inference.matcher import StereoMatcher

        matcher = StereoMatcher.load(
            path,
            max_disparity=asked.max_disparity,
            enlarge=asked.enlarge,
            min_disparity=asked.min_disparity,
            **compute.resources,
        )
    limit = "none" if matcher.max_disparity is None else f"{matcher.max_disparity} px"
    enlarged = "" if matcher.enlarge == 1 else f", enlarged {matcher.enlarge}"
    console.detail(f"{weights}: {path}, {_compute(matcher)}, maximum disparity {limit}{enlarged}")
    return matcher


def load_upscaler(
    weights: str, scale: int | None, compute: Compute, console: Console, *, ensemble: bool = False
) -> StereoUpscaler:
    """A PASSRnet, of a certain scale unless that is None. Raises ModelError, DeviceError, UsageError."""
    path = find_weights(weights, console)
    if path.suffix != ".onnx":  # which only ONNX Runtime reads
        _check_scale(weights, scale, read_header(path).spec.scale)
    with console.starting(weights):
        from pamcli.inference.upscaler import StereoUpscaler

        upscaler = StereoUpscaler.load(path, ensemble=ensemble, **compute.resources)
    _check_scale(weights, scale, upscaler.scale)
    console.detail(f"{weights}: {path}, {_compute(upscaler)}, enlarges {upscaler.scale} times")
    return upscaler


def _check_scale(weights: str, asked: int | None, stored: int | None) -> None:
    if None not in (asked, stored) and asked != stored:
        raise UsageError(f"{weights} enlarges {stored} times, not {asked}", "leave out --scale or --weights")


def _compute(network: StereoMatcher | StereoUpscaler) -> str:
    return ", ".join(network.compute.describe().values())
