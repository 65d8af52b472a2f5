"""Pictures in files: read to RGB of 8 or 16 bits, written with all that was read."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import imageio.v3 as iio
import numpy as np
from PIL.BmpImagePlugin import BmpImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PpmImagePlugin import PpmImageFile

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.finding import video_error
from pamcli.files.guarded import open_source
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES
from pamcli.imaging import png, raster, tiff
from pamcli.imaging.jpeg_views import JPEG, jpeg_quality, mpo_views
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS, Raster, check_size, decoding, quiet
from pamcli.imaging.webp import read_webp

_READABLE = "PNG, JPEG, TIFF, WebP, BMP and PPM can be read"
_VIDEO = (b"\x1a\x45\xdf\xa3", b"\x00\x00\x01\xba", b"FLV\x01", b"\x30\x26\xb2\x75")  # MKV, MPEG, FLV, WMV
MOST_NOTES = 65527
"""Bytes of a camera's notes that a JPEG file has room for; it goes without larger ones."""
_LARGEST_SIDE = {".jpg": 65500, ".jpeg": 65500, ".webp": 16383}


@dataclass(frozen=True)
class Picture:
    """A picture, upright."""

    pixels: np.ndarray
    """(H, W, 3), RGB, uint8 or uint16, C-contiguous and writable when read from a file."""
    alpha: np.ndarray | None = None
    """(H, W), of the type of `pixels`; None = opaque."""
    grey: bool = False
    """The file had one colour channel; `pixels` repeats it three times."""
    icc_profile: bytes | None = None
    """Colour profile of the file; None where there was none, or where it described inks (CMYK)."""
    orientation: int = 1
    """The EXIF orientation that was found (1..8); already applied to `pixels` and `alpha`."""
    exif: bytes = b""
    """The camera's notes as found in the file: time, exposure, place; empty where there are none."""
    jpeg_quality: int | None = None
    """Quality (1 to 100) by the quantisation of the JPEG file that it was read from; None: it was another."""


def read_picture(
    source: str | Path | bytes, *, max_pixels: int | None = DEFAULT_MAX_PIXELS, name: str | None = None
) -> Picture:
    """Read a PNG, JPEG, TIFF, WebP, BMP or PPM file, recognised by its content, not by its suffix.

    >>> left = pamcli.read_picture("left.png").pixels

    source: a path, or the bytes of a file. max_pixels: the largest width x height, checked in the header
    before anything is decoded; None = no limit. name: what messages call the source, by default the path.

    PNG and TIFF keep 16 bits; all else is 8 bits, save 16-bit grey PGM. CMYK is converted to RGB without
    colour management. Of a JPEG with several pictures (a preview, a gain map) the first is taken.

    Raises InputError: missing, a folder, no permission, empty, not a picture, damaged, truncated, over the
    limit, animated, of several pages, floating point, more than 16 bits or an odd number of channels.
    """
    name = name or ("the picture" if isinstance(source, bytes) else str(source))
    source = Path(source) if isinstance(source, str) else source
    with open_source(source, name) as stream:
        magic = stream.read(3)
        stream.seek(0)
        if magic == JPEG and mpo_views(stream, name, named_so=False):
            raise InputError(f"{name} holds both views", "give it alone, in place of a left and a right one")
        return decode_picture(stream, name, max_pixels)


def decode_picture(stream: BinaryIO, name: str, max_pixels: int | None) -> Picture:
    """The picture at the start of a seekable stream; of several in a JPEG the first. As `read_picture`."""
    magic = stream.read(16)
    stream.seek(0)
    decoded = _reader(magic, name)(stream, name, max_pixels)
    orientation = decoded.orientation or raster.exif_orientation(decoded.exif)
    samples = raster.upright(decoded.samples, orientation)
    channels = samples.shape[2]
    grey = channels <= 2
    color = np.repeat(samples[..., :1], 3, axis=2) if grey else samples[..., :3]
    return Picture(
        pixels=np.ascontiguousarray(color),
        alpha=np.ascontiguousarray(samples[..., -1]) if channels in (2, 4) else None,
        grey=grey,
        icc_profile=decoded.icc_profile,
        orientation=orientation,
        exif=decoded.exif,
        jpeg_quality=decoded.jpeg_quality,
    )


def eight_bits(pixels: np.ndarray) -> np.ndarray:
    """uint8 of any shape: 16 bits are rounded to 8 (65535 becomes 255), 8 bits stay as they are."""
    if pixels.dtype == np.uint16:
        pixels = (pixels.astype(np.uint32) + 128) // 257
    return pixels.astype(np.uint8, copy=False)


def check_encodable(
    suffix: str, *, height: int, width: int, bits: int, alpha: bool, name: str, quality: int | None = None
) -> None:
    """Whether `encode_picture` could write such a picture; to be asked before the work is done.

    suffix: ".png", ".tif", ".jpg" ... in either case. bits: 8 or 16. name: the file, for the message.
    quality: None, unless one is asked for. Raises UsageError: unknown suffix, 16 bits or alpha that the
    format has no room for, too large a side, a quality where there is no choice.
    """
    suffix = suffix.lower()
    hint = "take .png or .tif"
    if suffix not in PICTURE_OUTPUT_SUFFIXES:
        said = f"cannot write {name}: {suffix or 'no suffix'} is not a picture format"
        raise UsageError(said, f"take one of {', '.join(PICTURE_OUTPUT_SUFFIXES)}")
    if bits > 8 and suffix in (".jpg", ".jpeg", ".webp"):
        raise UsageError(f"cannot write {name}: the input has 16 bits a channel, {suffix} has 8", hint)
    if alpha and suffix in (".jpg", ".jpeg"):
        raise UsageError(f"cannot write {name}: the input has an alpha channel, {suffix} has none", hint)
    if quality is not None and suffix not in _LARGEST_SIDE:
        raise UsageError(f"cannot write {name} at a quality: {suffix} is lossless", "take .jpg or .webp")
    if max(height, width) > _LARGEST_SIDE.get(suffix, max(height, width)):
        limit = _LARGEST_SIDE[suffix]
        said = f"cannot write {name}: {width} x {height} is over the {limit} that {suffix} can"
        raise UsageError(said, hint)


def write_picture(path: Path, pixels: np.ndarray) -> None:
    """Write (H, W, 3) RGB as a picture whose suffix says the format. Raises UsageError, OutputError."""
    write_atomically(path, encode_picture(Picture(pixels), path.suffix, name=str(path)))


def encode_picture(picture: Picture, suffix: str, *, name: str, quality: int | None = None) -> bytes:
    """The bytes of a file with the picture: depth, alpha, ICC profile, EXIF, greyness, upright.

    suffix: one of `PICTURE_OUTPUT_SUFFIXES`, in either case. quality: of JPEG and WebP, 1 to 100; None:
    lossless WebP, and JPEG at 95, which is never subsampled. PNG and TIFF are lossless. Of a grey picture the
    mean of the channels is written.
    name: the file, for messages. Raises UsageError as `check_encodable` does.
    """
    suffix = suffix.lower()
    pixels, alpha = picture.pixels, picture.alpha
    height, width, _ = pixels.shape
    bits = 8 * pixels.dtype.itemsize
    transparent = alpha is not None
    check_encodable(
        suffix, height=height, width=width, bits=bits, alpha=transparent, name=name, quality=quality
    )
    color = pixels
    if picture.grey:  # the mean, rounded: what is equal in all three stays as it is
        color = ((pixels.sum(axis=2, dtype=np.uint32, keepdims=True) + 1) // 3).astype(pixels.dtype)
    samples = color if alpha is None else np.concatenate([color, alpha[..., None]], axis=2)
    if samples.shape[2] == 1:
        samples = samples[..., 0]
    exif = raster.kept_exif(picture.exif, width, height)
    if suffix == ".png":
        return png.encode_png(samples, picture.icc_profile, exif)
    if suffix in (".tif", ".tiff"):
        return tiff.encode_tiff(samples, picture.icc_profile, exif)
    options: dict[str, Any] = {"icc_profile": picture.icc_profile} if picture.icc_profile else {}
    if exif and (suffix == ".webp" or len(exif) <= MOST_NOTES):
        options["exif"] = b"Exif\0\0" + exif
    if suffix == ".webp":
        # exact: keep the colours under a zero alpha
        options |= {"lossless": True, "exact": True} if quality is None else {"quality": quality}
    else:
        options |= {"quality": 95 if quality is None else quality, "subsampling": 0}
    encoded: bytes = iio.imwrite("<bytes>", samples, plugin="pillow", extension=suffix, **options)
    return encoded


def encode_mask(mask: np.ndarray) -> bytes:
    """(H, W) bool -> the bytes of an 8-bit grey PNG: 255 = True, 0 = False."""
    return png.encode_png(mask.astype(np.uint8) * np.uint8(255))


_Reader = Callable[[BinaryIO, str, int | None], Raster]


def _reader(magic: bytes, name: str) -> _Reader:
    if magic.startswith(png.SIGNATURE):
        return png.read_png
    if magic.startswith(tiff.SIGNATURES):
        return tiff.read_tiff
    if magic.startswith(b"RIFF") and magic[8:12] == b"WEBP":
        return read_webp
    if magic.startswith(b"RIFF") and magic[8:12] == b"AVI ":
        raise video_error(name)
    if magic.startswith(b"\xff\xd8\xff"):
        return partial(_read_with_pillow, JpegImageFile)
    if magic.startswith(b"BM"):
        return partial(_read_with_pillow, BmpImageFile)
    if magic[:1] == b"P" and magic[1:2] in b"123456" and magic[2:3].isspace():
        return partial(_read_with_pillow, PpmImageFile)
    if magic[:1] == b"P" and magic[1:2] in b"fF" and magic[2:3].isspace():
        raise InputError(f"{name} holds floating-point numbers (PFM), not a picture", _READABLE)
    if magic[4:11] in (b"ftypiso", b"ftypmp4", b"ftypavc", b"ftypM4V", b"ftypqt ") or magic.startswith(
        _VIDEO
    ):
        raise video_error(name)
    raise InputError(f"{name} is not a picture that can be read", _READABLE)


def _read_with_pillow(plugin: type[ImageFile], stream: BinaryIO, name: str, max_pixels: int | None) -> Raster:
    # The format's own class, not Image.open (which imageio calls too): that one tries every format there
    # is, and has a pixel limit of its own that could only be moved for the whole program.
    with decoding(name):
        with quiet():
            image = plugin(stream)
        check_size(*image.size, name, max_pixels)
        largest = image.tile[0].args[-1] if isinstance(image.tile[0].args, tuple) else None
        if image.mode == "RGB" and isinstance(largest, int) and largest > 255:
            raise InputError(f"{name} is a PPM of 16 bits a channel", "save it as 16-bit PNG or TIFF")
        icc_profile = None if image.mode == "CMYK" else image.info.get("icc_profile")
        if image.mode in ("I", "I;16"):
            samples = np.array(image).astype(np.uint16)
        else:
            mode = {"1": "L", "P": "RGB", "CMYK": "RGB"}.get(image.mode, image.mode)
            samples = np.array(image.convert(mode))  # a copy: Pillow's own memory is read-only
        quality = jpeg_quality(image.quantization) if isinstance(image, JpegImageFile) else None
    return Raster(np.atleast_3d(samples), icc_profile, image.info.get("exif", b""), jpeg_quality=quality)


def try_formats() -> tuple[str, ...]:
    """Write and read each format that pictures are written in, in memory; the formats, by their suffixes.

    Raises InputError: a picture comes back as another one.
    """
    ramp = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    for suffix in PICTURE_OUTPUT_SUFFIXES:
        read = read_picture(encode_picture(Picture(ramp), suffix, name=suffix), name=suffix).pixels
        if read.shape != ramp.shape:
            raise InputError(f"a picture as {suffix} comes back as {read.shape}")
    return tuple(PICTURE_OUTPUT_SUFFIXES)
