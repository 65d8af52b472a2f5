"""What a camera noted in its EXIF data: the orientation, and all that a larger picture keeps."""

from __future__ import annotations

import struct
from collections.abc import MutableMapping
from typing import Any

import numpy as np
from PIL import ExifTags
from PIL.Image import Exif

from pamcli.imaging.raster import quiet

_ORIENTATION = 0x0112
_SHORT = 3


def exif_orientation(exif: bytes) -> int:
    """The orientation (1..8) in an EXIF block; 1 where there is none, or none that makes sense.

    Broken EXIF data is common and says nothing about the pixels, so it is no error.
    """
    tiff = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, start)
        for entry in range(count):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, start + 2 + 12 * entry)
            if tag == _ORIENTATION and kind == _SHORT and 1 <= value <= 8:
                return int(value)
    except struct.error:
        pass
    return 1


def kept_exif(exif: bytes, width: int, height: int) -> bytes:
    """The notes for an upright picture of another size, without the "Exif" before them and the thumbnail.

    Empty where there are none, and where they cannot be read, which says nothing about the pixels.
    """
    if not exif:
        return b""
    sizes = {
        None: ((ExifTags.Base.ImageWidth, width), (ExifTags.Base.ImageLength, height)),
        ExifTags.IFD.Exif: ((ExifTags.Base.ExifImageWidth, width), (ExifTags.Base.ExifImageHeight, height)),
        ExifTags.IFD.GPSInfo: (),  # looked at, or it would not be written
    }
    notes = Exif()
    try:
        with quiet():
            notes.load(b"Exif\0\0" + exif.removeprefix(b"Exif\0\0"))
            for directory, sides in sizes.items():
                entries: MutableMapping[int, Any] = notes if directory is None else notes.get_ifd(directory)
                entries.update({tag: side for tag, side in sides if tag in entries})
            if _ORIENTATION in notes:
                notes[_ORIENTATION] = 1
            return notes.tobytes().removeprefix(b"Exif\0\0") if len(notes) else b""
    except (SyntaxError, ValueError, TypeError, KeyError, OSError, OverflowError, struct.error):
        return b""


def upright(samples: np.ndarray, orientation: int) -> np.ndarray:
    """(H, W, ...) as stored -> as it is to be looked at; orientations 5..8 exchange H and W."""
    if orientation >= 5:
        samples = samples.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        samples = samples[::-1]
    if orientation in (2, 3, 6, 7):
        samples = samples[:, ::-1]
    return samples
