"""Read and write TIFF: images of up to 16 bits per channel, and maps of floating-point numbers."""

import io
import logging
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import tifffile
from PIL.ExifTags import IFD, Base
from PIL.Image import Exif
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from pamcli.errors import InputError
from pamcli.imaging import raster

SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

# Without logging set up, Python would print tifffile's log. Problems that matter are raised as errors; a
# program with its own logging still gets the records.
logging.getLogger("tifffile").addHandler(logging.NullHandler())

_GREY_WHITE_0, _GREY, _RGB, _PALETTE, _INKS, _YCBCR = 0, 1, 2, 3, 5, 6  # photometric interpretations
_COLORS = {_GREY_WHITE_0: 1, _GREY: 1, _RGB: 3, _PALETTE: 1, _INKS: 4, _YCBCR: 3}
_PREMULTIPLIED, _ALPHA = 1, 2  # kinds of extra samples
_REDUCED, _MASK = 1, 4  # page flags: not separate images
_JPEG = (6, 7)
_LIMITED = (1, 5, 8, 32773, 32946)  # compressions: none, LZW, deflate, PackBits
_SMALLEST = 2731  # their largest ratio: LZW's 12-bit codes stand for up to 4096 bytes
_MOST_PAGES = 10_000
_ORIENTATION, _ICC_PROFILE = 274, 34675
_NOTES = (Base.Make, Base.Model, Base.DateTime, Base.Artist, Base.Copyright)  # EXIF texts of the camera


def read_tiff(stream: BinaryIO, name: str, max_pixels: int | None) -> raster.Decoded:
    """Read an image of 1 to 8 or 16 bits: grey, palette, RGB, or CMYK (converted, without its profile)."""
    with _open_page(stream, name, max_pixels) as page:
        photometric = int(page.photometric)
        if page.sampleformat != 1 or page.dtype is None:
            kind = "floating-point" if page.sampleformat == 3 else "signed or complex"
            raise InputError(f"{name} holds {kind} numbers, but an image has 8 or 16 bits per channel")
        if (bits := page.bitspersample) not in (1, 2, 4, 8, 16):
            raise InputError(f"{name} has {bits} bits per channel, but only up to 8 and 16 are supported")
        colors = _COLORS.get(photometric)
        if colors is None or (photometric == _YCBCR and page.compression not in _JPEG):
            kind = getattr(page.photometric, "name", page.photometric)
            raise InputError(f"{name} is a TIFF with unsupported colours ({kind})", "save it as RGB")
        extra = page.samplesperpixel - colors
        if extra not in (0, 1):
            raise InputError(f"{name} has {page.samplesperpixel} channels", "save it as grey or RGB")
        samples = _read_samples(page)
        color, alpha = samples[..., :colors], samples[..., colors:]
        icc_profile = page.tags.valueof(_ICC_PROFILE)
        if photometric == _GREY_WHITE_0:
            color = np.iinfo(color.dtype).max - color
        elif photometric == _PALETTE:
            table = page.colormap.reshape(3, 2**bits)
            levels = table.T if table.max() <= 255 else table.T >> 8  # some writers store 8 bits
            color = levels.astype(np.uint8)[color[..., 0]]
        elif photometric == _INKS:
            full = int(np.iinfo(color.dtype).max)
            light = full - color.astype(np.uint32)  # of ideal inks
            rgb = (light[..., :3] * light[..., 3:] + full // 2) // full
            color, icc_profile = rgb.astype(color.dtype), None
        # A fourth channel without a declared meaning is alpha; one declared "unspecified" is not.
        meaning = int(page.extrasamples[0]) if page.extrasamples else _ALPHA
        if extra and meaning in (_PREMULTIPLIED, _ALPHA) and color.dtype == alpha.dtype:
            if meaning == _PREMULTIPLIED:
                whole = np.maximum(alpha, 1).astype(np.uint64)
                full = int(np.iinfo(color.dtype).max)
                divided = (color.astype(np.uint64) * full + whole // 2) // whole
                color = np.minimum(divided, full).astype(color.dtype)
            color = np.concatenate([color, alpha], axis=-1)
        stated = {"exif": _read_camera_exif(stream), "dpi": _read_dpi(page), "icc_profile": icc_profile}
        return color, {**stated, "orientation": page.tags.valueof(_ORIENTATION, 1)}


def read_map(stream: BinaryIO, name: str, max_pixels: int | None) -> np.ndarray:
    """Read a map (H, W) of numbers. Raises InputError if it is damaged, too large, or no such map."""
    with _open_page(stream, name, max_pixels) as page:
        if page.dtype is None or page.dtype.kind not in "fiu":
            raise InputError(f"{name} holds {page.dtype} values, but a disparity map holds numbers")
        if page.samplesperpixel != 1:
            raise InputError(f"{name} has {page.samplesperpixel} channels, but a disparity map has one")
        return np.asarray(page.asarray())


def is_depth_map(path: Path) -> bool:
    """Return whether a readable TIFF file describes itself as `encode_depth` does."""
    with path.open("rb") as stream, _open_page(stream, str(path), None) as page:
        return bool(page.description.startswith("metres;"))


def encode_tiff(
    samples: np.ndarray,
    icc_profile: bytes | None = None,
    exif: bytes = b"",
    *,
    description: str | None = None,
    dpi: tuple[float, ...] | None = None,
) -> bytes:
    """Encode (H, W) uint8, uint16, float32 or (H, W, C) uint8, uint16; keep EXIF texts, camera and place."""
    notes = raster.parse_exif(exif)
    found = ((tag.value, raster.keep_accents(str(notes[tag])).encode()) for tag in _NOTES if tag in notes)
    channels = samples.shape[2] if samples.ndim == 3 else 1
    buffer = io.BytesIO()
    tifffile.imwrite(
        buffer,
        samples,
        photometric="rgb" if channels >= 3 else "minisblack",
        planarconfig="contig" if channels > 1 else None,
        extrasamples=["unassalpha"] if channels in (2, 4) else None,
        compression="zlib",
        predictor=True,
        iccprofile=icc_profile,
        resolution=dpi,
        resolutionunit="inch" if dpi else None,
        metadata=None,
        description=description,
        software="pam",
        byteorder="<",
        extratags=[(tag, "s", 0, text, True) for tag, text in found],
    )
    return _add_directories(buffer.getvalue(), notes)


def _add_directories(data: bytes, notes: Exif) -> bytes:
    """Move the directory of a TIFF to the end, and add those of the camera and the place."""
    whole = bytearray(data)
    directories = _read_directories(notes)
    if not directories or whole[2:4] != b"*\0":
        return data
    (first,) = struct.unpack_from("<I", whole, 4)
    (count,) = struct.unpack_from("<H", whole, first)
    entries = [whole[place : place + 12] for place in range(first + 2, first + 2 + 12 * count, 12)]
    for tag, values in directories.items():
        whole += bytes(len(whole) % 2)
        directory = ImageFileDirectory_v2(group=tag)
        directory.update(values)
        entries.append(bytearray(struct.pack("<HHII", tag, 4, 1, len(whole))))
        try:
            with raster.ignore_header_warnings():
                whole += directory.tobytes(len(whole))
        except raster.BROKEN_EXIF:
            return data
    whole += bytes(len(whole) % 2)
    struct.pack_into("<I", whole, 4, len(whole))
    ordered = sorted(entries, key=lambda entry: struct.unpack("<H", entry[:2]))
    return bytes(whole + struct.pack("<H", len(ordered)) + b"".join(ordered) + bytes(4))


def _read_directories(notes: Exif) -> dict[int, dict[int, Any]]:
    found = {tag: notes.get_ifd(tag) for tag in (IFD.Exif, IFD.GPSInfo)}
    return {
        tag: {key: raster.keep_accents(value) for key, value in entries.items() if key != IFD.Interop}
        for tag, entries in found.items()
        if entries
    }


def _read_dpi(page: tifffile.TiffPage) -> tuple[float, ...] | None:
    """Return columns and rows per inch, or None if the tags do not state them."""
    per_inch = {2: 1, 3: 2.54}.get(page.tags.valueof(Base.ResolutionUnit, 2))
    with suppress(TypeError, ValueError, ZeroDivisionError):  # a tag is missing or broken
        (across, one), (down, other) = map(page.tags.valueof, (Base.XResolution, Base.YResolution))
        return across / one * per_inch, down / other * per_inch
    return None


def _read_camera_exif(stream: BinaryIO) -> bytes:
    """Return the EXIF block of a TIFF as in other formats, or nothing if it cannot be read."""
    found, kept = Exif(), Exif()
    with suppress(*raster.BROKEN_EXIF), raster.ignore_header_warnings():
        stream.seek(0)
        found.load_from_fp(stream)
        directories = _read_directories(found)
        for tag, values in directories.items():
            kept.get_ifd(tag).update(values)
        kept.update({tag: raster.keep_accents(found[tag]) for tag in _NOTES if tag in found})
        return kept.tobytes() if directories or len(kept) else b""
    return b""


def _check_directories(stream: BinaryIO) -> None:
    """Raise ValueError if the page directories form a cycle, which tifffile would follow forever."""
    stream.seek(0)
    head = stream.read(16)
    order: Literal["little", "big"] = "little" if head[:2] == b"II" else "big"
    large = head[2:4] in (b"+\0", b"\0+")
    count_size, entry_size, offset_size = (8, 20, 8) if large else (2, 12, 4)
    offset = int.from_bytes(head[8:16] if large else head[4:8], order)
    seen: set[int] = set()
    while offset:
        if offset in seen or len(seen) == _MOST_PAGES:
            raise ValueError("its page directories form a cycle, or are too many")
        seen.add(offset)
        stream.seek(offset)
        stream.seek(entry_size * int.from_bytes(stream.read(count_size), order), io.SEEK_CUR)
        offset = int.from_bytes(stream.read(offset_size), order)


@contextmanager
def _open_page(stream: BinaryIO, name: str, max_pixels: int | None) -> Iterator[tifffile.TiffPage]:
    with raster.report_damage(name):
        _check_directories(stream)
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    with raster.report_damage(name), tifffile.TiffFile(stream) as file:
        pages = [page for page in file.pages if not int(page.subfiletype) & (_REDUCED | _MASK)]
        page = pages[0] if pages else file.pages[0]
        raster.check_size(page.imagewidth, page.imagelength, name, max_pixels)
        if len(pages) > 1:
            raise InputError(f"{name} has {len(pages)} pages", "save one page as a separate file")
        if page.axes not in ("YX", "YXS", "SYX"):
            raise InputError(f"{name} is a volume, not an image")
        # tifffile replaces missing data by zeros.
        segments = list(zip(page.dataoffsets, page.databytecounts, strict=True))
        complete = all(offset and count and offset + count <= size for offset, count in segments)
        stored = page.nbytes * page.bitspersample // (8 * page.dtype.itemsize) if page.dtype else 0
        too_little = int(page.compression) in _LIMITED and stored > _SMALLEST * size
        if len(segments) != math.prod(page.chunked) or not complete or too_little:
            raise EOFError("the file ends too early")
        yield page


def _read_samples(page: tifffile.TiffPage) -> np.ndarray:
    """Return samples (H, W, C) in native byte order, scaled to 8 or 16 bits (except palettes)."""
    samples: np.ndarray = page.asarray()
    samples = np.moveaxis(samples, 0, -1) if page.axes == "SYX" else np.atleast_3d(samples)
    if page.bitspersample == 16:
        return samples.astype(np.uint16, copy=False)
    samples = samples.astype(np.uint8, copy=False)
    is_palette = int(page.photometric) == _PALETTE
    return samples if is_palette else samples * np.uint8(255 // (2**page.bitspersample - 1))
