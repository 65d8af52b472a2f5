"""Load the model, matcher or upscaler that settings or weights name."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pamcli.errors import UsageError
from pamcli.registry.catalog import REGISTERED, REMOTE, default_upscaling, locate
from pamcli.registry.spec import read_header
from pamcli.settings.shared import Matcher, Matching, Upscaling

if TYPE_CHECKING:
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.model import StereoModel
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


def load_model(
    weights: str | Path, device: str, precision: str, *, network_from: str | None = None
) -> StereoModel:
    """Load the network that a `weights` value names; arguments and errors as in `StereoMatcher.load`."""
    from pamcli.inference import device as devices
    from pamcli.inference.foreign import ForeignModel
    from pamcli.inference.model import TorchModel
    from pamcli.inference.onnx_file import OnnxModel, is_exported
    from pamcli.registry import load

    if not isinstance(weights, str | Path):
        raise UsageError(f"`weights` must be a name or a path, got {weights!r}")
    path = locate(weights)
    devices.warn_of_spinning_threads()
    if network_from is not None and path.suffix != ".toml":
        what = "`network_from` requires a description as `weights`"
        raise UsageError(what, "write one: pam weights describe --network-from MODULE:FUNCTION -o NET.toml")
    if path.suffix == ".onnx" and is_exported(path):
        return OnnxModel(path, device, precision)
    if path.suffix in (".onnx", ".toml"):
        return ForeignModel.load(path, device, precision, network_from)
    compute = devices.Compute.choose(device, precision, reduce=True)  # before the weights: it may fail
    network, spec = load.load_network(path)
    if precision == "auto" and not spec.row.sixteen_bits:
        compute = replace(compute, precision="fp32")
    return TorchModel(network, spec, compute)


def name_portably(weights: str | Path) -> str | Path:
    """Return registered and remote names unchanged, and the absolute path of other weights."""
    is_name = isinstance(weights, str) and (weights in REGISTERED or weights.startswith(REMOTE))
    return weights if is_name else Path(weights).absolute()
