"""The data sets: how each is read and, beside that, its row of the table.

Whoever adds one adds a row to `patterned` or `rendered`, or a file with a `SourceInfo`; nothing else need
know of it.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from pamcli.data.source import Key, SourceInfo

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_ROWS = [row for module in _MODULES for row in vars(module).values() if isinstance(row, SourceInfo)]

SOURCES: Mapping[str, SourceInfo] = {row.name: row for row in sorted(_ROWS, key=lambda row: row.name)}
"""Every data set by its name."""

COMMON_KEYS = (
    Key("first", "only the first N samples", ()),
    Key("weight", "how often in training, against other sets", ()),
)
"""Keys that every data set knows, with what they mean."""
