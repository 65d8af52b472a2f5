"""Decode PNG and WebP, encode PNG, and share errors, the pixel limit and EXIF data with other readers.

libpng decodes PNG, libdeflate encodes it, chunks are handled here: Pillow and imageio reduce 16-bit colour to
8 bits; imagecodecs keeps it, but ignores ICC profiles and EXIF data. Pillow's WebP reader would allocate the
canvas before its size is known, so the header is parsed.
"""

import io
import re
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np
from PIL import ExifTags
from PIL.Image import Exif

from pamcli.errors import InputError, PamError

DEFAULT_MAX_PIXELS = 400_000_000  # default limit of width times height
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_FOCAL_LENGTHS = [tag for tag in ExifTags.Base if tag.name.startswith("Focal")]
_INCH = 0.0254  # m
_LARGEST_PROFILE = 1 << 24  # bytes; more than any real profile, to limit what a crafted file unpacks to
_DEFLATED = 1032  # largest compression ratio of deflate
_LARGEST_CHUNK = 1 << 30  # bytes; the format allows twice as many


Decoded = tuple[np.ndarray, dict[str, Any]]
"""Samples (H, W, C) as stored, uint8 or uint16; C = 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha. The
dict holds fields of `images.RgbImage` as the file states them; `orientation` overrides that in `exif`."""

_filter_lock = threading.Lock()


@contextmanager
def ignore_header_warnings() -> Iterator[None]:
    """Silence warnings about headers: Pillow's about broken EXIF data, numpy's about Python 2 files.

    Warning filters are global, so one thread at a time holds this, briefly, and it names the modules.
    """
    with _filter_lock, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"(PIL|numpy|pamcli\.imaging)\b")
        yield


@contextmanager
def report_damage(name: str, what: str = "is damaged or truncated") -> Iterator[None]:
    """Convert any decoder error on a damaged file into an InputError with the name and the message `what`."""
    try:
        yield
    except (PamError, MemoryError):
        raise
    except Exception as error:  # libraries raise almost any class on unexpected files
        text = str(getattr(error, "strerror", None) or error)
        detail = " ".join(text.split())[:120] or type(error).__name__
        # Supported compressions depend on the builds of imagecodecs and Pillow.
        is_missing = re.search("not (supported|installed)", detail)
        if is_missing or isinstance(error, ImportError | NotImplementedError):
            raise InputError(f"{name} has an unsupported format: {detail}") from error
        raise InputError(f"{name} {what}: {detail}") from error


def check_size(width: int, height: int, name: str, max_pixels: int | None) -> None:
    """Check a size before decoding. Raises InputError if it is empty or above `max_pixels`."""
    if width < 1 or height < 1:
        raise InputError(f"{name} has no pixels: it is {width}x{height} according to its header")
    if max_pixels is not None and width * height > max_pixels:
        reason = f"{name} is {width}x{height} = {width * height:,} pixels, over the limit of {max_pixels:,}"
        hint = "downscale it; commands for image pairs can raise the limit with `max_pixels`"
        raise InputError(reason, hint)


def check_map(values: np.ndarray, what: str = "a disparity map") -> None:
    """Raise InputError unless an array is a map (H, W) of floating-point numbers with at least one pixel."""
    if values.ndim != 2 or values.dtype.kind != "f" or not values.size:
        reason = f"{what} must have shape (H, W) and floating-point numbers"
        raise InputError(f"{reason}, got {values.shape} {values.dtype}")


def update_exif(exif: bytes, width: int, height: int, *, rectified: bool = False) -> bytes:
    """Return the EXIF block for an upright image of another size, without thumbnail; empty if unreadable.

    rectified: drop the focal lengths of the camera, which do not describe a rectified image.
    """
    sizes = {
        None: ((ExifTags.Base.ImageWidth, width), (ExifTags.Base.ImageLength, height)),
        ExifTags.IFD.Exif: ((ExifTags.Base.ExifImageWidth, width), (ExifTags.Base.ExifImageHeight, height)),
        ExifTags.IFD.GPSInfo: (),  # must be read, or it would not be written
    }
    notes = parse_exif(exif)
    try:
        with ignore_header_warnings():
            for directory, sides in sizes.items():
                entries: MutableMapping[int, Any] = notes if directory is None else notes.get_ifd(directory)
                entries.update({tag: side for tag, side in sides if tag in entries})
                for tag in _FOCAL_LENGTHS if rectified else ():
                    entries.pop(tag, None)
                entries.update({tag: keep_accents(value) for tag, value in entries.items()})
            if ExifTags.Base.Orientation in notes:
                notes[ExifTags.Base.Orientation] = 1
            return notes.tobytes().removeprefix(b"Exif\0\0") if len(notes) else b""
    except BROKEN_EXIF:
        return b""


class _Latin(str):
    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        return super().encode("latin-1", "replace")


def keep_accents(value: Any) -> Any:
    """Return an EXIF value that Pillow writes as it reads it: texts as Latin-1, not as ASCII."""
    return _Latin(value) if isinstance(value, str) else value


def parse_exif(exif: bytes) -> Exif:
    """Return the readable part of an EXIF block; broken ones are common and do not affect the pixels."""
    notes = Exif()
    if exif:
        with suppress(*BROKEN_EXIF), ignore_header_warnings():
            notes.load(b"Exif\0\0" + exif.removeprefix(b"Exif\0\0"))
    return notes


BROKEN_EXIF = (SyntaxError, ValueError, TypeError, KeyError, OSError, OverflowError, struct.error)


def read_png(stream: BinaryIO, name: str, max_pixels: int | None) -> Decoded:
    """Decode a PNG. Raises InputError if it is too large, animated, damaged or truncated."""
    import imagecodecs

    pixels = [PNG_SIGNATURE]
    icc_profile, exif, kind, dpi = None, b"", b"", None
    with report_damage(name):
        end = stream.seek(0, io.SEEK_END)
        stream.seek(len(PNG_SIGNATURE))
        while kind != b"IEND":
            head = stream.read(8)
            length, kind = int.from_bytes(head[:4]), head[4:]
            if len(head) < 8 or length + 4 > end - stream.tell():  # before Python allocates memory for it
                raise EOFError("the file ends too early")
            data = stream.read(length)
            checksum = stream.read(4)
            if checksum != zlib.crc32(data, zlib.crc32(kind)).to_bytes(4):
                raise ValueError(f"wrong checksum in {kind.decode('ascii', 'replace')}")
            if kind in (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"):
                pixels += head, data, checksum
            if kind == b"IHDR":
                width, height, depth, colors = struct.unpack_from(">IIBB", data)
                check_size(width, height, name, max_pixels)
            elif kind == b"acTL" and struct.unpack_from(">I", data)[0] > 1:
                raise InputError(f"{name} is animated", "save one frame as a separate image")
            elif kind == b"iCCP":
                unpacker = zlib.decompressobj()
                with suppress(zlib.error):  # the pixels are valid without a profile
                    profile = unpacker.decompress(data.partition(b"\0")[2][1:], _LARGEST_PROFILE)
                    icc_profile = profile if unpacker.eof else None
            elif kind == b"eXIf":
                exif = data
            elif kind == b"pHYs" and len(data) == 9 and data[8] == 1:  # pixels per metre
                across, down = struct.unpack_from(">II", data)
                dpi = across * _INCH, down * _INCH
        bits = width * height * depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colors]
        if bits > 8 * _DEFLATED * sum(map(len, pixels)):
            raise EOFError("the file ends too early")
        samples = imagecodecs.png_decode(b"".join(pixels))
    return np.atleast_3d(samples), {"icc_profile": icc_profile, "exif": exif, "dpi": dpi}


def encode_png(
    samples: np.ndarray,
    icc_profile: bytes | None = None,
    exif: bytes = b"",
    dpi: tuple[float, ...] | None = None,
) -> bytes:
    """Encode (H, W) or (H, W, C), uint8 or uint16, C as in `Decoded`; `exif` has no leading "Exif"."""
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
    parts = [PNG_SIGNATURE]
    parts += _make_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8 * samples.itemsize, kind, 0, 0, 0))
    parts += _make_chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(icc_profile)) if icc_profile else ()
    if dpi:
        parts += _make_chunk(b"pHYs", struct.pack(">IIB", *(round(each / _INCH) for each in dpi), 1))
    parts += _make_chunk(b"eXIf", exif) if exif else ()
    for start in range(0, len(packed), _LARGEST_CHUNK):
        parts += _make_chunk(b"IDAT", packed[start : start + _LARGEST_CHUNK])
    return b"".join((*parts, *_make_chunk(b"IEND", b"")))


def _make_chunk(kind: bytes, data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return length and kind, data, and checksum of a chunk."""
    return struct.pack(">I4s", len(data), kind), data, zlib.crc32(data, zlib.crc32(kind)).to_bytes(4)


def read_webp(stream: BinaryIO, name: str, max_pixels: int | None) -> Decoded:
    """Decode a WebP. Raises InputError if it is too large, animated, damaged or truncated."""
    import imagecodecs

    with report_damage(name):
        width, height = _read_webp_size(stream.read(30))
        check_size(width, height, name, max_pixels)
        stream.seek(0)
        data = stream.read()
        chunks, position = {}, 12
        while position + 8 <= len(data):
            kind, length = struct.unpack_from("<4sI", data, position)
            chunks[kind] = data[position + 8 : position + 8 + length]
            position += 8 + length + length % 2  # chunks start at even positions
        if chunks.get(b"VP8X", b"\0")[0] & 2:
            raise InputError(f"{name} is animated", "save one frame as a separate image")
        samples = imagecodecs.webp_decode(data)
    stated = {"icc_profile": chunks.get(b"ICCP"), "exif": chunks.get(b"EXIF", b"")}
    return np.atleast_3d(samples), stated


def _read_webp_size(header: bytes) -> tuple[int, int]:
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
