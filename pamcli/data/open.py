"""Parse and open data set specifications: NAME[/SPLIT]:PATH[?key=value&...], or NAME[?key=value&...]."""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pamcli.data.source import DataSpec, Source, SourceInfo
from pamcli.data.sources import COMMON_KEYS, SOURCES
from pamcli.errors import InputError, PamError, UsageError, did_you_mean
from pamcli.files.paths import is_recording, quote
from pamcli.files.suffixes import BAG_PREFIX


def parse_data(text: str) -> DataSpec:
    """Parse NAME[/SPLIT]:PATH[?key=value&...], or the name of a ROS bag. Raises UsageError."""
    if is_recording(text.partition("?")[0]) and not is_data_spec(text):
        text = f"{BAG_PREFIX}{text}"
    head, colon, rest = text.partition(":")
    alone, _, query = text.partition("?")
    name, slash, split = head.partition("/")
    place: str | None = None
    if alone in SOURCES and not SOURCES[alone].needs_folder:
        info, split = SOURCES[alone], SOURCES[alone].splits[0]
    elif not colon and name in SOURCES:
        raise UsageError(f"the data set {text!r} lacks a folder", f"give NAME:PATH, as in {name}:FOLDER")
    elif not colon or (name not in SOURCES and not re.fullmatch(r"\w+", name)):
        hint = f"give NAME:PATH, NAME one of {', '.join(SOURCES)}"
        raise UsageError(f"{text!r} does not begin with the name of a data set", hint)
    elif name not in SOURCES:
        raise unknown_name_error("data set", name, list(SOURCES))
    else:
        info = SOURCES[name]
        split = split if slash else info.splits[0]
        if split not in info.splits:
            raise unknown_name_error(f"split of {name}", split, info.splits)
        place, question, query = rest.rpartition("?")
        # Only a template of views, a topic of a bag, or a folder name with a "?" contains a "/".
        in_folders = []
        if question and "/" in query:
            in_folders = [it for it in query.split("&") if "/" in it and "{}" not in it.partition("=")[2]]
        if not (question and query) or (in_folders and name != "bag"):
            place, query = rest, ""
        if not place:
            hint = f"give {name}:PATH" + ("" if info.needs_folder else f", or {name} alone")
            raise UsageError(f"the data set {text!r} lacks a folder", hint)
    keys = _parse_keys(query, info) if query else {}
    first, weight = keys.pop("first", None), keys.pop("weight", "1")
    if first and not (first.isascii() and first.isdigit() and len(first) < 19 and int(first) > 0):
        raise UsageError(f"first must be a whole number above 0 with at most 18 digits, got {first[:40]}")
    try:
        factor = float(weight)
    except ValueError:
        factor = math.nan
    if not 0 < factor <= 1e9:
        raise UsageError(f"weight must be a number above 0, at most 1e9, got {weight[:40]}")
    path = None if place is None else Path(os.path.expanduser(place))
    label = info.name if len(info.splits) == 1 else f"{info.name}/{split}"
    return DataSpec(text, label, info, split, path, keys, int(first) if first else None, factor)


def open_data(data: str | DataSpec) -> Source:
    """Open a data set without reading images. Raises UsageError, and InputError for an unknown layout."""
    spec = parse_data(data) if isinstance(data, str) else data
    is_file = spec.info.may_be_file and spec.path is not None and spec.path.is_file()
    if spec.path is not None and not spec.path.is_dir() and not is_file:
        what = "is not a folder" if spec.path.exists() else "does not exist"
        hint = None if spec.info.may_be_file else f"give the folder that contains {spec.info.name}"
        raise InputError(f"{quote(spec.path)} {what}", hint)
    source = spec.info.open(spec.path, spec.split, spec.keys)
    if spec.path is not None and not source.names:
        chosen = "".join(f", {key}={value}" for key, value in spec.keys.items())
        unpaired = f"; {source.unpaired[0]}" if source.unpaired else ""
        message = f"{quote(spec.path)} contains no pair of the data set {spec.label}{chosen}{unpaired}"
        raise InputError(message, _suggest_other(spec) or f"expected {spec.info.expected(spec.split)}")
    if spec.first is not None:
        source = source.first(spec.first)
    source.spec = spec
    return source


def _suggest_other(spec: DataSpec) -> str | None:
    """Name another split or value of a key that a folder contains, if any."""
    for split in spec.info.splits:
        if split != spec.split and _has_pairs(spec, split, spec.keys):
            return f"the folder contains another split: {spec.info.name}/{split}:{spec.path}"
    for key in spec.info.keys:
        for value in key.choices:
            if value != spec.keys.get(key.name) and _has_pairs(
                spec, spec.split, {**spec.keys, key.name: value}
            ):
                return f"the folder contains ?{key.name}={value}"
    return None


def _has_pairs(spec: DataSpec, split: str, keys: Mapping[str, str]) -> bool:
    with suppress(PamError):
        return len(spec.info.open(spec.path, split, keys)) > 0
    return False


def open_data_sets(data: str | Iterable[str | Source]) -> list[Source]:
    """Open data sets, each at most once. Raises the errors of `open_data` before any of them is opened."""
    given = [data] if isinstance(data, str) else data
    specs = [parse_data(each) if isinstance(each, str) else each for each in given]
    if not specs:
        raise UsageError("a data set is required", "give NAME:PATH; `pam dataset list` shows the names")
    texts = [each.text for each in specs if isinstance(each, DataSpec)]
    if repeated := [text for text in texts if texts.count(text) > 1]:
        raise UsageError(f"the data set {quote(repeated[0])} is given twice", "give each data set once")
    return [open_data(each) if isinstance(each, DataSpec) else each for each in specs]


def is_data_spec(text: str) -> bool:
    """Return True if a text begins with NAME: or NAME/SPLIT: of a known data set."""
    match = re.match(r"(\w+)(/\w+)?:", text)
    return match is not None and match[1] in SOURCES


def unknown_name_error(kind: str, given: str, known: Sequence[str]) -> UsageError:
    """Return the error for an unknown name, with the known names and the nearest of them."""
    hint = f"{did_you_mean(given, known)}expected one of {', '.join(known)}"
    return UsageError(f"unknown {kind} {given!r}", hint)


def _parse_keys(query: str, info: SourceInfo) -> dict[str, str]:
    known = {key.name: key for key in (*info.keys, *COMMON_KEYS)}
    found: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        name, equals, value = item.partition("=")
        if not equals or not value:
            hint = f"keys of {info.name}: {', '.join(known)}"
            raise UsageError(f"a key must have the form key=value, got {item!r}", hint)
        if name in found:
            raise UsageError(f"the key {name} is given twice in {query!r}", "give each key once")
        if name not in known:
            raise unknown_name_error(f"key of {info.name}", name, [*known])
        if known[name].choices and value not in known[name].choices:
            raise unknown_name_error(f"{name} of {info.name}", value, known[name].choices)
        found[name] = value
    return found
