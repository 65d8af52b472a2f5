"""Read images as RGB of 8 or 16 bits, and write them with their metadata."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, get_args

import imageio.v3 as iio
import numpy as np
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.ExifTags import Base
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.MpoImagePlugin import MpoImageFile
from PIL.PpmImagePlugin import PpmImageFile

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.paths import video_error
from pamcli.files.safe_reading import open_source
from pamcli.files.suffixes import IMAGE_OUTPUT_SUFFIXES, STEREOGRAM_SUFFIXES, PackedLayout
from pamcli.imaging import raster, tiff
from pamcli.imaging.heif import HEIF_BRANDS, read_heif
from pamcli.validation import check_arguments

_SUPPORTED = "supported formats are PNG, JPEG, TIFF, WebP, AVIF, HEIC, BMP, PPM and GIF"
JPEG = b"\xff\xd8\xff"  # first bytes of a JPEG file
_DISPARITY = "Multi-Frame Image: (Disparity)"
_THUMBNAIL = "Large Thumbnail"
_HINT = "state the layout with `packed` lr, rl, tb or bt"
_LARGEST_DPI = 65535  # of a JPEG file
_LARGEST_JPEG_EXIF = 65527  # bytes; larger EXIF blocks do not fit into a JPEG file and are dropped
LARGEST_SIDE = {".jpg": 65500, ".jpeg": 65500, ".webp": 16383}  # px, of the formats that have a quality

# Annex K of the JPEG standard, which libjpeg scales by the quality.
LUMINANCE = np.array(
    (
        *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55),
        *(14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62),
        *(18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
        *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
    )
)


@dataclass(frozen=True)
class RgbImage:
    """An image in upright orientation, with its metadata."""

    pixels: np.ndarray  # (H, W, 3), RGB, uint8 or uint16; C-contiguous and writable when read from a file
    alpha: np.ndarray | None = None  # (H, W), of the type of `pixels`; None = opaque
    grey: bool = False  # True if the file has one colour channel, which `pixels` repeats three times
    icc_profile: bytes | None = None  # colour profile; None if the file has none or one for inks (CMYK)
    orientation: int = 1  # EXIF orientation of the file (1..8), already applied to `pixels` and `alpha`
    exif: bytes = b""  # EXIF block of the file (time, exposure, place), or empty
    jpeg_quality: int | None = None  # quality (1 to 100) of a JPEG file; None for other formats
    dpi: tuple[float, ...] | None = None  # columns and rows per inch, in upright orientation, if stated

    def __post_init__(self) -> None:
        pixels: Any = self.pixels
        dtype: Any = getattr(pixels, "dtype", type(pixels).__name__)
        shape: tuple[int, ...] = getattr(pixels, "shape", ())
        if dtype not in (np.uint8, np.uint16) or len(shape) != 3 or shape[2] != 3 or not pixels.size:
            raise InputError(f"an image must be (H, W, 3) of uint8 or uint16, got {shape} of {dtype}")


@check_arguments
def read_image(
    source: str | Path | bytes, *, max_pixels: int | None = raster.DEFAULT_MAX_PIXELS, name: str | None = None
) -> RgbImage:
    """Read a PNG, JPEG, TIFF, WebP, AVIF, HEIC, BMP, PPM or GIF file, recognised by its content.

    >>> left = pamcli.read_image("left.png").pixels

    PNG, TIFF and grey PGM keep 16 bits; other formats have 8. CMYK is converted to RGB without colour
    management. A JPEG with several images (a preview, a gain map) yields the first.

    Args:
        source: Path or bytes of a file.
        max_pixels: Largest width times height, checked before decoding; None = no limit.
        name: Name of the source in messages, by default its path.

    Raises:
        InputError: If the file is missing, unreadable, damaged, too large, animated, has several pages, or a
            kind of samples that is not supported.
    """
    name = name or ("the data" if isinstance(source, bytes) else str(source))
    source = Path(source) if isinstance(source, str) else source
    with open_source(source, name) as stream:
        if split_mpo(stream, name, expect_pair=False):
            raise InputError(f"{name} holds both views", "pass this file alone instead of two images")
        return decode_image(stream, name, max_pixels)


def decode_image(stream: BinaryIO, name: str, max_pixels: int | None) -> RgbImage:
    """Read the image (in a JPEG, the first) at the start of a seekable stream; see `read_image`."""
    magic = stream.read(16)
    stream.seek(0)
    for pattern, reader in _READERS:
        if re.match(pattern, magic, re.DOTALL):
            return make_upright(reader(stream, name, max_pixels))
    if re.match(_VIDEO, magic, re.DOTALL):
        raise video_error(name)
    reason = "not an image, or its format is not supported"
    if re.match(rb"P[fF]\s", magic):
        reason = "a PFM of floating-point numbers, not an image"
    raise InputError(f"{name} is {reason}", _SUPPORTED)


def make_upright(decoded: raster.Decoded) -> RgbImage:
    """Return an upright image; a stated orientation overrides that in the EXIF block."""
    samples, stated = decoded
    exif, dpi, orientation = stated.get("exif", b""), stated.get("dpi"), stated.get("orientation")
    if exif and orientation is None:
        orientation = raster.parse_exif(exif).get(Base.Orientation)
    if not isinstance(orientation, int) or not 1 <= orientation <= 8:
        orientation = 1
    if orientation >= 5:
        samples, dpi = samples.swapaxes(0, 1), dpi and dpi[::-1]
    if orientation in (3, 4, 7, 8):
        samples = samples[::-1]
    if orientation in (2, 3, 6, 7):
        samples = samples[:, ::-1]
    channels = samples.shape[2]
    grey = channels <= 2
    color = np.repeat(samples[..., :1], 3, axis=2) if grey else samples[..., :3]
    return RgbImage(
        pixels=np.ascontiguousarray(color),
        alpha=np.ascontiguousarray(samples[..., -1]) if channels in (2, 4) else None,
        grey=grey,
        icc_profile=stated.get("icc_profile"),
        orientation=orientation,
        exif=exif,
        jpeg_quality=stated.get("jpeg_quality"),
        dpi=dpi if dpi and all(1 <= each <= _LARGEST_DPI for each in dpi) else None,
    )


def to_uint8(pixels: np.ndarray) -> np.ndarray:
    """Convert uint16 to uint8 with rounding (65535 becomes 255); uint8 stays unchanged."""
    if pixels.dtype == np.uint16:
        pixels = (pixels.astype(np.uint32) + 128) // 257
    return pixels.astype(np.uint8, copy=False)


def check_encodable(suffix: str, *, height: int, width: int, bits: int, alpha: bool, name: str) -> None:
    """Check before any work that `encode_image` can write such an image. Raises UsageError."""
    suffix = suffix.lower()
    limit = LARGEST_SIDE.get(suffix)
    hint = "use .png or .tif"
    if suffix not in IMAGE_OUTPUT_SUFFIXES:
        reason = f"{suffix or 'a name without a suffix'} is not a supported image format"
        hint = f"use one of {', '.join(IMAGE_OUTPUT_SUFFIXES)}"
    elif bits > 8 and limit:
        reason = f"the image has 16 bits per channel, but {suffix} stores 8"
    elif alpha and suffix in (".jpg", ".jpeg"):
        reason = f"the image has an alpha channel, which {suffix} does not support"
    elif limit and max(height, width) > limit:
        reason = f"{width}x{height} exceeds the limit of {limit} px per side of {suffix}"
    else:
        return
    raise UsageError(f"cannot write {name}: {reason}", hint)


def write_image(path: Path, pixels: np.ndarray) -> None:
    """Write (H, W, 3) RGB as an image in the format of its suffix. Raises UsageError, OutputError."""
    write_atomically(path, encode_image(RgbImage(pixels), path.suffix, name=str(path)))


def encode_image(image: RgbImage, suffix: str, *, name: str, quality: int | None = None) -> bytes:
    """Return the bytes of an image file; `quality`: of JPEG (default 95) and WebP (default lossless).

    Raises UsageError.
    """
    suffix = suffix.lower()
    samples, alpha = image.pixels, image.alpha
    height, width, _ = samples.shape
    bits = 8 * samples.itemsize
    check_encodable(suffix, height=height, width=width, bits=bits, alpha=alpha is not None, name=name)
    if image.grey:  # the rounded mean keeps equal channels unchanged
        samples = ((samples.sum(axis=2, dtype=np.uint32, keepdims=True) + 1) // 3).astype(samples.dtype)
    if alpha is not None:
        samples = np.concatenate([samples, alpha[..., None]], axis=2)
    if samples.shape[2] == 1:
        samples = samples[..., 0]
    exif = raster.update_exif(image.exif, width, height)
    if suffix == ".png":
        return raster.encode_png(samples, image.icc_profile, exif, image.dpi)
    if suffix in (".tif", ".tiff"):
        return tiff.encode_tiff(samples, image.icc_profile, exif, dpi=image.dpi)
    options: dict[str, Any] = {"icc_profile": image.icc_profile} if image.icc_profile else {}
    if exif and (suffix == ".webp" or len(exif) <= _LARGEST_JPEG_EXIF):
        options["exif"] = b"Exif\0\0" + exif
    if suffix == ".webp":
        # exact keeps the colours of transparent pixels
        options |= {"lossless": True, "exact": True} if quality is None else {"quality": quality}
    else:
        options |= {"quality": 95 if quality is None else quality, "subsampling": 0}
        options |= {"dpi": image.dpi} if image.dpi else {}
    encoded: bytes = iio.imwrite("<bytes>", samples, plugin="pillow", extension=suffix, **options)
    return encoded


def encode_mask(mask: np.ndarray) -> bytes:
    """Encode a mask (H, W), bool, as an 8-bit grey PNG: 255 = True, 0 = False."""
    return raster.encode_png(mask.astype(np.uint8) * np.uint8(255))


def try_formats() -> tuple[str, ...]:
    """Write and read each image format in memory, and return their suffixes. Raises InputError on failure."""
    ramp = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    for suffix in IMAGE_OUTPUT_SUFFIXES:
        read = read_image(encode_image(RgbImage(ramp), suffix, name=suffix), name=suffix).pixels
        if read.shape != ramp.shape:
            raise InputError(f"an image of shape {ramp.shape} written as {suffix} is read as {read.shape}")
    return tuple(IMAGE_OUTPUT_SUFFIXES)


def _read_with_pillow(
    plugin: type[ImageFile], stream: BinaryIO, name: str, max_pixels: int | None
) -> raster.Decoded:
    # Image.open (also used by imageio) would try every format and has a global pixel limit, so the plugin's
    # own class is used.
    with raster.report_damage(name):
        with raster.ignore_header_warnings():
            image = plugin(stream)
        raster.check_size(*image.size, name, max_pixels)
        if getattr(image, "is_animated", False):
            raise InputError(f"{name} is animated", "save one frame as a separate image")
        largest = image.tile[0].args[-1] if isinstance(image.tile[0].args, tuple) else None
        if image.mode == "RGB" and isinstance(largest, int) and largest > 255:
            raise InputError(f"{name} is a PPM with 16 bits per channel", "convert it to PNG or TIFF")
        icc_profile = None if image.mode == "CMYK" else image.info.get("icc_profile")
        if image.mode in ("I", "I;16"):
            samples = np.array(image).astype(np.uint16)
        else:
            mode = {"1": "L", "P": "RGB", "CMYK": "RGB"}.get(image.mode, image.mode)
            mode = "RGBA" if "transparency" in image.info else mode
            samples = np.array(image.convert(mode))  # copied, as Pillow's memory is read-only
        tables = image.quantization if isinstance(image, JpegImageFile) else {}
        quality = find_nearest_quality(sum(tables[0])) if 0 in tables else None
        exif, dpi = image.info.get("exif", b""), image.info.get("dpi")
    stated = {"icc_profile": icc_profile, "exif": exif, "jpeg_quality": quality, "dpi": dpi}
    return np.atleast_3d(samples), stated


def read_jpeg_header(stream: BinaryIO, name: str) -> JpegImageFile | None:
    """Read the header of a JPEG file, and None for other files; the stream stays at its start."""
    is_jpeg = stream.read(len(JPEG)) == JPEG
    stream.seek(0)
    if not is_jpeg:
        return None
    with raster.report_damage(name), raster.ignore_header_warnings():
        image = JpegImageFile(stream)
    stream.seek(0)
    return image


def split_mpo(stream: BinaryIO, name: str, *, expect_pair: bool) -> list[bytes]:
    """Return both JPEG views of a stereo camera's MPO, or an empty list for other files.

    Phones store previews and gain maps in the same way: without `expect_pair`, only marked views count.
    """
    image = read_jpeg_header(stream, name)
    if image is None or "mp" not in image.info:
        return []
    base = image.info["mpoffset"]
    with raster.report_damage(name), raster.ignore_header_warnings():
        try:
            entries = (MpoImageFile(stream).mpinfo or {})[0xB002]
        except (SyntaxError, ValueError, KeyError, AssertionError):
            if expect_pair:
                raise
            entries = []
        finally:
            stream.seek(0)
    found = [each for each in entries if each["Attribute"]["MPType"] == _DISPARITY]
    if not found and expect_pair:
        found = [each for each in entries if not each["Attribute"]["MPType"].startswith(_THUMBNAIL)]
    if len(found) < 2:
        return []
    if len(found) > 2:
        raise InputError(f"{name} holds {len(found)} views", "save two of them as separate images")
    data = stream.read()
    stream.seek(0)
    views = []
    for entry in found:
        start = entry["DataOffset"] and entry["DataOffset"] + base
        if start + entry["Size"] > len(data):
            raise InputError(f"{name} is damaged or truncated: a view ends beyond the end of the file")
        views.append(data[start : start + entry["Size"]])
    return views


def read_stated_layout(stream: BinaryIO, name: str) -> PackedLayout:
    """Return the layout in the stereoscopic descriptor of a JPS file (VRex, 1997), by default cross-eyed."""
    image = read_jpeg_header(stream, name)
    segment = dict(image.applist).get("APP3", b"") if image else b""
    if not segment.startswith(b"_JPSJPS_") or len(segment) < 14:
        if name.lower().endswith(STEREOGRAM_SUFFIXES):
            return "rl"
        raise InputError(f"{name} does not state how it holds two views", _HINT)
    _separation, flags, arrangement, kind = segment[10:14]
    if kind != 1:
        raise InputError(f"{name} holds one view according to its header", _HINT)
    left_first = bool(flags & 4)
    if arrangement in (1, 4):
        return "red-cyan" if arrangement == 4 else "rows-lr" if left_first else "rows-rl"
    if arrangement not in (2, 3):
        raise InputError(f"{name} has the unknown layout {arrangement} in its header", _HINT)
    beside = arrangement == 2
    order = ("lr" if left_first else "rl") if beside else ("tb" if left_first else "bt")
    half = "-half" if flags & (2 if beside else 1) else ""
    return next(layout for layout in get_args(PackedLayout) if layout == order + half)


def find_nearest_quality(total: int, places: Any = ...) -> int:
    """Return the quality whose divisors at `places` of the table (row by row) sum up nearest to `total`."""
    qualities = np.arange(100, 0, -1)
    percent = np.where(qualities < 50, 5000 // qualities, 200 - 2 * qualities)[:, None]
    tables = ((LUMINANCE * percent + 50) // 100).clip(1, 255)
    return int(qualities[np.abs(tables[:, places].sum(axis=1) - total).argmin()])


_Reader = Callable[[BinaryIO, str, int | None], raster.Decoded]
_READERS: tuple[tuple[bytes, _Reader], ...] = (
    # first bytes of the file as a regular expression, reader
    (re.escape(raster.PNG_SIGNATURE), raster.read_png),
    (rb"II[*+]\0|MM\0[*+]", tiff.read_tiff),
    (rb"RIFF....WEBP", raster.read_webp),
    (rb"....ftyp(?:" + b"|".join(HEIF_BRANDS) + rb")", read_heif),
    (rb"....ftypavi[fs]", partial(_read_with_pillow, AvifImageFile)),
    (JPEG, partial(_read_with_pillow, JpegImageFile)),
    (rb"GIF8[79]a", partial(_read_with_pillow, GifImageFile)),
    (rb"BM", partial(_read_with_pillow, BmpImageFile)),
    (rb"P[1-6]\s", partial(_read_with_pillow, PpmImageFile)),
)
_VIDEO = (  # AVI, MP4 and QuickTime, Matroska, MPEG, Flash, Windows Media
    rb"RIFF....AVI |....ftyp(iso|mp4|avc|M4V|qt )|\x1a\x45\xdf\xa3|\x00\x00\x01\xba|FLV\x01|\x30\x26\xb2\x75"
)
