"""Variables of MATLAB's .mat files, version 5 (save's default up to 2 GB, compressed or not).

Numbers, texts, structs and cells are read; objects are only named, because MATLAB does not document them.
scipy.io.loadmat is no substitute: damaged files crash it (a segmentation fault within 400 files with three
random bytes), and 100 bytes make it allocate 32 GB.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pamcli.errors import InputError
from pamcli.files.safe_reading import DEEPEST, LARGEST_ARRAYS

_HEADER = 128
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {16: "utf-8", 17: "utf-16", 18: "utf-32"}
_MATRIX, _COMPRESSED = 14, 15
_CELL, _STRUCT, _OBJECT, _CHAR, _SPARSE, _FUNCTION, _OPAQUE = 1, 2, 3, 4, 5, 16, 17
_SAVE = "save it with save('rig.mat', ..., '-v7')"


@dataclass(frozen=True)
class Unread:
    """An object of a MATLAB class."""

    kind: str


def read_mat(data: bytes) -> dict[str, Any]:
    """Return variables: arrays, str, dict (struct), list (cell, structs), Unread. Raises InputError."""
    if data[:4] == b"\x89HDF" or b"MATLAB 7.3" in data[:_HEADER]:
        raise InputError("is a .mat file of version 7.3, expected version 5", _SAVE)
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise InputError("must be a .mat file of version 5", _SAVE)
    found: dict[str, Any] = {}
    left = LARGEST_ARRAYS
    try:
        for kind, content in _iterate_elements(data[_HEADER:], order):
            if kind == _COMPRESSED:
                inflater = zlib.decompressobj()
                content = inflater.decompress(content, max(left, 1))
                left -= len(content)
                if inflater.unconsumed_tail:
                    raise InputError(f"holds more than {LARGEST_ARRAYS >> 20} MB of variables")
                kind, content = next(_iterate_elements(content, order))
            if kind == _MATRIX:
                name, value = _read_matrix(content, order)
                found[name] = value
    except (struct.error, zlib.error, ValueError, LookupError, MemoryError, StopIteration) as error:
        raise InputError("is damaged: its variables are incomplete") from error
    return found


def _iterate_elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield the content of each element after its type."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start = at + 8
        if kind >> 16:  # a small element: type and size share four bytes, the content takes the next four
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            at += 8
        else:
            at = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > len(data):
            raise ValueError("ends early")
        yield kind, data[start : start + size]


def _read_matrix(data: bytes, order: str, depth: int = 0) -> tuple[str, Any]:
    """Return name and value of a matrix."""
    if not data:
        return "", np.zeros((0, 0))
    parts = _iterate_elements(data, order)

    def read_numbers() -> np.ndarray:
        kind, content = next(parts)
        return np.frombuffer(content, np.dtype(order + _NUMBERS[kind]))

    def read_text() -> str:
        return next(parts)[1].decode("latin-1").rstrip("\0")

    def read_inner(count: int) -> list[Any]:
        inner = [*parts]
        if not 0 <= count <= len(inner) or any(kind != _MATRIX for kind, _ in inner):
            raise ValueError("ends early")
        return [_read_matrix(content, order, depth + 1)[1] for _, content in inner[:count]]

    kind = int(read_numbers()[0]) & 0xFF
    if kind == _OPAQUE:
        name, _, class_name = read_text(), read_text(), read_text()
        return name, Unread(class_name)
    shape = tuple(int(side) for side in read_numbers())
    name, count = read_text(), math.prod(shape)
    if kind in (_OBJECT, _FUNCTION, _SPARSE) or depth > DEEPEST:
        return name, Unread(read_text() if kind == _OBJECT else "an unsupported array")
    if kind == _CELL:
        return name, read_inner(count)
    if kind == _STRUCT:
        length, names = int(read_numbers()[0]), next(parts)[1]
        keys = [names[i : i + length].split(b"\0")[0].decode() for i in range(0, len(names), length)]
        if not keys:
            return name, {}
        inner = iter(read_inner(count * len(keys)))
        values = [{key: next(inner) for key in keys} for _ in range(count)]
        return name, values[0] if count == 1 else values
    if kind == _CHAR:
        code, content = next(parts)
        encoding = _TEXTS.get(code, "latin-1" if code in (1, 2) else "utf-16")
        if encoding.startswith("utf-") and code != 16:
            encoding += "-le" if order == "<" else "-be"
        return name, content.decode(encoding)
    return name, read_numbers().reshape(shape, order="F")
