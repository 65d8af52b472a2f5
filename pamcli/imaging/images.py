"""Read images and pairs as RGB of 8 or 16 bits, convert their levels, and write images with metadata."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import imageio.v3 as iio
import numpy as np
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.ExifTags import Base
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PpmImagePlugin import PpmImageFile

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.paths import open_source, video_error
from pamcli.files.suffixes import IMAGE_OUTPUT_SUFFIXES
from pamcli.imaging import raster, tiff
from pamcli.imaging.heif import HEIF_BRANDS, read_heif
from pamcli.imaging.jpeg import JPEG, find_nearest_quality, split_mpo
from pamcli.validation import check_arguments

_SUPPORTED = "supported formats are PNG, JPEG, TIFF, WebP, AVIF, HEIC, BMP, PPM and GIF"
_LARGEST_DPI = 65535  # of a JPEG file
_LARGEST_JPEG_EXIF = 65527  # bytes; larger EXIF blocks do not fit into a JPEG file and are dropped
LARGEST_SIDE = {".jpg": 65500, ".jpeg": 65500, ".webp": 16383}  # px, of the formats that have a quality

Levels = tuple[int, int]  # levels of a file that become 0 and the largest one
ALL_LEVELS = 0, 65535
_LOW_CONTRAST = {np.dtype(np.uint8): 0.5, np.dtype(np.uint16): 0.25}
"""Shares of the levels; images that use more are left as they are."""
_OUTLIERS = 0.1, 99.9  # percentiles of both images together that become the lowest and the highest level


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


@dataclass(frozen=True)
class StereoPair:
    """Two views of one size and orientation. Raises InputError if these differ."""

    left: RgbImage
    right: RgbImage
    name: str  # name of the pair in messages
    files: tuple[Path, ...] = ()  # files of the views; empty if `name` describes the source
    same_size: bool = True  # False if a calibration permits views of two sizes
    levels: Levels = ALL_LEVELS
    unstretched: tuple[np.ndarray, ...] = ()
    """Pixels of both views before `stretch_contrast`, if it changed them."""
    stated: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the `Calibration` that the source states for these views; empty if it states none."""
    note: str | None = None  # on how the views were read, for the user
    span: Sequence[float] | None = None
    """Degrees that the views of a VR180 photo span, as `vr180.HALF_SPHERE`."""
    height: int = field(init=False)
    width: int = field(init=False)

    def __post_init__(self) -> None:
        left, right = self.left.pixels.shape, self.right.pixels.shape
        if self.left.orientation != self.right.orientation:
            found = f"{self.left.orientation} and {self.right.orientation}"
            reason = f"{self.name}: the views have different EXIF orientations ({found})"
            raise InputError(reason, "rotate the pixels of both images and remove the orientation tags")
        if left != right and self.same_size:
            names = [*map(str, self.files)] or [f"{self.name}: the left view", "the right view"]
            sizes = f"{names[0]} is {left[1]}x{left[0]} but {names[1]} is {right[1]}x{right[0]}"
            hint = "resize or crop both to one size; pam rectify --calibration FILE accepts the sizes in FILE"
            raise InputError(f"{sizes}: both images of a rectified pair must have the same size", hint)
        object.__setattr__(self, "height", left[0])
        object.__setattr__(self, "width", left[1])

    @property
    def title(self) -> str:
        """File names without folders; equal names appear once."""
        return ", ".join(dict.fromkeys(file.name for file in self.files or (Path(self.name),)))

    def stretch_contrast(self, *, eight_bits: bool = False) -> "StereoPair":
        """Stretch views of low contrast as `stretch_levels` does; others stay unchanged."""
        before = self.left.pixels, self.right.pixels
        left, right, levels = stretch_levels(*before, eight_bits=eight_bits)
        if levels == ALL_LEVELS:
            return self
        views = replace(self.left, pixels=left), replace(self.right, pixels=right)
        return replace(self, left=views[0], right=views[1], levels=levels, unstretched=before)


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
    return _read_view(source, name, max_pixels)


def _read_view(source: Path | bytes, name: str, max_pixels: int | None) -> RgbImage:
    with open_source(source, name) as stream:
        is_jpeg = stream.read(len(JPEG)) == JPEG
        stream.seek(0)
        if is_jpeg and split_mpo(stream, name, expect_pair=False):
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


def read_pair(left: Path, right: Path, *, max_pixels: int | None, same_size: bool = True) -> StereoPair:
    """Read both views. Raises InputError as `read_image` and `StereoPair` do."""
    one, two = _read_view(left, str(left), max_pixels), _read_view(right, str(right), max_pixels)
    return StereoPair(one, two, f"{left}, {right}", (left, right), same_size)


def stretch_levels(
    left: np.ndarray, right: np.ndarray, *, eight_bits: bool = False
) -> tuple[np.ndarray, np.ndarray, Levels]:
    """Stretch images (H, W, 3) of low contrast over all levels, both alike; return the levels used.

    uint16 images are stretched, and with `eight_bits` uint8 images, too.
    """
    kind = left.dtype
    if kind != right.dtype or kind not in _LOW_CONTRAST or (kind == np.uint8 and not eight_bits):
        return left, right, ALL_LEVELS
    some = left[:: max(1, len(left) // 500)].ravel(), right[:: max(1, len(right) // 500)].ravel()
    samples = np.concatenate(some)
    low, high = np.percentile(samples, _OUTLIERS).astype(int).tolist()
    largest = np.iinfo(kind).max
    if not 0 < high - low < _LOW_CONTRAST[kind] * largest:
        return left, right, ALL_LEVELS
    factor = np.float32(largest / (high - low))
    stretched = [left, right]
    for place, view in enumerate(stretched):
        levels = ((view.astype(np.float32) - low) * factor).clip(0, largest)
        stretched[place] = np.rint(levels).astype(kind)
    return stretched[0], stretched[1], (low, high)


def to_uint8(pixels: np.ndarray) -> np.ndarray:
    """Convert uint16 to uint8 with rounding (65535 becomes 255); uint8 stays unchanged."""
    if pixels.dtype == np.uint16:
        pixels = (pixels.astype(np.uint32) + 128) // 257
    return pixels.astype(np.uint8, copy=False)


def choose_downscaling(shape: tuple[int, ...], area: int, width: int) -> int:
    """Return the smallest whole factor that downscales (H, W, ...) to at most an area and a width."""
    return max(1, -(-shape[1] // width), int(np.ceil(np.sqrt(shape[0] * shape[1] / area))))


def downscale_to_uint8(view: np.ndarray, factor: int) -> np.ndarray:
    """Downscale (H, W, ...) uint8 or uint16 (its levels stretched) to uint8 by a whole factor, as means."""
    import cv2

    height, width = view.shape[0] // factor, view.shape[1] // factor
    small = view
    if factor > 1:
        cut = view[: height * factor, : width * factor]
        small = cv2.resize(cut, (width, height), interpolation=cv2.INTER_AREA)
    if small.dtype == np.uint16:
        small = cv2.normalize(small, None, 0, 255, cv2.NORM_MINMAX, cv2.CV_8U)
    return np.ascontiguousarray(small, dtype=np.uint8)


def to_grey(view: np.ndarray) -> np.ndarray:
    """Convert RGB (H, W, 3), uint8 or uint16, to 8-bit grey levels (H, W)."""
    import cv2

    view = np.ascontiguousarray(to_uint8(view))
    return np.asarray(cv2.cvtColor(view, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


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
