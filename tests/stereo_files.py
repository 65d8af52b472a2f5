"""MPO and JPS as stereo cameras and viewers write them, byte by byte (CIPA DC-007; VRex 1997)."""

from __future__ import annotations

import io
import struct

import numpy as np
from PIL import Image

DISPARITY, PANORAMA, UNDEFINED, PRIMARY, THUMBNAIL = 0x020002, 0x020001, 0, 0x030000, 0x010001


def jpeg(pixels: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", **{"quality": 97, "subsampling": 0, **options})
    return buffer.getvalue()


def with_segment(encoded: bytes, marker: int, body: bytes) -> bytes:
    """A JPEG with one application segment more, right behind its start."""
    return encoded[:2] + struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body + encoded[2:]


def mpo(*pictures: bytes, kinds: tuple[int, ...] = (DISPARITY, DISPARITY), order: str = "<") -> bytes:
    """JPEGs one after the other; the first begins with an index of them all, in either byte order."""
    count, entries_at = len(pictures), 8 + 2 + 3 * 12 + 4

    def index(offsets: list[int], sizes: list[int]) -> bytes:
        tags = [
            struct.pack(f"{order}HHI4s", 0xB000, 7, 4, b"0100"),
            struct.pack(f"{order}HHII", 0xB001, 4, 1, count),
            struct.pack(f"{order}HHII", 0xB002, 7, 16 * count, entries_at),
        ]
        header = b"II*\0" if order == "<" else b"MM\0*"
        entries = [
            struct.pack(f"{order}IIIHH", kind | (1 << 29) * (number == 0), size, offset, 0, 0)
            for number, (kind, size, offset) in enumerate(zip(kinds, sizes, offsets, strict=True))
        ]
        directory = struct.pack(f"{order}H", 3) + b"".join(tags) + struct.pack(f"{order}I", 0)
        return b"MPF\0" + header + struct.pack(f"{order}I", 8) + directory + b"".join(entries)

    extra = len(index([0] * count, [0] * count)) + 4
    sizes = [len(pictures[0]) + extra, *map(len, pictures[1:])]
    base = 2 + 4 + 4  # start of image, marker and length, "MPF\0": offsets count from behind them
    offsets = [0] + [sum(sizes[:number]) - base for number in range(1, count)]
    return with_segment(pictures[0], 0xE2, index(offsets, sizes)) + b"".join(pictures[1:])


def jps(encoded: bytes, *, flags: int = 0, arrangement: int = 2, kind: int = 1) -> bytes:
    """A JPEG with a stereoscopic descriptor. flags: 1 half height, 2 half width, 4 left view first;
    arrangement: 1 interleaved, 2 side by side, 3 over and under, 4 anaglyph."""
    return with_segment(
        encoded, 0xE3, b"_JPSJPS_" + struct.pack(">HBBBB", 4, 0, flags, arrangement, kind) + b"\0\0"
    )
