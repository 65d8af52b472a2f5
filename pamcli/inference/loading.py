"""A network from its weights or from an exported file, and where it is computed."""

from pathlib import Path

from pamcli.inference.device import Compute
from pamcli.inference.onnx_file import SUFFIX, OnnxNetwork
from pamcli.registry.catalog import locate
from pamcli.registry.load import Network, load_network
from pamcli.registry.spec import ModelSpec


def load(
    weights: str | Path, device: str, precision: str, *, reduce: bool = False
) -> tuple[Network | OnnxNetwork, ModelSpec, Compute]:
    """What a `weights` value names; `reduce` as of `Compute.choose`.

    Raises ModelError, DeviceError, UsageError.
    """
    path = locate(weights).path
    if path.suffix == SUFFIX:
        exported = OnnxNetwork(path, device, precision)
        return exported, exported.spec, exported.compute
    compute = Compute.choose(device, precision, reduce=reduce)  # first: a wrong device needs no weights
    return *load_network(path), compute
