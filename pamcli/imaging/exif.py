"""What a camera noted in its EXIF data: the orientation, and all that a larger picture keeps."""

from __future__ import annotations

import struct
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import numpy as np
from PIL import ExifTags
from PIL.Image import Exif

from pamcli.imaging.raster import quiet


def exif_orientation(exif: bytes) -> int:
    """The orientation (1..8) in an EXIF block; 1 where there is none, or none that makes sense."""
    found = _notes(exif).get(ExifTags.Base.Orientation)
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def kept_exif(exif: bytes, width: int, height: int) -> bytes:
    """The notes for an upright picture of another size, without the "Exif" before them and the thumbnail.

    Empty where there are none, and where they cannot be read.
    """
    sizes = {
        None: ((ExifTags.Base.ImageWidth, width), (ExifTags.Base.ImageLength, height)),
        ExifTags.IFD.Exif: ((ExifTags.Base.ExifImageWidth, width), (ExifTags.Base.ExifImageHeight, height)),
        ExifTags.IFD.GPSInfo: (),  # looked at, or it would not be written
    }
    notes = _notes(exif)
    try:
        with quiet():
            for directory, sides in sizes.items():
                entries: MutableMapping[int, Any] = notes if directory is None else notes.get_ifd(directory)
                entries.update({tag: side for tag, side in sides if tag in entries})
            if ExifTags.Base.Orientation in notes:
                notes[ExifTags.Base.Orientation] = 1
            return notes.tobytes().removeprefix(b"Exif\0\0") if len(notes) else b""
    except _BROKEN:
        return b""


def _notes(exif: bytes) -> Exif:
    """Broken EXIF data is common and says nothing about the pixels: what can be read of it."""
    notes = Exif()
    if exif:
        with suppress(*_BROKEN), quiet():
            notes.load(b"Exif\0\0" + exif.removeprefix(b"Exif\0\0"))
    return notes


_BROKEN = (SyntaxError, ValueError, TypeError, KeyError, OSError, OverflowError, struct.error)


def upright(samples: np.ndarray, orientation: int) -> np.ndarray:
    """(H, W, ...) as stored -> as it is to be looked at; orientations 5..8 exchange H and W."""
    if orientation >= 5:
        samples = samples.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        samples = samples[::-1]
    if orientation in (2, 3, 6, 7):
        samples = samples[:, ::-1]
    return samples
