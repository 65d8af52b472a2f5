"""Files of MATLAB's version 5 as it saves them, element by element (MAT-File Format, The MathWorks)."""

from __future__ import annotations

import struct
import zlib

import numpy as np


def mat(variables: dict[str, object], *, compressed: bool = True, order: str = "<") -> bytes:
    """A .mat file; MATLAB compresses each variable. Of an object the name of its class is given, as bytes."""

    def element(kind: int, content: bytes) -> bytes:
        if len(content) <= 4 and kind != 14:  # MATLAB packs what is small
            small = struct.pack(f"{order}I", len(content) << 16 | kind)
            return small + content.ljust(4, b"\0")
        return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)

    def matrix(name: str, value: object) -> bytes:
        if isinstance(value, bytes):  # an object
            flags = element(6, struct.pack(f"{order}II", 17, 0))
            words = [element(1, word) for word in (name.encode(), b"MCOS", value)]
            return element(14, b"".join([flags, *words, matrix("", np.array([[0xDD000000]], np.uint32))]))
        kinds = {"f8": (6, 9), "f4": (7, 7), "u1": (9, 2), "u4": (13, 6)}
        shape: tuple[int, ...] = (1, 1)
        if isinstance(value, dict):
            kind, body = 2, element(5, struct.pack(f"{order}i", 32))
            body += element(1, b"".join(key.encode().ljust(32, b"\0") for key in value))
            body += b"".join(matrix("", each) for each in value.values())
        elif isinstance(value, str):
            shape, kind, body = (
                (1, len(value)),
                4,
                element(17, value.encode("utf-16" + ("-le" if order == "<" else "-be"))),
            )
        else:
            array = np.asarray(value)
            kind, code = kinds[array.dtype.str[1:]]
            shape, body = (
                array.shape,
                element(code, array.astype(array.dtype.newbyteorder(order)).tobytes("F")),
            )
        flags = element(6, struct.pack(f"{order}II", kind, 0))
        sides = element(5, struct.pack(f"{order}{len(shape)}i", *shape))
        return element(14, flags + sides + element(1, name.encode()) + body)

    head = b"MATLAB 5.0 MAT-file, Platform: GLNXA64, Created on: Mon Mar  3 10:00:00 2025".ljust(124)
    data = head + struct.pack(f"{order}H", 0x0100) + (b"IM" if order == "<" else b"MI")
    for name, value in variables.items():
        made = matrix(name, value)
        if compressed:
            packed = zlib.compress(made)
            made = struct.pack(f"{order}II", 15, len(packed)) + packed
        data += made
    return data
