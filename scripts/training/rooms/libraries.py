"""List the models of furniture libraries (.sh3f files of Sweet Home 3D)."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import NamedTuple

LARGEST_FILE = 1_500_000  # bytes of an OBJ file; larger models take too long to import
ENTRY = re.compile(r"(\w+)#(\d+)=(.*)")


class Model(NamedTuple):
    """A model of a library."""

    library: Path
    file: str  # OBJ file in the library
    category: str
    longest: float  # longest side, m


def list_models(path: Path) -> list[Model]:
    """Return the models of a library that are small enough."""
    with zipfile.ZipFile(path) as library:
        text = library.read("PluginFurnitureCatalog.properties").decode("latin1")
        entries: dict[str, dict[str, str]] = {}
        for key, number, value in ENTRY.findall(text):
            entries.setdefault(number, {})[key] = value.strip()
        models, names = [], set(library.namelist())
        for entry in entries.values():
            file = entry.get("model", "").lstrip("/")
            try:
                longest = max(float(entry[side]) for side in ("width", "depth", "height")) / 100
            except (KeyError, ValueError):
                continue
            if file.endswith(".obj") and file in names and library.getinfo(file).file_size <= LARGEST_FILE:
                models.append(Model(path, file, entry.get("category", ""), longest))
    return models
