"""Load the stereo model of some weights: pam's own networks, exported files, and foreign networks."""

from dataclasses import replace
from pathlib import Path

from pamcli.errors import UsageError
from pamcli.inference.device import Compute
from pamcli.inference.foreign import ForeignModel
from pamcli.inference.model import StereoModel, TorchModel
from pamcli.inference.onnx_file import SUFFIX, OnnxModel, is_exported
from pamcli.registry import description
from pamcli.registry.catalog import locate
from pamcli.registry.load import load_network


def load_model(
    weights: str | Path, device: str, precision: str, *, network_from: str | None = None
) -> StereoModel:
    """Load the network that a `weights` value names.

    Args:
        weights: A registered name, a path (.safetensors, .onnx or a description), or hf:owner/repo/file.
        device: auto, cpu, cuda, cuda:N, mps, or one of ONNX Runtime's.
        precision: fp32, bf16 or fp16; auto = the fastest that hardly changes the results.
        network_from: "module:function" that builds the network which `weights` describes.

    Raises:
        ModelError: The file is missing, damaged or not supported.
        DeviceError: The machine lacks the device or the precision.
        UsageError: Unknown or incompatible values.
    """
    path = locate(weights)
    if network_from is not None and path.suffix != description.SUFFIX:
        raise UsageError(
            "`network_from` requires a description as `weights`",
            "write one: pam weights describe --network-from MODULE:FUNCTION -o NET.toml",
        )
    if path.suffix == SUFFIX and is_exported(path):
        return OnnxModel(path, device, precision)
    if path.suffix in (SUFFIX, description.SUFFIX):
        return ForeignModel.load(path, device, precision, network_from)
    compute = Compute.choose(device, precision, reduce=True)  # before the weights: it may fail at once
    network, spec = load_network(path)
    if precision == "auto" and not spec.row.sixteen_bits:
        compute = replace(compute, precision="fp32")
    return TorchModel(network, spec, compute)
