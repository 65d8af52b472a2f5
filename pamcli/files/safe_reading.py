"""Read files that others wrote: regular files only, within limits of size, depth, aliases and digits.

Every reader of a text, of YAML, TOML, JSON, XML or NPZ goes through here. What is over a limit costs little
time and memory, and is an error of one line, as a damaged file is.
"""

import errno
import io
import json
import math
import re
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pamcli.errors import InputError, PamError
from pamcli.files.paths import check_regular, quote

if TYPE_CHECKING:
    from numpy import dtype
    from numpy.typing import NDArray

LARGEST_TEXT = 1 << 28
"""Bytes of a text, unless its reader knows better."""
LARGEST_SETTINGS = 1 << 20
"""Bytes of a calibration or a description of a network, which have a few thousand."""
LARGEST_ARRAYS = 1 << 26
"""Bytes of the arrays in an .npz or a .mat file of settings, unpacked."""
MOST_VALUES = 1_000_000
"""Values that a tree of settings stands for, those that it repeats by aliases counted each time."""
DEEPEST = 50
"""Levels of a tree of settings."""
_MOST_DOTS = 500  # of a line of TOML: tomllib's time grows with the square of the parts of a key
_LONGEST_NUMBER = 100  # characters of a number in YAML
_NUMBER = re.compile(r"[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)(e[-+]?\d+)?|[-+]?\.(inf|nan)", re.IGNORECASE)
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@contextmanager
def open_source(
    source: Path | bytes, name: str, error: type[PamError] = InputError, missing: str | None = None
) -> Iterator[BinaryIO]:
    """Open a regular file, or bytes, as a seekable stream.

    error: what is raised where it is missing, a folder, a pipe or a device, empty, or has no permission.
    missing: hint where there is no such file.
    """
    if isinstance(source, Path):
        check_regular(source, error)
    try:
        stream: BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    except OSError as problem:
        hint = missing if problem.errno == errno.ENOENT else None
        raise error(f"cannot read {name}: {_reason(problem)}", hint) from problem
    except ValueError as problem:  # a NUL character in the path
        raise error(f"cannot read {name!r}: {problem}") from problem
    with stream:
        if not stream.read(1):
            raise error(f"{name} is empty")
        stream.seek(0)
        yield stream


def _reason(error: OSError) -> str:
    known = {errno.ENOENT: "there is no such file", errno.EISDIR: "it is a folder"}
    known[errno.EACCES] = "no permission"
    reason = error.strerror or str(error)
    return known.get(error.errno or 0, f"{reason[:1].lower()}{reason[1:]}")


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
    """Return a UTF-8 text, which may be empty. Raises the error: unreadable, too large, no text."""
    if path.is_file() and not path.stat().st_size:
        return ""
    try:
        text = read_bytes(path, most, error, missing).decode("utf-8")
    except UnicodeError:
        raise error(f"{quote(path)} is not a text file") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text holds. Raises ValueError with one line: damaged, over a limit."""
    return _bounded(_parsed(json.loads, text))


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises ValueError with one line: damaged, over a limit."""
    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise ValueError(f"a line has more than {_MOST_DOTS} dots")
    found: dict[str, Any] = _bounded(_parsed(tomllib.loads, text))
    return found


def parse_xml(text: str) -> dict[str, Any]:
    """Return what the elements of an XML text hold, by their tags. Raises ValueError with one line.

    An element holds others by their tags, one word, or a list of words.
    """
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

    root = _parsed(ElementTree.fromstring, text)
    return {child.tag: content(child, 1) for child in root}


def parse_yaml(text: str) -> Iterator[Any]:
    """Yield the documents of a YAML text: dict, list, str, int, float, bool and None.

    Tags mean nothing: OpenCV's matrices are the dict of their keys. Dates and numbers in other notations
    than the decimal one stay texts. Raises ValueError with one line: damaged, over a limit, an alias of what
    holds it.
    """
    import yaml

    # OpenCV up to 4 begins its files with "%YAML:1.0", and reads "data:[1, 2]", which are no YAML.
    text = re.sub(r"^([ \t]*[\w.]+):\[", r"\1: [", re.sub(r"\A\s*%YAML.*", "", text), flags=re.MULTILINE)
    events = yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    anchors: dict[str, tuple[Any, int]] = {}
    nodes: list[tuple[list[tuple[Any, int]], str | None]] = [([], None)]
    while event := _parsed(next, events, None):
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
                raise ValueError(f"the alias {event.anchor[:40]} stands for nothing, or for what holds it")
            value, size = anchors[event.anchor]
            anchor = None
        elif isinstance(event, yaml.ScalarEvent):
            value, size, anchor = _scalar(event.value) if event.implicit[0] else event.value, 1, event.anchor
        elif isinstance(event, yaml.CollectionEndEvent):
            items, anchor = nodes.pop()
            value, size = [item for item, _ in items], 1 + sum(count for _, count in items)
            if isinstance(event, yaml.MappingEndEvent):
                value = _mapping(value)
        else:
            continue
        if size > MOST_VALUES:
            raise ValueError(f"it stands for more than {MOST_VALUES:,} values")
        if anchor:
            anchors[anchor] = value, size
        nodes[-1][0].append((value, size))


def _mapping(items: list[Any]) -> dict[Any, Any]:
    """Return the mapping of names and values that follow each other; << adds those of another one."""
    found: dict[Any, Any] = {}
    added: dict[Any, Any] = {}
    for key, value in zip(items[::2], items[1::2], strict=True):
        if isinstance(key, dict | list):
            raise ValueError("a list or a mapping stands where a name belongs")
        if key == "<<" and isinstance(value, dict):
            added = value
        else:
            found[key] = value
    return {**added, **found}


def _scalar(text: str) -> Any:
    if not text or text in ("~", "null", "Null", "NULL"):
        return None
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return text
    plain = text.replace("_", "")
    return int(plain) if plain.lstrip("+-").isdigit() else float(re.sub(r"\.([a-zA-Z])", r"\1", plain))


def parse_npz(data: bytes, most: int = LARGEST_ARRAYS) -> "dict[str, NDArray[Any]]":
    """Return the arrays of an .npz file by their names. Raises ValueError with one line.

    It is damaged, encrypted, unpacks to more than `most` bytes, or holds objects of Python.
    """
    archive = _parsed(zipfile.ZipFile, io.BytesIO(data))
    if sum(each.file_size for each in archive.infolist()) > most:
        raise ValueError(f"it unpacks to more than {most >> 20} MB")
    found = {}
    for each in archive.infolist():
        name = each.filename.removesuffix(".npy")
        if each.flag_bits & 1:
            raise ValueError("it is encrypted")
        try:
            found[name] = _parsed(_array, archive, each)
        except ValueError as error:
            raise ValueError(f"its array {name[:40]!r} cannot be read") from error
    return found


def read_npy_header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, "dtype[Any]"]:
    """Return shape, whether columns come first, and type of a .npy file; the data follow in the stream."""
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    return (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(stream)


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> "NDArray[Any]":
    import numpy as np

    data = archive.read(member)
    stream = io.BytesIO(data)
    shape, by_columns, kind = read_npy_header(stream)
    # Counted by hand: NumPy takes the memory that a header asks for before it looks at what is there.
    count = math.prod(shape)
    if kind.hasobject or min(shape, default=0) < 0 or count * kind.itemsize > len(data):
        raise ValueError("an array is not what its header says")
    values = np.frombuffer(data[stream.tell() :], kind, count) if count else np.zeros(0, kind)
    return values.reshape(shape, order="F" if by_columns else "C")


def _parsed(parser: Callable[..., Any], *given: Any) -> Any:
    """Call a parser of a library, which may raise nearly every class there is."""
    try:
        return parser(*given)
    except MemoryError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:120] or type(error).__name__
        said = "a number has more than 4,300 digits" if "int_max_str_digits" in str(error) else said
        raise ValueError(said) from error


def _bounded(tree: Any) -> Any:
    """Return the tree. Raises ValueError where it has more than `DEEPEST` levels."""
    level = [tree]
    for _ in range(DEEPEST):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return tree
    raise ValueError(f"it has more than {DEEPEST} levels")
