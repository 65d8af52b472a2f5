"""Loading the network of a command, saying what is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pamcli.cli.console import Console
from pamcli.registry.catalog import locate

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.upscaler import StereoUpscaler


def load_matcher(
    weights: str, device: str, precision: str, max_disparity: Any, console: Console
) -> StereoMatcher:
    """A PASMnet. `max_disparity` as of `StereoMatcher.load`. Raises ModelError, DeviceError, UsageError."""
    path = _locate(weights, console)
    from pamcli.inference.matcher import StereoMatcher

    matcher = StereoMatcher.load(path, device=device, precision=precision, max_disparity=max_disparity)
    limit = "none" if matcher.max_disparity is None else f"{matcher.max_disparity} px"
    console.detail(f"{weights}: {path}, {_compute(matcher)}, maximum disparity {limit}")
    return matcher


def load_upscaler(weights: str, device: str, precision: str, console: Console) -> StereoUpscaler:
    """A PASSRnet. Raises ModelError, DeviceError, UsageError."""
    path = _locate(weights, console)
    from pamcli.inference.upscaler import StereoUpscaler

    upscaler = StereoUpscaler.load(path, device=device, precision=precision)
    console.detail(f"{weights}: {path}, {_compute(upscaler)}, enlarges {upscaler.scale} times")
    return upscaler


def _locate(weights: str, console: Console) -> str:
    located = locate(weights)
    if located.commit is not None:
        console.inform(f"{weights} is commit {located.commit}; add @{located.commit} to keep to it")
    return str(located.path)


def _compute(network: StereoMatcher | StereoUpscaler) -> str:
    return f"{network.compute.device}, {network.compute.precision}"
