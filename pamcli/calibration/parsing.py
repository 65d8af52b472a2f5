"""Calibration files as texts and trees of names and values, and numbers out of them."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.mat_files import read_mat
from pamcli.errors import InputError
from pamcli.files.safe_reading import LARGEST_SETTINGS, parse_json, parse_npz, parse_xml, parse_yaml

Tree = Mapping[str, Any]

MOST_VALUES = 10_000  # in one matrix, or names looked at in one file: aliases of YAML make billions of a few
MOST_DOCUMENTS = 50  # of a YAML file: a topic that was listened to for a while
LONGEST_NUMBER = 400  # characters
LARGEST_NUMBER = 1e12
SAVE_ARRAYS = "numpy.savez('rig.npz', K1=..., D1=..., K2=..., D2=..., R=..., T=...)"


@dataclass(frozen=True)
class Source:
    """Files that make up one calibration, read whole, and which cameras of theirs are asked for."""

    contents: Sequence[tuple[str, bytes]]
    """Name and content of each."""
    pair: tuple[int, int] | None = None
    """Numbers of the left and the right camera; None = the file's usual ones."""
    read_beside: Callable[[str], bytes | None] = lambda name: None
    """Read another file of the same folder, which the first one names; None: there is none."""

    @cached_property
    def parsed(self) -> list[tuple[str, list[Tree], str]]:
        """Text ("" of a binary file), trees, and what keeps the text from being parsed, of each file."""
        return [parse(data) for _, data in self.contents]

    @property
    def texts(self) -> list[str]:
        return [text for text, _, _ in self.parsed]

    @cached_property
    def trees(self) -> list[Tree]:
        """Return all trees of all files; of equal ones the first."""
        found: list[Tree] = []
        for _, trees, _ in self.parsed:
            for tree in trees:
                if not any(tree is each or (len(tree) < 50 and _equal(tree, each)) for each in found):
                    found.append(tree)
        return found

    @cached_property
    def tree(self) -> Tree:
        """Return the names of all trees together."""
        return {name: value for tree in self.trees for name, value in tree.items()}

    @cached_property
    def flat(self) -> Tree:
        """Return the same with names such as Camera.fx for a value fx below Camera."""
        return dict(walk(self.tree))

    def lines(self, mark: str, *, once: bool = False) -> dict[str, str]:
        """Return the lines "name<mark>value" of the only file; none where there are several files.

        once: raise InputError where a name has two values.
        """
        return lines_of(self.texts[0], mark, once) if len(self.texts) == 1 else {}

    def is_zip(self) -> bool:
        return self.contents[0][1].startswith(b"PK")


def _equal(one: Tree, other: Tree) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays
        return False


def walk(tree: Tree, prefix: str = "", depth: int = 4) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of everything below a tree, at most `MOST_VALUES`."""
    waiting = [(prefix, tree, depth)]
    seen = 0
    while waiting:
        name, value, left = waiting.pop(0)
        for key, each in value.items():
            seen += 1
            if seen > MOST_VALUES:
                return
            yield (path := f"{name}{key}"), each
            if isinstance(each, Mapping) and left:
                waiting.append((f"{path}.", each, left - 1))


def parse(data: bytes) -> tuple[str, list[Tree], str]:
    """Return the text of a file, its trees, and why there are none. Raises InputError: an unreadable kind."""
    if data.startswith(b"PK"):
        try:
            return "", [parse_npz(data)], ""
        except ValueError as error:
            raise InputError(f"is no .npz of plain arrays: {error}", SAVE_ARRAYS) from error
    if data.startswith((b"MATLAB", b"\x89HDF")):
        return "", [read_mat(data)], ""
    if data.startswith(b"\x93NUMPY"):
        raise InputError("holds one array alone", f"a calibration is written whole by {SAVE_ARRAYS}")
    if data.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        raise InputError(
            "is a pickle, which could run any program when it is read", f"write the arrays with {SAVE_ARRAYS}"
        )
    # COLMAP's cameras.bin and rigs.bin begin with a count of 8 bytes, which no text does.
    if len(data) > 24 and data[1:8] == bytes(7):
        raise InputError(
            "is a binary file, perhaps a model of COLMAP's",
            "`colmap model_converter --output_type TXT` makes cameras.txt and rigs.txt of it",
        )
    if b"'optimization_inputs" in data:  # of mrcal: megabytes that are no YAML
        data = re.sub(rb"b'[^'\n]*'", b"''", data)
    if b"\0" in data:
        raise InputError("is not a text file of numbers")
    if len(data) > LARGEST_SETTINGS:
        raise InputError(
            f"has more than {LARGEST_SETTINGS >> 20} MB of text, which no calibration has",
            "rectification maps (stereoMapL_x ...) tell no baseline: give the calibration they were made of",
        )
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError("is not a text file") from None
    # Blank lines mean nothing, and patterns would look through them repeatedly.
    text = "".join(f"{line}\n" for line in lines if line and not line.isspace())
    trees, problem = _trees_of(text)
    return text, trees, problem


def _trees_of(text: str) -> tuple[list[Tree], str]:
    trees: list[Any] = []
    problem = ""
    start = text.lstrip()[:1]
    try:
        if start == "<":
            trees.append(parse_xml(text.lstrip()))
        elif start in ("{", "["):
            trees.append(_json_or_yaml(text))
        else:
            for tree in itertools.islice(parse_yaml(text), MOST_DOCUMENTS):
                trees.append(tree)
    except ValueError as error:
        kind = {"<": "XML", "{": "JSON", "[": "JSON"}.get(start, "YAML")
        problem = f"not valid {kind}: {error}"
    trees = [{"list": tree} if _is_list_of_trees(tree) else tree for tree in trees]
    return [
        {str(name): value for name, value in tree.items()} for tree in trees if isinstance(tree, dict)
    ], problem


def _is_list_of_trees(tree: Any) -> bool:
    return isinstance(tree, list) and bool(tree) and isinstance(tree[0], dict)


def _json_or_yaml(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        try:  # mrcal's files, and lists that only look like JSON
            return next(tree for tree in parse_yaml(text) if isinstance(tree, dict))
        except (StopIteration, ValueError):
            raise error from None


def lines_of(text: str, mark: str, once: bool = False) -> dict[str, str]:
    """Return lines "name<mark>value" by their names. once: raise InputError for two values."""
    lines: dict[str, str] = {}
    for line in text.splitlines():
        name, found, value = line.partition(mark)
        name, value = name.strip(), value.strip()
        if (
            found
            and re.fullmatch(r"[A-Za-z][\w.]*", name)
            and lines.setdefault(name, value) != value
            and once
        ):
            raise InputError(f"{name} is given twice: {lines[name][:40]} and {value[:40]}")
    return lines


def numbers(value: Any, key: str, *counts: int) -> NDArray[np.float64]:
    """Return all numbers of a value, in order; `counts`: how many there may be, by default any number.

    Texts such as "[1 0 2; 0 1 3]" hold several. Raises InputError naming the key: missing, text, NaN, another
    number of numbers.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InputError(f"{key} is missing")
    found: list[float] = []
    waiting, seen = [value], 0
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            item = item.get("data")
        if isinstance(item, np.ndarray):
            item = item.tolist() if item.size <= MOST_VALUES else [None] * (MOST_VALUES + 1)
        if isinstance(item, str) and len(parts := re.split(r"[\s\[\];,]+", item.strip(" \t\r\n[];,"))) > 1:
            item = parts
        if not isinstance(item, list | tuple):
            found.append(_finite(item, key))
            continue
        seen += len(item) + 1
        if seen > MOST_VALUES:
            raise InputError(f"{key} holds too many values to be a matrix")
        waiting.extend(reversed(item))
    if counts and len(found) not in counts:
        expected = " or ".join(map(str, counts))
        raise InputError(f"{key} holds {len(found)} numbers, not {expected}")
    return np.array(found, np.float64)


def _finite(value: Any, key: str) -> float:
    if value is None:
        raise InputError(f"{key} is missing")
    try:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float | str)
            or len(str(value)) > LONGEST_NUMBER
        ):
            raise ValueError
        result = float(value)
    except (ValueError, OverflowError):
        raise InputError(f"{key} holds {str(value)[:20]!r} where a number belongs") from None
    if not abs(result) < LARGEST_NUMBER:  # also true for NaN
        raise InputError(f"{key} holds {result:g}, which is no number to compute with")
    return result


def number(value: Any, key: str) -> float:
    """Read one number, as `numbers` reads several."""
    return float(numbers(value, key, 1)[0])


def whole_number(value: Any, key: str) -> int:
    """Read a whole number from 0 to a million. Raises InputError naming the key."""
    found = number(value, key)
    if found != int(found) or not 0 <= found <= 1e6:
        raise InputError(f"{key} is {str(value)[:20]}, not a whole number up to a million")
    return int(found)


def matrix(value: Any, key: str, rows: int, columns: int) -> NDArray[np.float64]:
    """Read a matrix, as `numbers` reads its entries; the file may state its shape, too."""
    if isinstance(value, Mapping) and ("rows" in value or "cols" in value):
        stated = tuple(value.get(name) for name in ("rows", "cols"))
        if tuple(map(str, stated)) != (str(rows), str(columns)):
            raise InputError(f"{key} is {stated[0]} x {stated[1]}, not {rows} x {columns}")
    return numbers(value, key, rows * columns).reshape(rows, columns)


def size_of(value: Any, key: str) -> tuple[int, int]:
    """Return width and height: two whole numbers above 0. Raises InputError."""
    size = numbers(value, key, 2)
    if not all(side >= 1 and side == int(side) and side < 1e6 for side in size):
        raise InputError(f"{key} is {size[0]:g} x {size[1]:g}, no size of images")
    return int(size[0]), int(size[1])
