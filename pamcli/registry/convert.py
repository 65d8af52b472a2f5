"""Import checkpoints of the authors and PASMnet 2: `.pth` (state dict) and `.pth.tar` (record with one)."""

import math
import pickle
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from pamcli.errors import ModelError, UsageError
from pamcli.registry.architectures import ARCHITECTURES, SCALES
from pamcli.registry.catalog import OTHERS, ModelSpec, convert_read_errors, find_variant, read_header, sha256
from pamcli.registry.load import check_state

# The authors' records store scores as NumPy scalars; these constructors cannot run foreign code.
NUMPY_SCALARS = [
    np._core.multiarray.scalar,  # type: ignore[attr-defined]
    (np._core.multiarray.scalar, "numpy.core.multiarray.scalar"),  # type: ignore[attr-defined] # its old name
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
    np.dtypes.Int64DType,
]


def read_checkpoint(
    path: Path, *, max_disparity: int | None = None, **facts: str
) -> tuple[dict[str, Tensor], ModelSpec]:
    """Load the tensors of a checkpoint in their precision, and describe the network they belong to."""
    # `facts`: training, licence and version of the description.
    # `max_disparity`: search range of a PASMnet, which its tensors do not show.
    if max_disparity is not None and max_disparity % 16:
        raise UsageError(f"`max_disparity` must be a multiple of 16 px, got {max_disparity} px")
    with suppress(ModelError):
        read_header(path)
        raise UsageError(f"{path} is already a weights file of pam", "use it directly")
    state = read_state_dict(path)
    architecture, scale = _recognise(state, path)
    if max_disparity is not None and ARCHITECTURES[architecture].task != "disparity":
        raise UsageError(f"{path} holds a {architecture}, which has no maximum disparity", "omit it")
    spec = ModelSpec(
        architecture,
        variant=find_variant(ARCHITECTURES[architecture], {key: value.shape for key, value in state.items()}),
        scale=scale,
        max_disparity=max_disparity,
        **facts,
        source=f"{path.name}, sha256 {sha256(path)}",
    )
    check_state(state, spec, str(path))
    return state, spec


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a PyTorch or safetensors file, without the prefix `module.`; raise ModelError."""
    loaded = _load(path)
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not state or not all(isinstance(v, Tensor) for v in state.values()):
        raise ModelError(f"{path} has no state dict", "use a .pth or .pth.tar checkpoint of the authors")
    for key, value in state.items():
        if value.is_nested or value.is_meta or value.layout != torch.strided:
            raise ModelError(f"{path}: {key} must be a dense tensor", "save the checkpoint again")
    return {str(key).removeprefix("module."): value for key, value in state.items()}


def _load(path: Path) -> Any:
    try:
        with (
            convert_read_errors(path, what="checkpoint"),
            torch.serialization.safe_globals(NUMPY_SCALARS),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # about the pickle protocol
            if path.suffix == ".safetensors":
                return safetensors.torch.load_file(path)
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        problem = f"{path} is damaged, or holds Python objects, which pam never executes"
        raise ModelError(problem, "save only its state dict") from error
    except (MemoryError, ModelError):
        raise
    except Exception as error:  # invalid files raise almost any exception class
        what = f"{path} is not a PyTorch checkpoint, or is damaged"
        raise ModelError(what, f"download it again; TorchScript, and {OTHERS}") from error


def _recognise(state: dict[str, Tensor], path: Path) -> tuple[str, int | None]:
    for row in ARCHITECTURES.values():
        if not row.signature or not state.keys() >= {*row.signature}:
            continue
        if row.task == "disparity":
            return row.name, None
        last = state.get(row.scale_key or "")
        if last is not None and last.ndim:
            scale = math.isqrt(last.shape[0] // 64)
            if scale in SCALES and 64 * scale**2 == last.shape[0]:
                return row.name, scale
    what = f"{path} is neither a PASMnet nor a PASSRnet (first keys: {', '.join(list(state)[:3])})"
    raise ModelError(what, f"only checkpoints in the authors' layout can be imported; {OTHERS}")
