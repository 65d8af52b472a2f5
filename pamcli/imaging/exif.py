"""The orientation that a camera noted in its EXIF data."""

from __future__ import annotations

import struct

import numpy as np

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


def upright(samples: np.ndarray, orientation: int) -> np.ndarray:
    """(H, W, ...) as stored -> as it is to be looked at; orientations 5..8 exchange H and W."""
    if orientation >= 5:
        samples = samples.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        samples = samples[::-1]
    if orientation in (2, 3, 6, 7):
        samples = samples[:, ::-1]
    return samples
