"""Load the matcher or upscaler that the settings of a command name, and log its device."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pamcli.errors import UsageError
from pamcli.registry.catalog import default_upscaling, locate, read_header
from pamcli.settings.shared import Matching, Upscaling

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.upscaler import StereoUpscaler

LOG = logging.getLogger("pamcli")


def load_matcher(settings: Matching) -> tuple[StereoMatcher, Path]:
    """Load the network that the settings of a command name; return it with its file."""
    path = locate(settings.name)  # before torch is imported: it may fail
    from pamcli.inference.matcher import StereoMatcher

    matcher = StereoMatcher.from_settings(settings, path)
    if matcher.model.runtime_note is not None:
        LOG.info("%s", matcher.model.runtime_note)
    limit = "none" if matcher.max_disparity is None else f"{matcher.max_disparity} px"
    resized = "" if matcher.match_size == 1 else f", matching resolution {matcher.match_size}"
    device = ", ".join(matcher.compute.describe().values())
    LOG.debug("%s: %s, %s, maximum disparity %s%s", settings.name, path, device, limit, resized)
    return matcher, path


def load_upscaler(settings: Upscaling, *, camera: bool = False) -> tuple[StereoUpscaler, Path]:
    """Load the network that the settings name. camera: prefer weights for camera images."""
    scale = settings.scale
    name = settings.weights or default_upscaling(scale, camera=camera)
    path = locate(name)
    stored = None if path.suffix in (".onnx", ".toml") else read_header(path).spec.scale
    if scale is not None and stored is not None and scale > stored:
        raise UsageError(f"{name} upscales by {stored}, not by {scale:g}", "omit `scale` or `weights`")
    from pamcli.inference.upscaler import StereoUpscaler

    upscaler = StereoUpscaler.from_settings(settings, path)
    if upscaler.model.runtime_note is not None:
        LOG.info("%s", upscaler.model.runtime_note)
    device = ", ".join(upscaler.compute.describe().values())
    LOG.debug("%s: %s, %s, upscales by %g", name, path, device, upscaler.scale)
    return upscaler, path
