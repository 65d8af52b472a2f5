"""Calibration files as trees of names and values, and numbers out of them; errors name the key."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.files.guarded import LARGEST_SETTINGS, parse_json, parse_npz, parse_xml, parse_yaml

Tree = Mapping[str, Any]

_LINE = re.compile(r"^[ \t]*([A-Za-z]\w*)[ \t]*([=:])(.*)$", re.MULTILINE)


def text_of(data: bytes) -> str:
    """Decode a text, without its blank lines. Raises InputError: no text, or too long to be a calibration.

    Blank lines mean nothing, and patterns that begin with white space would look through them repeatedly.
    """
    if len(data) > LARGEST_SETTINGS or b"\0" in data:
        raise InputError("is no text file of numbers")
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError("is not a text file") from None
    return "".join(f"{line}\n" for line in lines if line and not line.isspace())


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
            tree: Any = parse_xml(text)
        elif text.lstrip().startswith(("{", "[{", "[\n", "[\r", "[ ")):
            tree = parse_json(text)
        else:
            tree = parse_yaml(text)
    except ValueError as error:
        raise InputError(f"is damaged: {error}") from error
    if isinstance(tree, list) and tree and isinstance(tree[0], dict):
        return {"list": tree}
    if not isinstance(tree, dict):
        raise InputError("holds no calibration that is known")
    return {str(name): value for name, value in tree.items()}


def arrays_of(data: bytes) -> Tree:
    """The arrays of an .npz. Raises InputError: damaged, Python's objects inside, too large."""
    try:
        return parse_npz(data)
    except ValueError as error:
        raise InputError(
            f"is no .npz of plain arrays: {error}",
            "numpy.savez('rig.npz', K1=..., D1=..., K2=..., D2=..., R=..., T=...)",
        ) from error


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
