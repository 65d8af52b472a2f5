"""What does the tab key offer: names of weights, data sets and protocols, and files."""

from collections.abc import Callable, Iterable
from glob import glob
from typing import Any

from pamcli.registry.catalog import REGISTERED
from pamcli.settings.options import argument


def data_sets() -> Iterable[str]:
    """Names of `pam dataset list`."""
    from pamcli.data.sources import SOURCES

    return SOURCES


def protocols() -> Iterable[str]:
    """Names of `pam eval protocols`."""
    from pamcli.evaluation.protocols import PROTOCOLS

    return PROTOCOLS


def _complete_data(incomplete: str) -> list[str]:
    """Complete the name of a data set; after the colon, what stands in the file system."""
    name, colon, path = incomplete.partition(":")
    if colon:
        return [f"{name}:{found}" for found in sorted(glob(f"{path}*/"))]
    return [f"{found}:" for found in data_sets() if found.startswith(incomplete)]


def _complete_weights(incomplete: str) -> list[str]:
    """Complete a name of `pam weights list`, or a file."""
    files = [name for suffix in ("safetensors", "onnx", "toml") for name in glob(f"{incomplete}*.{suffix}")]
    return [*(name for name in REGISTERED if name.startswith(incomplete)), *sorted(files)]


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return what completes one of these names."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


COMPLETIONS: dict[str, Callable[[str], list[str]]] = {
    "data": _complete_data,
    "weights": _complete_weights,
    "protocols": completing(protocols),
    "data sets": completing(data_sets),
}


def one_or_all(what: str, names: str | Callable[[str], list[str]], metavar: str = "NAME") -> Any:
    """The argument of a command that lists what there is, or shows the one of this name."""
    return argument(
        f"Name of {what}; by default all are listed.", metavar=metavar, show_default=False, complete=names
    )
