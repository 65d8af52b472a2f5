"""Which network do settings name? It is found and loaded, and the log says what it is."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pamcli.errors import UsageError
from pamcli.registry.catalog import default_upscaling, locate
from pamcli.registry.spec import read_header

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.upscaler import StereoUpscaler

LOG = logging.getLogger("pamcli")
COMPUTE = ("device", "precision", "max_memory", "network_from")
MATCHING = ("max_disparity", "min_disparity", "match_size")


def load_matcher(settings: Any, max_memory: int | None = None) -> tuple[StereoMatcher, Path]:
    """Load a network for disparity: itself, and its file.

    Args:
        settings: Those of a command that matches (`settings.shared.Matcher` and `Compute`).
        max_memory: Bytes, in place of those of the settings.

    Raises ModelError, DeviceError, UsageError.
    """
    path = locate(settings.name)
    from pamcli.inference.matcher import StereoMatcher

    given = {name: getattr(settings, name) for name in (*COMPUTE, *MATCHING) if hasattr(settings, name)}
    matcher = StereoMatcher.load(path, **given | {"max_memory": max_memory or settings.max_memory})
    limit = "none" if matcher.max_disparity is None else f"{matcher.max_disparity} px"
    resized = "" if matcher.match_size == 1 else f", match size {matcher.match_size}"
    _log(matcher, settings.name, path, f"maximum disparity {limit}{resized}")
    return matcher, path


def load_upscaler(
    settings: Any, *, camera: bool = False, max_memory: int | None = None
) -> tuple[StereoUpscaler, Path]:
    """Load a network for super-resolution: itself, and its file.

    Args:
        settings: Those of a command that upscales (`settings.shared.Upscaling` and `Compute`).
        camera: If no weights are named, take those for images with the faults that cameras make.
        max_memory: Bytes, in place of those of the settings.

    Raises ModelError, DeviceError, UsageError.
    """
    scale = settings.scale
    name = settings.weights or default_upscaling(scale, camera=camera)
    path = locate(name)
    # An .onnx file is read by ONNX Runtime alone, and a description says nothing of weights.
    stored = None if path.suffix in (".onnx", ".toml") else read_header(path).spec.scale
    if scale is not None and stored is not None and scale > stored:
        raise UsageError(f"{name} enlarges {stored} times, not {scale:g}", "leave out `scale` or `weights`")
    from pamcli.inference.upscaler import StereoUpscaler

    given = {each: getattr(settings, each) for each in (*COMPUTE, "scale", "ensemble")}
    upscaler = StereoUpscaler.load(path, **given | {"max_memory": max_memory or settings.max_memory})
    _log(upscaler, name, path, f"enlarges {upscaler.scale:g} times")
    return upscaler, path


def _log(network: StereoMatcher | StereoUpscaler, weights: str | Path, path: Path, does: str) -> None:
    """Log what a network is, and where one runs that is not pam's own: it may be where nobody expected it."""
    if network.model.says is not None:
        LOG.info("%s", network.model.says)
    LOG.debug("%s: %s, %s, %s", weights, path, ", ".join(network.compute.describe().values()), does)
