"""Read and write PNG of 8 and 16 bits: libpng decodes, libdeflate encodes, chunks are handled here.

Pillow and imageio reduce 16-bit colour to 8 bits. imagecodecs keeps it, but ignores ICC profiles and EXIF
data, and libpng prints warnings about them; so only the pixels are passed to it.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from pamcli.errors import InputError
from pamcli.imaging.raster import Raster, check_size, report_damage

SIGNATURE = b"\x89PNG\r\n\x1a\n"

_FOR_THE_DECODER = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_LARGEST_PROFILE = 1 << 24  # bytes; more than any real profile, to limit what a crafted file unpacks to
_DEFLATED = 1032  # largest compression ratio of deflate
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type of the header
_LARGEST_CHUNK = 1 << 30  # bytes; the format allows twice as many


def read_png(stream: BinaryIO, name: str, max_pixels: int | None) -> Raster:
    """Decode a PNG. Raises InputError if it is too large, animated, damaged or truncated."""
    import imagecodecs

    pixels = [SIGNATURE]
    icc_profile = None
    exif = b""
    with report_damage(name):
        stream.seek(len(SIGNATURE))
        for kind, data in _read_chunks(stream):
            if kind == b"IHDR":
                width, height, depth, colors = struct.unpack_from(">IIBB", data)
                check_size(width, height, name, max_pixels)
            elif kind == b"acTL" and struct.unpack_from(">I", data)[0] > 1:
                raise InputError(f"{name} is animated", "save one frame as a separate image")
            elif kind == b"iCCP":
                icc_profile = _unpack_profile(data)
            elif kind == b"eXIf":
                exif = data
            if kind in _FOR_THE_DECODER:
                pixels += _make_chunk(kind, data)
        bits = width * height * depth * _CHANNELS[colors]
        if bits > 8 * _DEFLATED * sum(map(len, pixels)):
            raise EOFError("the file ends too early")
        samples = imagecodecs.png_decode(b"".join(pixels))
    return Raster(np.atleast_3d(samples), icc_profile, exif)


def encode_png(samples: np.ndarray, icc_profile: bytes | None = None, exif: bytes = b"") -> bytes:
    """Encode (H, W) or (H, W, C) samples, uint8 or uint16, C as in `Raster`; `exif` has no leading "Exif"."""
    import imagecodecs

    # libpng would compress with zlib. libdeflate takes half the time for photographs and a quarter for grey
    # and 16 bits, and its fastest level makes files as small; the filter is always the same.
    height, width, channels = np.atleast_3d(samples).shape
    rows = samples.astype(samples.dtype.newbyteorder(">"), order="C", copy=False).view(np.uint8)
    rows = rows.reshape(height, -1)
    pixel = rows.shape[1] // width  # bytes
    filtered = np.empty((height, 1 + rows.shape[1]), np.uint8)
    filtered[:, 0] = 1  # SUB: the difference to the pixel on the left
    filtered[:, 1 : 1 + pixel] = rows[:, :pixel]
    np.subtract(rows[:, pixel:], rows[:, :-pixel], out=filtered[:, 1 + pixel :])
    packed = bytes(imagecodecs.deflate_encode(filtered, level=1))  # type: ignore[arg-type]
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    parts = [SIGNATURE]
    parts += _make_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8 * samples.itemsize, kind, 0, 0, 0))
    parts += _make_chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(icc_profile)) if icc_profile else ()
    parts += _make_chunk(b"eXIf", exif) if exif else ()
    for start in range(0, len(packed), _LARGEST_CHUNK):
        parts += _make_chunk(b"IDAT", packed[start : start + _LARGEST_CHUNK])
    return b"".join((*parts, *_make_chunk(b"IEND", b"")))


def _read_chunks(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    start = stream.tell()
    end = stream.seek(0, io.SEEK_END)
    stream.seek(start)

    def read(count: int) -> bytes:
        if count > end - stream.tell():  # before Python allocates memory for it
            raise EOFError("the file ends too early")
        return stream.read(count)

    kind = b""
    while kind != b"IEND":
        length, kind = struct.unpack(">I4s", read(8))
        data, checksum = read(length), read(4)
        if _make_chunk(kind, data)[-1] != checksum:
            raise ValueError(f"wrong checksum in {kind.decode('ascii', 'replace')}")
        yield kind, data


def _make_chunk(kind: bytes, data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return length and kind, data, and checksum of a chunk."""
    checksum = zlib.crc32(data, zlib.crc32(kind))
    return struct.pack(">I4s", len(data), kind), data, checksum.to_bytes(4, "big")


def _unpack_profile(data: bytes) -> bytes | None:
    """Return the unpacked profile, or None if it is broken, as the pixels are valid without it."""
    _, _, packed = data.partition(b"\0")
    unpacker = zlib.decompressobj()
    try:
        profile = unpacker.decompress(packed[1:], _LARGEST_PROFILE)  # the first byte is the method, zlib
    except zlib.error:
        return None
    return profile if unpacker.eof else None
