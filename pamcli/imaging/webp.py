"""Read WebP. Pillow's reader would allocate the canvas before its size is known, so the header is parsed."""

import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from pamcli.errors import InputError
from pamcli.imaging.raster import Raster, check_size, report_damage

_ANIMATION = 0x02  # flag in the extended header


def read_webp(stream: BinaryIO, name: str, max_pixels: int | None) -> Raster:
    """Decode a WebP. Raises InputError if it is too large, animated, damaged or truncated."""
    import imagecodecs

    with report_damage(name):
        width, height = _read_size(stream.read(30))
        check_size(width, height, name, max_pixels)
        stream.seek(0)
        data = stream.read()
        chunks = dict(_read_chunks(data))
        if chunks.get(b"VP8X", b"\0")[0] & _ANIMATION:
            raise InputError(f"{name} is animated", "save one frame as a separate image")
        samples = imagecodecs.webp_decode(data)
    return Raster(np.atleast_3d(samples), chunks.get(b"ICCP"), chunks.get(b"EXIF", b""))


def _read_size(header: bytes) -> tuple[int, int]:
    kind, body = header[12:16], header[20:]
    if kind == b"VP8X":  # flags, 3 reserved bytes, width - 1 and height - 1 in 24 bits each
        return int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1
    if kind == b"VP8L":  # signature, then width - 1 and height - 1 in 14 bits each
        (bits,) = struct.unpack_from("<I", body, 1)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":  # frame tag, start code, then both in 14 bits; the upper two bits are a scale
        width, height = struct.unpack_from("<HH", body, 6)
        return width & 0x3FFF, height & 0x3FFF
    raise ValueError("it contains no image")


def _read_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 12
    while position + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, position)
        yield kind, data[position + 8 : position + 8 + length]
        position += 8 + length + length % 2  # chunks start at even positions
