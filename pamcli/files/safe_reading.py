"""Read text, YAML, TOML, JSON, XML and NPZ from any source within limits of size, depth, aliases and digits.

A file that exceeds a limit costs little time and memory, and is an error of one line like a damaged file.
"""

import io
import itertools
import json
import math
import re
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pamcli.errors import InputError, PamError
from pamcli.files.paths import open_source, quote

if TYPE_CHECKING:
    from numpy import dtype
    from numpy.typing import NDArray

LARGEST_TEXT = 1 << 28  # bytes of a text, by default
LARGEST_SETTINGS = 1 << 20  # bytes of a calibration or a description of a network; usual are a few thousand
LARGEST_ARRAYS = 1 << 26  # bytes of the arrays in an .npz or .mat file of settings, unpacked
MOST_VALUES = 1_000_000  # values in a tree of settings, with aliases counted each time
DEEPEST = 50  # levels of a tree of settings
_MOST_DOTS = 500  # in a line of TOML: tomllib's time grows with the square of the parts of a key
_LONGEST_NUMBER = 100  # characters of a number in YAML
_NUMBER = re.compile(r"[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)(e[-+]?\d+)?|[-+]?\.(inf|nan)", re.IGNORECASE)
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def read_bytes(
    path: Path, most: int = LARGEST_ARRAYS, error: type[PamError] = InputError, missing: str | None = None
) -> bytes:
    """Return a file's bytes. Raises the error as `open_source` does, and for more than `most` bytes."""
    with open_source(path, quote(path), error, missing) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise error(f"{quote(path)} has more than {most >> 20} MB")
    return data


def read_text(
    path: Path, most: int = LARGEST_TEXT, error: type[PamError] = InputError, missing: str | None = None
) -> str:
    """Return a UTF-8 text, which may be empty. Raises `error` if it is unreadable, too large or not text."""
    if path.is_file() and not path.stat().st_size:
        return ""
    try:
        text = read_bytes(path, most, error, missing).decode("utf-8")
    except UnicodeError:
        raise error(f"{quote(path)} is not a text file") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text. Raises ValueError with one line if it is damaged or exceeds a limit."""
    return _check_depth(_call_parser(json.loads, text))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text. Raises ValueError with one line if it is damaged or exceeds a limit."""
    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise ValueError(f"a line has more than {_MOST_DOTS} dots")
    found: dict[str, Any] = _check_depth(_call_parser(tomllib.loads, text))
    return found


def parse_xml(text: str) -> dict[str, Any]:
    """Parse an XML text into a dict of elements by tag, whose contents are dicts, words or lists of words."""
    from xml.etree import ElementTree

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("it defines entities")

    def content(element: ElementTree.Element, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} levels")
        if len(element):
            return {child.tag: content(child, depth + 1) for child in element}
        words = (element.text or "").split()
        return words[0] if len(words) == 1 else words

    root = _call_parser(ElementTree.fromstring, text)
    return {child.tag: content(child, 1) for child in root}


def parse_yaml(text: str) -> Iterator[Any]:
    """Yield the documents of a YAML text: dict, list, str, int, float, bool and None. Raises ValueError.

    Tags are ignored: a matrix of OpenCV is the dict of its keys. Dates and numbers that are not decimal stay
    text.
    """
    import yaml

    # OpenCV up to 4 writes "%YAML:1.0" and "data:[1, 2]", which is invalid YAML.
    text = re.sub(r"^([ \t]*[\w.]+):\[", r"\1: [", re.sub(r"\A\s*%YAML.*", "", text), flags=re.MULTILINE)
    events = yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    anchors: dict[str, tuple[Any, int]] = {}
    nodes: list[tuple[list[tuple[Any, int]], str | None]] = [([], None)]
    while event := _call_parser(next, events, None):
        if isinstance(event, yaml.CollectionStartEvent):
            nodes.append(([], event.anchor))
            if len(nodes) > DEEPEST:
                raise ValueError(f"it has more than {DEEPEST} levels")
            continue
        if isinstance(event, yaml.DocumentEndEvent):
            yield nodes[0][0].pop()[0]
            anchors.clear()
            continue
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise ValueError(f"the alias {event.anchor[:40]} is undefined or recursive")
            value, size = anchors[event.anchor]
            anchor = None
        elif isinstance(event, yaml.ScalarEvent):
            value = _parse_scalar(event.value) if event.implicit[0] else event.value
            size, anchor = 1, event.anchor
        elif isinstance(event, yaml.CollectionEndEvent):
            items, anchor = nodes.pop()
            value, size = [item for item, _ in items], 1 + sum(count for _, count in items)
            if isinstance(event, yaml.MappingEndEvent):
                value = _make_mapping(value)
        else:
            continue
        if size > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values")
        if anchor:
            anchors[anchor] = value, size
        nodes[-1][0].append((value, size))


def _make_mapping(items: list[Any]) -> dict[Any, Any]:
    """Return the mapping of alternating keys and values; << adds those of another one."""
    found = {}
    merged: dict[Any, Any] = {}
    for key, value in zip(items[::2], items[1::2], strict=True):
        if isinstance(key, dict | list):
            raise ValueError("a list or a mapping is used as a key")
        if key == "<<" and isinstance(value, dict):
            merged = value
        else:
            found[key] = value
    return {**merged, **found}


def _parse_scalar(text: str) -> Any:
    if not text or text in ("~", "null", "Null", "NULL"):
        return None
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return text
    plain = text.replace("_", "")
    return int(plain) if plain.lstrip("+-").isdigit() else float(re.sub(r"\.([a-zA-Z])", r"\1", plain))


def parse_npz(data: bytes, most: int = LARGEST_ARRAYS) -> "dict[str, NDArray[Any]]":
    """Return the arrays of an .npz file by name. Raises ValueError with one line."""
    archive = _call_parser(zipfile.ZipFile, io.BytesIO(data))
    if sum(each.file_size for each in archive.infolist()) > most:
        raise ValueError(f"it unpacks to more than {most >> 20} MB")
    found = {}
    for each in archive.infolist():
        name = each.filename.removesuffix(".npy")
        if each.flag_bits & 1:
            raise ValueError("it is encrypted")
        try:
            found[name] = _call_parser(_read_array, archive, each)
        except ValueError as error:
            raise ValueError(f"its array {name[:40]!r} cannot be read") from error
    return found


def read_npy_header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, "dtype[Any]"]:
    """Return shape, Fortran order and type of a .npy file, and leave the stream at its data."""
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    return (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(stream)


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> "NDArray[Any]":
    import numpy as np

    data = archive.read(member)
    stream = io.BytesIO(data)
    shape, by_columns, kind = read_npy_header(stream)
    # NumPy would allocate the size in the header before it checks the size of the data.
    count = math.prod(shape)
    if kind.hasobject or min(shape, default=0) < 0 or count * kind.itemsize > len(data):
        raise ValueError("an array does not match its header")
    values = np.frombuffer(data[stream.tell() :], kind, count) if count else np.zeros(0, kind)
    return values.reshape(shape, order="F" if by_columns else "C")


def _call_parser(parser: Callable[..., Any], *given: Any) -> Any:
    """Call a parser of a library, and convert any exception into a ValueError with one line."""
    try:
        return parser(*given)
    except MemoryError:
        raise
    except Exception as error:
        message = " ".join(str(error).split())[:120] or type(error).__name__
        message = "a number has more than 4,300 digits" if "int_max_str_digits" in str(error) else message
        raise ValueError(message) from error


def _check_depth(tree: Any) -> Any:
    """Return the tree. Raises ValueError if it has more than `DEEPEST` levels."""
    level = [tree]
    for _ in range(DEEPEST):
        nodes = [node for node in level if isinstance(node, dict | list)]
        inner = [node.values() if isinstance(node, dict) else node for node in nodes]
        level = [*itertools.chain.from_iterable(inner)]
        if not level:
            return tree
    raise ValueError(f"it has more than {DEEPEST} levels")
