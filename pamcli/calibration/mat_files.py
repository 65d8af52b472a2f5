"""Variables of MATLAB's .mat files, version 5 (save's default up to 2 GB, compressed or not).

Numbers, texts, structs and cells are read; objects are only named, because MATLAB does not document them.
scipy.io.loadmat is no substitute: damaged files crash it (a segmentation fault within 400 files with three
random bytes), and 100 bytes make it allocate 32 GB.
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
    try:
        return _Elements(data[_HEADER:], order).read_variables()
    except (struct.error, zlib.error, ValueError, IndexError, LookupError, MemoryError) as error:
        raise InputError("is damaged: its variables are incomplete") from error


class _Elements:
    """A sequence of elements, each after its type and size."""

    def __init__(self, data: bytes, order: str) -> None:
        self.data, self.order, self.at = data, order, 0

    def read_variables(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        left = LARGEST_ARRAYS
        while self.at + 8 <= len(self.data):
            kind, content = self.read_element()
            if kind == _COMPRESSED:
                inflater = zlib.decompressobj()
                content = inflater.decompress(content, max(left, 1))
                left -= len(content)
                if inflater.unconsumed_tail:
                    raise InputError(f"holds more than {LARGEST_ARRAYS >> 20} MB of variables")
                kind, content = _Elements(content, self.order).read_element()
            if kind == _MATRIX:
                name, value = _Elements(content, self.order).read_matrix()
                found[name] = value
        return found

    def read_element(self) -> tuple[int, bytes]:
        kind, size = struct.unpack_from(f"{self.order}II", self.data, self.at)
        start = self.at + 8
        if kind >> 16:  # a small element: type and size share four bytes, the content takes the next four
            kind, size, start = kind & 0xFFFF, kind >> 16, self.at + 4
            self.at += 8
        else:
            self.at = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > len(self.data):
            raise ValueError("ends early")
        return kind, self.data[start : start + size]

    def read_numbers(self) -> np.ndarray:
        kind, content = self.read_element()
        return np.frombuffer(content, np.dtype(self.order + _NUMBERS[kind]))

    def read_text(self) -> str:
        return self.read_element()[1].decode("latin-1").rstrip("\0")

    def read_matrix(self, depth: int = 0) -> tuple[str, Any]:
        """Return name and value of the matrix that these elements make up."""
        if not self.data:
            return "", np.zeros((0, 0))
        kind = int(self.read_numbers()[0]) & 0xFF
        if kind == _OPAQUE:
            name, _, class_name = self.read_text(), self.read_text(), self.read_text()
            return name, Unread(class_name)
        shape = tuple(int(side) for side in self.read_numbers())
        name = self.read_text()
        if kind in (_OBJECT, _FUNCTION, _SPARSE) or depth > DEEPEST:
            return name, Unread(self.read_text() if kind == _OBJECT else "an unsupported array")
        count = math.prod(shape)
        if kind == _CELL:
            return name, self._read_inner(count, depth)
        if kind == _STRUCT:
            length = int(self.read_numbers()[0])
            names = self.read_element()[1]
            keys = [names[i : i + length].split(b"\0")[0].decode() for i in range(0, len(names), length)]
            if not keys:
                return name, {}
            inner = iter(self._read_inner(count * len(keys), depth))
            values = [{key: next(inner) for key in keys} for _ in range(count)]
            return name, values[0] if count == 1 else values
        if kind == _CHAR:
            code, content = self.read_element()
            encoding = _TEXTS.get(code, "latin-1" if code in (1, 2) else "utf-16")
            if encoding.startswith("utf-") and code != 16:
                encoding += "-le" if self.order == "<" else "-be"
            return name, content.decode(encoding)
        return name, self.read_numbers().reshape(shape, order="F")

    def _read_inner(self, count: int, depth: int) -> list[Any]:
        if 8 * count > len(self.data) - self.at:  # each takes at least 8 bytes
            raise ValueError("ends early")
        elements = [self.read_element() for _ in range(count)]
        if any(kind != _MATRIX for kind, _ in elements):
            raise ValueError("not a matrix")
        return [_Elements(content, self.order).read_matrix(depth + 1)[1] for _, content in elements]
