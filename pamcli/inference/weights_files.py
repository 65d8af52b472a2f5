"""What files of weights of every kind say about themselves, and whether they are whole."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import safe_open

from pamcli.registry.spec import read_header


def describe_weights(path: Path) -> dict[str, Any]:
    """State what a file says, by name; of ONNX after ONNX Runtime has loaded it. Raises ModelError."""
    if path.suffix == ".onnx":
        return {**_exported(path), "bytes": path.stat().st_size}
    if path.suffix == ".toml":
        from pamcli.registry.description import read_description

        return {**asdict(read_description(path)), "bytes": path.stat().st_size}  # type: ignore[call-overload]
    file = read_header(path)
    more = {"parameters": file.parameters, "precision": file.precision, "bytes": file.size}
    return {**asdict(file.spec), **more}


def find_non_finite(path: Path) -> list[str]:
    """Name the tensors of a safetensors file that hold NaN or infinite values; of other files none."""
    if path.suffix in (".onnx", ".toml"):
        return []
    import numpy as np  # not for `pam --help`

    plain = read_header(path).precision in ("fp16", "fp32", "fp64")  # NumPy knows no bf16
    with safe_open(path, "numpy" if plain else "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    finite = np.isfinite if plain else lambda values: values.isfinite()
    return [name for name, values in tensors.items() if not finite(values).all()]


def _exported(path: Path) -> dict[str, Any]:
    from pamcli.inference.onnx_file import OnnxModel, is_exported

    if is_exported(path):
        network = OnnxModel(path, "cpu")
        names = {"size": "size", "precision": "precision", "exported_from": "name"}
        names["weights_sha256"] = "weights_sha256"
        return asdict(network.spec) | {key: network.said.get(name) for key, name in names.items()}
    from pamcli.inference.foreign import recognised
    from pamcli.inference.runners import Session

    session = Session.load(path, "cpu")
    family = getattr(recognised(session, path.name), "family", None)
    ports = {"inputs": session.interface.inputs, "outputs": session.interface.outputs}
    shown = {key: ", ".join(map(str, each)) for key, each in ports.items()}
    return {"family": family or "none that pam knows", **shown}


def check_complete(path: Path) -> None:
    """Raise ModelError where a network cannot be made of a file, or an ONNX file is not as it was written."""
    if path.suffix == ".onnx":
        from pamcli.inference.onnx_file import require_as_sealed

        _exported(path)
        require_as_sealed(path)
    elif path.suffix == ".toml":
        from pamcli.inference.foreign import ForeignModel

        ForeignModel.load(path, "cpu", "auto", None)
    else:
        from pamcli.registry.load import load_network

        load_network(path)
