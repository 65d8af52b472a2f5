"""Read the supported data sets; `data_sets.toml` has their texts, and the file patterns of most.

To add a data set, add a table to `data_sets.toml`, and a reader to `patterned` or a module of its own.
"""

from collections.abc import Mapping

from pamcli.data.source import Key, SourceInfo
from pamcli.data.sources import bag, flickr1024, middlebury, pairs, patterned, procedural

_MODULES = bag, flickr1024, middlebury, pairs, procedural
_ROWS = [*patterned.ROWS.values(), *(module.INFO for module in _MODULES)]

SOURCES: Mapping[str, SourceInfo] = {row.name: row for row in sorted(_ROWS, key=lambda row: row.name)}
"""Rows of all data sets by name."""

COMMON_KEYS = (
    Key("first", "use only the first N samples", ()),
    Key("weight", "frequency in training relative to other data sets", ()),
)
"""Keys that every data set accepts."""
