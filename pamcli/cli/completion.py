"""What a shell's tab key is offered as values of options."""

from collections.abc import Iterable
from glob import glob


def weights(incomplete: str) -> list[str]:
    """Names of `pam weights list`, and files."""
    from pamcli.registry.catalog import REGISTERED

    files = [*glob(f"{incomplete}*.safetensors"), *glob(f"{incomplete}*.onnx")]
    return [*_begin(REGISTERED, incomplete), *sorted(files)]


def data(incomplete: str) -> list[str]:
    """Names of `pam dataset list`; after the colon, what stands in the file system."""
    from pamcli.data.sources import SOURCES

    name, colon, path = incomplete.partition(":")
    if colon:
        return [f"{name}:{found}" for found in sorted(glob(f"{path}*/"))]
    return [f"{found}:" for found in _begin(SOURCES, incomplete)]


def _begin(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
