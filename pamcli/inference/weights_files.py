"""Read the facts in weights files of every kind, and check that they are complete."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import safe_open

from pamcli.registry.catalog import read_header


def describe_weights(path: Path) -> dict[str, Any]:
    """Return the facts in a file by name; raise ModelError if it cannot be read."""
    if path.suffix == ".onnx":
        facts = _describe_onnx(path)
    elif path.suffix == ".toml":
        from pamcli.registry.description import read_description

        facts = asdict(read_description(path))  # type: ignore[call-overload]
    else:
        file = read_header(path)
        facts = {**asdict(file.spec), "parameters": file.parameters, "precision": file.precision}
    return {**facts, "bytes": path.stat().st_size}


def find_non_finite(path: Path) -> list[str]:
    """Return the tensors of a safetensors file that hold NaN or infinite values; [] for other files."""
    if path.suffix in (".onnx", ".toml"):
        return []
    import numpy as np  # keeps `pam --help` fast

    plain = read_header(path).precision in ("fp16", "fp32", "fp64")  # NumPy has no bf16
    with safe_open(path, "numpy" if plain else "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    finite = np.isfinite if plain else lambda values: values.isfinite()
    return [name for name, values in tensors.items() if not finite(values).all()]


def _describe_onnx(path: Path) -> dict[str, Any]:
    from pamcli.inference.onnx_file import DYNAMIC, OnnxModel, is_exported

    if is_exported(path):
        model = OnnxModel(path, "cpu")
        names = {"precision": "precision", "exported_from": "name", "weights_sha256": "weights_sha256"}
        size = DYNAMIC if model.size is None else f"{model.size[1]}x{model.size[0]}"
        return asdict(model.spec) | {"size": size} | {k: model.metadata.get(v) for k, v in names.items()}
    from pamcli.inference.foreign import recognise_session
    from pamcli.inference.runners import Session

    session = Session.load(path, "cpu")
    family = getattr(recognise_session(session, path.name), "family", None)
    ports = {"inputs": session.interface.inputs, "outputs": session.interface.outputs}
    shown = {key: ", ".join(map(str, each)) for key, each in ports.items()}
    return {"family": family or "unknown", **shown}


def check_complete(path: Path) -> None:
    """Raise ModelError if no network can be built from a file, or an ONNX file was changed."""
    if path.suffix == ".onnx":
        from pamcli.inference.onnx_file import check_seal

        _describe_onnx(path)
        check_seal(path)
    elif path.suffix == ".toml":
        from pamcli.inference.foreign import ForeignModel

        ForeignModel.load(path, "cpu", "auto", None)
    else:
        from pamcli.registry.load import load_network

        load_network(path)
