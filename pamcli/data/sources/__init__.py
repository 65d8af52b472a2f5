"""Read the supported data sets; each module declares its readers and rows of the table of data sets.

To add a data set, add a row to `photographed` or `rendered`, or a module with a `SourceInfo`.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from pamcli.data.source import Key, SourceInfo

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_ROWS = [row for module in _MODULES for row in vars(module).values() if isinstance(row, SourceInfo)]

SOURCES: Mapping[str, SourceInfo] = {row.name: row for row in sorted(_ROWS, key=lambda row: row.name)}
"""Rows of all data sets by name."""

COMMON_KEYS = (
    Key("first", "use only the first N samples", ()),
    Key("weight", "frequency in training relative to other data sets", ()),
)
"""Keys that every data set accepts."""
