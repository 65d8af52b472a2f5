"""Variables of MATLAB's .mat files, version 5 (save's default up to 2 GB, compressed or not).

Numbers, texts, structs and cells, which is all that a calibration needs; objects are named, not read: MATLAB
does not document how it stores them.
"""

import math
import struct
import zlib
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


@dataclass(frozen=True)
class Unread:
    """An object of a class of MATLAB's."""

    kind: str
    """The name of the class."""


def read_mat(data: bytes) -> dict[str, Any]:
    """Variables by their names: arrays of any shape, str, dict (struct), list (cell, array of structs).

    What is none of them is Unread. Raises InputError: version 4 or 7.3, damaged, too large.
    """
    if data[:4] == b"\x89HDF" or b"MATLAB 7.3" in data[:_HEADER]:
        raise InputError("is a .mat file of version 7.3", "save it with save('rig.mat', ..., '-v7')")
    marks = {b"IM": "<", b"MI": ">"}
    if data[126:128] not in marks:
        raise InputError("is no .mat file of version 5", "save it with save('rig.mat', ..., '-v7')")
    try:
        return _Elements(data[_HEADER:], marks[data[126:128]]).variables()
    except (struct.error, zlib.error, ValueError, IndexError, LookupError, MemoryError) as error:
        raise InputError("is damaged: its variables do not fit together") from error


class _Elements:
    """A row of elements, each with its type and size ahead."""

    def __init__(self, data: bytes, order: str) -> None:
        self.data, self.order, self.at = data, order, 0

    def variables(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        left = LARGEST_ARRAYS
        while self.at + 8 <= len(self.data):
            kind, content = self.element()
            if kind == _COMPRESSED:
                inflater = zlib.decompressobj()
                content = inflater.decompress(content, max(left, 1))
                left -= len(content)
                if inflater.unconsumed_tail:
                    raise InputError(f"holds variables of more than {LARGEST_ARRAYS >> 20} MB")
                kind, content = _Elements(content, self.order).element()
            if kind == _MATRIX:
                name, value = _Elements(content, self.order).matrix()
                found[name] = value
        return found

    def element(self) -> tuple[int, bytes]:
        """Type and content of the next element."""
        first, size = struct.unpack_from(f"{self.order}II", self.data, self.at)
        start = self.at + 8
        if first >> 16:  # a small one: both in the first four bytes, the content in the others
            kind, size, start = first & 0xFFFF, first >> 16, self.at + 4
            self.at += 8
        else:
            kind = first
            padding = 0 if kind == _COMPRESSED else -size % 8
            self.at = start + size + padding
        if start + size > len(self.data):
            raise ValueError("ends early")
        return kind, self.data[start : start + size]

    def numbers(self) -> np.ndarray:
        kind, content = self.element()
        return np.frombuffer(content, np.dtype(self.order + _NUMBERS[kind]))

    def text(self) -> str:
        return self.element()[1].decode("latin-1").rstrip("\0")

    def matrix(self, depth: int = 0) -> tuple[str, Any]:
        """Name and value of a matrix, whose elements these are."""
        if not self.data:
            return "", np.zeros((0, 0))
        kind = int(self.numbers()[0]) & 0xFF
        if kind == _OPAQUE:
            name, _, class_name = self.text(), self.text(), self.text()
            return name, Unread(class_name)
        shape = tuple(int(side) for side in self.numbers())
        name = self.text()
        if kind in (_OBJECT, _FUNCTION, _SPARSE) or depth > DEEPEST:
            return name, Unread(self.text() if kind == _OBJECT else "an array that pam does not read")
        count = math.prod(shape)
        if kind == _CELL:
            self._require(count)
            return name, [self._inner(depth) for _ in range(count)]
        if kind == _STRUCT:
            length = int(self.numbers()[0])
            names = self.element()[1]
            keys = [names[i : i + length].split(b"\0")[0].decode() for i in range(0, len(names), length)]
            if not keys:
                return name, {}
            self._require(count * len(keys))
            values = [{key: self._inner(depth) for key in keys} for _ in range(count)]
            return name, values[0] if count == 1 else values
        if kind == _CHAR:
            code, content = self.element()
            encoding = _TEXTS.get(code, "latin-1" if code in (1, 2) else "utf-16")
            if encoding.startswith("utf-") and code != 16:
                encoding += "-le" if self.order == "<" else "-be"
            return name, content.decode(encoding)
        return name, self.numbers().reshape(shape, order="F")

    def _require(self, count: int) -> None:
        """Raise ValueError where fewer bytes are left than so many elements take, of 8 bytes at least."""
        if 8 * count > len(self.data) - self.at:
            raise ValueError("ends early")

    def _inner(self, depth: int) -> Any:
        kind, content = self.element()
        if kind != _MATRIX:
            raise ValueError("a struct holds no array")
        return _Elements(content, self.order).matrix(depth + 1)[1]
