"""What a text such as pairs:mine says, and the data set it means: NAME[/SPLIT]:PATH[?key=value&...].

Of data sets that need no folder, NAME[?key=value&...] is enough.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pamcli.data.source import Source, SourceInfo
from pamcli.data.sources import COMMON_KEYS, SOURCES
from pamcli.errors import InputError, UsageError, did_you_mean
from pamcli.files.finding import shown


@dataclass(frozen=True)
class DataSpec:
    """A data set that was asked for, checked against the table of sources, not yet looked for on disk."""

    text: str
    """As it was given."""
    info: SourceInfo
    split: str
    path: Path | None
    """None where a data set that needs no folder was given without one."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Those of the source itself, defaults not filled in."""
    first: int | None = None
    weight: float = 1.0

    @property
    def label(self) -> str:
        """NAME/SPLIT, for tables."""
        return self.info.name if len(self.info.splits) == 1 else f"{self.info.name}/{self.split}"


def parse_data(text: str) -> DataSpec:
    """Take apart NAME[/SPLIT]:PATH[?key=value&...].

    The first colon ends the name, later ones belong to the path; keys begin at the last "?" that no "/"
    follows. "~" at the beginning of the path is the home folder.
    Raises UsageError: unknown name, split, key or value, with the known ones and the nearest.
    """
    head, colon, rest = text.partition(":")
    alone, _, query = text.partition("?")
    if alone in SOURCES and not SOURCES[alone].needs_folder:
        return _spec(text, SOURCES[alone], SOURCES[alone].splits[0], None, query)
    name, slash, split = head.partition("/")
    if not colon or (name not in SOURCES and not re.fullmatch(r"\w+", name)):
        hint = f"give NAME:PATH, NAME one of {', '.join(SOURCES)}"
        raise UsageError(f"{text!r} does not begin with the name of a data set", hint)
    info = SOURCES.get(name)
    if info is None:
        raise unknown("data set", name, list(SOURCES))
    split = split if slash else info.splits[0]
    if split not in info.splits:
        raise unknown(f"split of {name}", split, info.splits)
    path, question, query = rest.rpartition("?")
    if not question or not query or ("/" in query and not _names_templates(query)):
        path, query = rest, ""
    if not path:
        alone = "" if info.needs_folder else f", or {name} alone"
        raise UsageError(f"{text!r} names no folder", f"{name}:PATH{alone}")
    return _spec(text, info, split, Path(os.path.expanduser(path)), query)


def _spec(text: str, info: SourceInfo, split: str, path: Path | None, query: str) -> DataSpec:
    keys = _keys(query, info)
    first, weight = keys.pop("first", None), keys.pop("weight", None)
    numbers = _count(first) if first else None, _weight(weight) if weight else 1.0
    return DataSpec(text, info, split, path, keys, *numbers)


def open_data(data: str | DataSpec) -> Source:
    """The data set that a text means; its samples are listed, no picture is read.

    Raises UsageError as `parse_data` does, InputError: no such folder, or its tree is not recognised.
    """
    spec = parse_data(data) if isinstance(data, str) else data
    may_be_file = spec.info.name == "pairs" and spec.path is not None and spec.path.is_file()
    if spec.path is not None and not spec.path.is_dir() and not may_be_file:
        what = "is not a folder" if spec.path.exists() else "does not exist"
        raise InputError(f"{shown(spec.path)} {what}", f"give the folder that holds {spec.info.name}")
    source = spec.info.open(spec.path, spec.split, spec.keys)
    if spec.path is not None and not len(source):
        asked = "".join(f", {key}={value}" for key, value in spec.keys.items())
        unpaired = f"; {source.unpaired[0]}" if source.unpaired else ""
        raise InputError(
            f"{shown(spec.path)} holds no pair of {spec.label}{asked}{unpaired}",
            f"expected {spec.info.expected(spec.split)}",
        )
    if spec.first is not None:
        source = source.first(spec.first)
    source.spec = spec
    return source


def names_source(text: str) -> bool:
    """Whether it begins as NAME: or NAME/SPLIT: of a data set do."""
    match = re.match(r"(\w+)(/\w+)?:", text)
    return match is not None and match[1] in SOURCES


def unknown(kind: str, given: str, known: Sequence[str]) -> UsageError:
    """What to say of a name that is none of the known ones."""
    return UsageError(f"unknown {kind}: {given!r}", f"{did_you_mean(given, known)}known: {', '.join(known)}")


def _keys(query: str, info: SourceInfo) -> dict[str, str]:
    known = {key.name: key for key in info.keys}
    common = [name for name, _ in COMMON_KEYS]
    found: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        name, equals, value = item.partition("=")
        if not equals or not value:
            raise UsageError(
                f"{item!r} is not key=value", f"keys of {info.name}: {', '.join([*known, *common])}"
            )
        if name in found:
            raise UsageError(f"{name} is given twice in {query!r}")
        if name in known:
            if known[name].choices and value not in known[name].choices:
                raise unknown(f"{name} of {info.name}", value, known[name].choices)
        elif name not in common:
            raise unknown(f"key of {info.name}", name, [*known, *common])
        found[name] = value
    return found


def _names_templates(query: str) -> bool:
    """Whether each "/" of it stands in a template of views, and in no folder's name that has a "?"."""
    return all("/" not in item or "{}" in item.partition("=")[2] for item in query.split("&"))


def _count(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 19 and int(value) > 0):
        raise UsageError(f"first={value[:40]} is not a whole number above 0 of at most 18 digits")
    return int(value)


def _weight(value: str) -> float:
    try:
        weight = float(value)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= 1e9:
        raise UsageError(f"weight={value[:40]} is not a number above 0, at most 1e9")
    return weight
