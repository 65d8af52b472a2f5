"""Share code between the image readers: decoding errors, the pixel limit, EXIF data, orientation."""

import struct
import threading
import warnings
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import ExifTags
from PIL.Image import Exif

from pamcli.errors import InputError, PamError

DEFAULT_MAX_PIXELS = 400_000_000  # default limit of width times height


@dataclass(frozen=True)
class Raster:
    """A decoded image file as stored: no orientation applied, no channel repeated."""

    samples: np.ndarray  # (H, W, C) uint8 or uint16; C = 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha
    icc_profile: bytes | None = None
    exif: bytes = b""  # EXIF block as stored, with or without the leading "Exif"; empty if absent
    orientation: int | None = None  # EXIF orientation (1..8) if stored outside of `exif`
    jpeg_quality: int | None = None  # quality of a JPEG file according to its quantisation, 1 to 100


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
        detail = (
            " ".join(str(getattr(error, "strerror", None) or error).split())[:120] or type(error).__name__
        )
        # Supported compressions depend on the build of imagecodecs.
        if isinstance(error, ImportError | NotImplementedError) or "not supported" in detail:
            raise InputError(f"{name} has an unsupported format: {detail}") from error
        raise InputError(f"{name} {what}: {detail}") from error


def check_size(width: int, height: int, name: str, max_pixels: int | None) -> None:
    """Check a size before decoding. Raises InputError if it is empty or above `max_pixels`."""
    if width < 1 or height < 1:
        raise InputError(f"{name} has no pixels: it is {width}x{height} according to its header")
    if max_pixels is not None and width * height > max_pixels:
        reason = f"{name} is {width}x{height} = {width * height:,} pixels, over the limit of {max_pixels:,}"
        raise InputError(reason, "downscale it, or raise the limit with `max_pixels` if there is this option")


def read_orientation(exif: bytes) -> int:
    """Return the orientation (1..8) in an EXIF block; 1 if it is missing or invalid."""
    found = parse_exif(exif).get(ExifTags.Base.Orientation)
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def update_exif(exif: bytes, width: int, height: int) -> bytes:
    """Return the EXIF block for an upright image of another size, without thumbnail; empty if unreadable."""
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
            if ExifTags.Base.Orientation in notes:
                notes[ExifTags.Base.Orientation] = 1
            return notes.tobytes().removeprefix(b"Exif\0\0") if len(notes) else b""
    except BROKEN_EXIF:
        return b""


def parse_exif(exif: bytes) -> Exif:
    """Return the readable part of an EXIF block; broken ones are common and do not affect the pixels."""
    notes = Exif()
    if exif:
        with suppress(*BROKEN_EXIF), ignore_header_warnings():
            notes.load(b"Exif\0\0" + exif.removeprefix(b"Exif\0\0"))
    return notes


BROKEN_EXIF = (SyntaxError, ValueError, TypeError, KeyError, OSError, OverflowError, struct.error)


def apply_orientation(samples: np.ndarray, orientation: int) -> np.ndarray:
    """Apply an EXIF orientation to stored samples (H, W, ...); orientations 5..8 exchange H and W."""
    if orientation >= 5:
        samples = samples.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        samples = samples[::-1]
    if orientation in (2, 3, 6, 7):
        samples = samples[:, ::-1]
    return samples
