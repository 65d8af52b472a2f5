"""Complete names of weights, data sets and protocols, and files in the shell."""

from collections.abc import Callable, Iterable
from glob import glob
from typing import Any

from pamcli.registry.catalog import REGISTERED
from pamcli.settings.options import argument


def data_sets() -> Iterable[str]:
    """Return the names of the data sets."""
    from pamcli.data.sources import SOURCES

    return SOURCES


def protocols() -> Iterable[str]:
    """Return the names of the protocols."""
    from pamcli.evaluation.protocols import PROTOCOLS

    return PROTOCOLS


def _complete_data(incomplete: str) -> list[str]:
    """Complete the name of a data set; after the colon, a folder."""
    name, colon, path = incomplete.partition(":")
    if colon:
        return [f"{name}:{found}" for found in sorted(glob(f"{path}*/"))]
    return [f"{found}:" for found in data_sets() if found.startswith(incomplete)]


def _complete_weights(incomplete: str) -> list[str]:
    """Complete the name of weights, or a file."""
    files = [name for suffix in ("safetensors", "onnx", "toml") for name in glob(f"{incomplete}*.{suffix}")]
    return [*(name for name in REGISTERED if name.startswith(incomplete)), *sorted(files)]


def make_completer(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that completes one of these names."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


COMPLETIONS: dict[str, Callable[[str], list[str]]] = {
    "data": _complete_data,
    "weights": _complete_weights,
    "protocols": make_completer(protocols),
    "data sets": make_completer(data_sets),
}


def make_name_argument(what: str, names: str | Callable[[str], list[str]], metavar: str = "NAME") -> Any:
    """Return the argument of a command that lists all names, or shows one."""
    return argument(f"Name of {what}.", metavar=metavar, show_default="list all", complete=names)
