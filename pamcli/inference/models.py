"""A stereo model of some weights: networks of pam, exported files, and networks of others."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pamcli.errors import UsageError
from pamcli.inference import Progress
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
    """Load what a `weights` value names.

    Args:
        weights: A registered name, a path (of .safetensors, .onnx or a description), or hf:owner/repo/file.
        device: auto, cpu, cuda, cuda:N, mps, or one of ONNX Runtime's.
        precision: auto is the fastest that changes next to nothing.
        network_from: "module:function" that makes the network which `weights` describes.

    Raises:
        ModelError: The file is missing, damaged or of no known kind.
        DeviceError: The machine lacks the device or the precision.
        UsageError: Values that do not exist or do not go together.
    """
    path = locate(weights)
    if network_from is not None and path.suffix != description.SUFFIX:
        raise UsageError(
            "`network_from` needs a description as `weights`",
            "pam weights describe --network-from MODULE:FUNCTION -o NET.toml writes one",
        )
    if path.suffix == SUFFIX and is_exported(path):
        return OnnxModel(path, device, precision)
    if path.suffix in (SUFFIX, description.SUFFIX):
        return ForeignModel.load(path, device, precision, network_from)
    compute = Compute.choose(device, precision, reduce=True)  # first: a wrong device needs no weights
    network, spec = load_network(path)
    if precision == "auto" and not spec.row.sixteen_bits:
        compute = replace(compute, precision="fp32")
    return TorchModel(network, spec, compute)


def portions(progress: Progress | None, work: Sequence[float]) -> list[Progress]:
    """Split the progress of several pieces of work, one after the other.

    Args:
        progress: Is told the share of all work that is done.
        work: How long each piece takes, in any unit.

    Returns:
        For each piece what its share is told to.
    """
    tell = progress or (lambda share: None)
    told: list[Progress] = []
    begin = 0.0
    for size in work:
        told.append(partial(_tell_portion, tell, begin / sum(work), size / sum(work)))
        begin += size
    return told


def _tell_portion(tell: Progress, begin: float, size: float, share: float) -> None:
    tell(begin + share * size)
