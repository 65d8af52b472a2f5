"""Load networks from weights files and save them."""

import json
import math
from importlib import import_module
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from pamcli.errors import ModelError
from pamcli.files.atomic import write_atomically
from pamcli.registry.architectures import PAPER, parse_variant
from pamcli.registry.catalog import ModelSpec, read_header

STORED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # supported precisions

Network = torch.nn.Module  # a network built from one of the rows in `architectures`


def build_network(spec: ModelSpec, device: str = "cpu") -> Network:
    """Build the network that a file describes; on the device "meta", without memory for its tensors."""
    module, _, attribute = spec.row.network.partition(":")
    build = getattr(import_module(module), attribute)
    scales = () if spec.scale is None else (spec.scale,)
    values = spec.row.published
    if spec.variant != PAPER:
        values = parse_variant(spec.architecture, spec.variant).values
    with torch.device(device):
        network: Network = build(*scales, **values)
    return network


def load_network(path: Path) -> tuple[Network, ModelSpec]:
    """Load a network in evaluation mode, in float32 on the CPU, and its description; raise ModelError."""
    spec = read_header(path).spec
    try:
        state = safetensors.torch.load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is damaged: {error}", "download or convert it again") from error
    for key, value in state.items():
        state[key] = value.float() if value.is_floating_point() else value
    network = check_state(state, spec, str(path))
    network.load_state_dict(state, assign=True)
    return network.eval().requires_grad_(False), spec


def check_state(state: dict[str, Tensor], spec: ModelSpec, name: str) -> Network:
    """Return the network without tensors; raise ModelError if `state` does not fit it, or is not finite."""
    empty = build_network(spec, "meta")
    expected = empty.state_dict()
    wrong = []
    for key in state:
        if key not in expected:
            wrong.append(f"{key} is unknown")
    for key, fitting in expected.items():
        value = state.get(key)
        if value is None:
            wrong.append(f"{key} is missing")
        elif value.shape != fitting.shape:
            wrong.append(f"{key} is {list(value.shape)}, not {list(fitting.shape)}")
        elif value.dtype not in (STORED if fitting.is_floating_point() else (fitting.dtype,)):
            wrong.append(f"{key} is {value.dtype}")
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        network = spec.architecture if spec.variant == PAPER else f"{spec.architecture} with {spec.variant}"
        raise ModelError(f"{name} does not fit {network}: {', '.join(wrong[:3])}{more}", spec.row.changed)
    for value in state.values():
        low, high = value.aminmax()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ModelError(f"{name} holds NaN or infinite values", "train again: the training diverged")
    return empty


def save_network(state: dict[str, Tensor], spec: ModelSpec, path: Path, *, half: bool = False) -> None:
    """Write tensors in their precision, or `half` where possible, and the description, atomically."""
    stored = {}
    for key, value in sorted(state.items()):
        stored[key] = (to_half(value) if half else value).detach().cpu().contiguous()
    file = safetensors.torch.save(stored, spec.to_metadata())
    # Sort the metadata by name, because the library's order varies between runs.
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    assert len(text) <= length
    write_atomically(path, file[:8] + text.ljust(length) + file[8 + length :])


def to_half(value: Tensor) -> Tensor:
    """Convert to half precision, except integers and values beyond its range."""
    half = value.half() if value.is_floating_point() else value
    return half if half.isfinite().all() else value
