"""The networks that a batch runs: found, loaded, and what they are said in the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pamcli.batch import LOG
from pamcli.errors import UsageError
from pamcli.registry.catalog import default_upscaling, locate
from pamcli.registry.spec import read_header

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.upscaler import StereoUpscaler


def load_matcher(weights: str | Path, **settings: Any) -> tuple[StereoMatcher, Path]:
    """Load a network for disparity: itself, and its file. settings: those of `StereoMatcher.load`.

    Raises ModelError, DeviceError, UsageError.
    """
    path = locate(weights)
    from pamcli.inference.matcher import StereoMatcher

    matcher = StereoMatcher.load(path, **settings)
    limit = "none" if matcher.max_disparity is None else f"{matcher.max_disparity} px"
    resized = "" if matcher.match_size == 1 else f", match size {matcher.match_size}"
    _say(matcher, weights, path, f"maximum disparity {limit}{resized}")
    return matcher, path


def load_upscaler(
    weights: str | Path | None, scale: float | None, *, camera: bool = False, **settings: Any
) -> tuple[StereoUpscaler, Path]:
    """Load a network for super-resolution: itself, and its file. settings: those of `StereoUpscaler.load`.

    scale: how many times it has to enlarge, at most so many times as the network does; None: as that does.
    camera: if no weights are named, take those for pictures with the faults that cameras make.
    Raises ModelError, DeviceError, UsageError.
    """
    name = weights or default_upscaling(scale, camera=camera)
    path = locate(name)
    # An .onnx file is read by ONNX Runtime alone, and a description says nothing of weights.
    stored = None if path.suffix in (".onnx", ".toml") else read_header(path).spec.scale
    if scale is not None and stored is not None and scale > stored:
        raise UsageError(f"{name} enlarges {stored} times, not {scale:g}", "leave out `scale` or `weights`")
    from pamcli.inference.upscaler import StereoUpscaler

    upscaler = StereoUpscaler.load(path, scale=scale, **settings)
    _say(upscaler, name, path, f"enlarges {upscaler.scale:g} times")
    return upscaler, path


def _say(network: StereoMatcher | StereoUpscaler, weights: str | Path, path: Path, does: str) -> None:
    """Log what a network is, and where one runs that is not pam's own: it may be where nobody expected it."""
    if network.model.says is not None:
        LOG.info("%s", network.model.says)
    LOG.debug("%s: %s, %s, %s", weights, path, ", ".join(network.compute.describe().values()), does)
