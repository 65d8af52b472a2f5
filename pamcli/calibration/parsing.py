"""Calibration files as trees of names and values, and numbers out of them; errors name the key."""

import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.imaging.raster import open_source

Tree = Mapping[str, Any]

LARGEST_FILE = 1 << 20  # bytes; calibrations have a few thousand
LARGEST_ARRAYS = 1 << 26  # bytes; those of MATLAB and NumPy may hold all corners of all boards
_LINE = re.compile(r"^\s*([A-Za-z]\w*)\s*([=:])(.*)$", re.MULTILINE)


def read_bytes(path: Path) -> bytes:
    """Read a file whole. Raises InputError: unreadable, empty, too long to be a calibration."""
    with open_source(path, str(path)) as stream:
        data = stream.read(LARGEST_ARRAYS + 1)
    if len(data) > LARGEST_ARRAYS:
        raise InputError(f"has more than {LARGEST_ARRAYS >> 20} MB, and is no calibration")
    return data


def text_of(data: bytes) -> str:
    """Decode a text. Raises InputError: no text, or too long to be a calibration."""
    if len(data) > LARGEST_FILE or b"\0" in data:
        raise InputError("is no text file of numbers")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not a text file") from None


def lines_of(text: str, mark: str) -> dict[str, str]:
    """Lines "name<mark>value" by their names; mark: "=" or ":". Raises InputError: one with two values."""
    lines: dict[str, str] = {}
    for name, found, value in _LINE.findall(text):
        if found == mark and lines.setdefault(name, value.strip()) != value.strip():
            raise InputError(f"{name} is given twice: {lines[name][:40]} and {value.strip()[:40]}")
    return lines


def tree_of(text: str) -> Tree:
    """YAML (of OpenCV, too), JSON, or OpenCV's XML; a list gets the name "list".

    Raises InputError: damaged, or no names at its top.
    """
    try:
        if text.lstrip().startswith("<"):
            tree: Any = {child.tag: _element(child) for child in ElementTree.fromstring(text)}
        elif text.lstrip().startswith(("{", "[{", "[\n", "[\r", "[ ")):
            tree = json.loads(text)
        else:
            tree = _yaml(text)
    except (
        ElementTree.ParseError,
        ValueError,
        RecursionError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise InputError(f"is damaged: {' '.join(str(error).split())[:120]}") from error
    if isinstance(tree, list) and tree and isinstance(tree[0], dict):
        return {"list": tree}
    if not isinstance(tree, dict):
        raise InputError("holds no calibration that is known")
    return {str(name): value for name, value in tree.items()}


def arrays_of(data: bytes) -> Tree:
    """The arrays of an .npz. Raises InputError: damaged, Python's objects inside, too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(each.file_size for each in archive.infolist()) > LARGEST_ARRAYS:
                raise InputError(f"holds more than {LARGEST_ARRAYS >> 20} MB, and is no calibration")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, LookupError) as error:
        raise InputError(
            "is no .npz of plain arrays",
            "numpy.savez('rig.npz', K1=..., D1=..., K2=..., D2=..., R=..., T=...)",
        ) from error


def _element(element: ElementTree.Element) -> Any:
    if len(element):
        return {child.tag: _element(child) for child in element}
    words = (element.text or "").split()
    return words[0] if len(words) == 1 else words


def _yaml(text: str) -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """YAML's loader with OpenCV's matrices beside plain values."""

    Loader.add_multi_constructor(  # opencv-matrix, and opencv-nd-matrix of OpenCV 5
        "tag:yaml.org,2002:opencv-", lambda loader, _, node: loader.construct_mapping(node, deep=True)
    )
    try:
        # OpenCV up to 4 begins its files with "%YAML:1.0", and reads "data:[1, 2]", which are no YAML.
        text = re.sub(r"^(\s*[\w.]+):\[", r"\1: [", re.sub(r"\A%YAML.*", "", text), flags=re.MULTILINE)
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(error) from error


def numbers(value: Any, key: str, *counts: int) -> NDArray[np.float64]:
    """All numbers of a value, in order; `counts`: how many there may be, by default any number of them.

    Raises InputError naming the key: missing, text, NaN, another number of numbers.
    """
    if value is None or (isinstance(value, list) and any(each is None for each in value)):
        raise InputError(f"{key} is missing")
    found = list(_flat(value, key))
    if counts and len(found) not in counts:
        expected = " or ".join(map(str, counts))
        raise InputError(f"{key} holds {len(found)} numbers, not {expected}")
    return np.array(found, np.float64)


def number(value: Any, key: str) -> float:
    """Read one number, as `numbers` reads several."""
    return float(numbers(value, key, 1)[0])


def matrix(value: Any, key: str, rows: int, columns: int) -> NDArray[np.float64]:
    """Read a matrix, as `numbers` reads its entries; the file may state its shape, too."""
    if isinstance(value, Mapping) and ("rows" in value or "cols" in value):
        stated = tuple(value.get(name) for name in ("rows", "cols"))
        if tuple(map(str, stated)) != (str(rows), str(columns)):
            raise InputError(f"{key} is {stated[0]} x {stated[1]}, not {rows} x {columns}")
    return numbers(value, key, rows * columns).reshape(rows, columns)


def size_of(value: Any, key: str) -> tuple[int, int]:
    """Width and height: two whole numbers above 0. Raises InputError."""
    size = numbers(value, key, 2)
    if not all(side >= 1 and side == int(side) and side < 1e6 for side in size):
        raise InputError(f"{key} is {size[0]:g} x {size[1]:g}, no size of pictures")
    return int(size[0]), int(size[1])


def _flat(value: Any, key: str, depth: int = 0) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = value.get("data")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and depth < 4:
        for item in value:
            yield from _flat(item, key, depth + 1)
        return
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        result = float(value)
    except (ValueError, OverflowError):
        raise InputError(f"{key} holds {str(value)[:20]!r} where a number belongs") from None
    if not math.isfinite(result):
        raise InputError(f"{key} holds {result}, which is no number to compute with")
    yield result
