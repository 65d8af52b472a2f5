"""Load the stereo model of some weights: pam's own networks, exported files, and foreign networks."""

from dataclasses import replace
from pathlib import Path

from pamcli.errors import UsageError
from pamcli.inference import device as devices
from pamcli.inference.foreign import ForeignModel
from pamcli.inference.model import StereoModel, TorchModel
from pamcli.inference.onnx_file import OnnxModel, is_exported
from pamcli.registry import load
from pamcli.registry.catalog import REGISTERED, REMOTE, locate


def load_model(
    weights: str | Path, device: str, precision: str, *, network_from: str | None = None
) -> StereoModel:
    """Load the network that a `weights` value names; arguments and errors as in `StereoMatcher.load`."""
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
