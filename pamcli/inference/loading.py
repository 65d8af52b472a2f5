"""Load the matcher or upscaler that the settings of a command name, and log its device."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pamcli.errors import UsageError
from pamcli.registry.catalog import default_upscaling, locate
from pamcli.registry.spec import read_header
from pamcli.settings.shared import Matcher, Matching, Upscaling

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.upscaler import StereoUpscaler

LOG = logging.getLogger("pamcli")
COMPUTE = ("device", "precision", "max_memory", "network_from")  # arguments of `load` that settings hold
MATCHING = (*COMPUTE, "max_disparity", "min_disparity", "match_size", "effort")
UPSCALING = (*COMPUTE, "scale", "ensemble")


def load_matcher(settings: Matcher) -> tuple[StereoMatcher, Path]:
    """Load the network that the settings of a command, also a `Compute`, name; return it with its file."""
    path = locate(settings.name)
    from pamcli.inference.matcher import StereoMatcher

    names = MATCHING if isinstance(settings, Matching) else COMPUTE
    arguments: Any = {name: getattr(settings, name) for name in names}
    matcher = StereoMatcher.load(path, **arguments)
    limit = "none" if matcher.max_disparity is None else f"{matcher.max_disparity} px"
    resized = "" if matcher.match_size == 1 else f", matching resolution {matcher.match_size}"
    _log(matcher, settings.name, path, f"maximum disparity {limit}{resized}")
    return matcher, path


def load_upscaler(settings: Upscaling, *, camera: bool = False) -> tuple[StereoUpscaler, Path]:
    """Load the network that settings, also a `Compute`, name. camera: prefer weights for camera images."""
    scale = settings.scale
    name = settings.weights or default_upscaling(scale, camera=camera)
    path = locate(name)
    stored = None if path.suffix in (".onnx", ".toml") else read_header(path).spec.scale
    if scale is not None and stored is not None and scale > stored:
        raise UsageError(f"{name} upscales by {stored}, not by {scale:g}", "omit `scale` or `weights`")
    from pamcli.inference.upscaler import StereoUpscaler

    arguments: Any = {name: getattr(settings, name) for name in UPSCALING}
    upscaler = StereoUpscaler.load(path, **arguments)
    _log(upscaler, name, path, f"upscales by {upscaler.scale:g}")
    return upscaler, path


def _log(network: StereoMatcher | StereoUpscaler, weights: str | Path, path: Path, task: str) -> None:
    if network.model.runtime_note is not None:
        LOG.info("%s", network.model.runtime_note)
    LOG.debug("%s: %s, %s, %s", weights, path, ", ".join(network.compute.describe().values()), task)
