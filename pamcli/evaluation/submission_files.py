"""The single files of a submission, checked byte by byte: disparity as PNG or PFM, runtime as text."""

from __future__ import annotations

import io
import math
import re

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.imaging import png

_MAX_PIXELS = 100_000_000  # Middlebury's largest picture has 6 million
_PFM_HEADER = re.compile(rb"Pf\s+(\d{1,6})\s+(\d{1,6})\s+(-?\d+(?:\.\d*)?)(?:\r\n|\s)")


def check_disparity(
    where: str, data: bytes, picture_size: tuple[int, int] | None, *, holes: bool = True
) -> None:
    """Raise InputError unless `data` is a disparity file that a benchmark can take.

    where: what the message calls it, ending in the file's name; the suffix says the format: `.png` is
    16 bits, 256 for each pixel, 0 = no estimate; else PFM, +inf = no estimate. picture_size: (H, W), or None
    where it is not known. holes: whether pixels without an estimate are taken.
    """
    disparity = _from_png(where, data) if where.endswith(".png") else _from_pfm(where, data)
    height, width = disparity.shape
    if picture_size is not None and picture_size != (height, width):
        wanted = f"{picture_size[1]} x {picture_size[0]}"
        raise InputError(f"{where} has {width} x {height} pixels, its picture {wanted}")
    known = disparity[disparity != np.inf]
    if np.isnan(known).any() or (known == -np.inf).any():
        raise InputError(f"{where} holds NaN or -inf", "a pixel without an estimate is +inf")
    if known.size == 0:
        raise InputError(f"{where} has no estimate at all")
    if not holes and known.size < disparity.size:
        raise InputError(
            f"{where}: {disparity.size - known.size} pixels have no estimate, and a dense file must have all",
            "fill the holes first",
        )
    if (low := float(known.min())) < 0:
        raise InputError(f"{where} holds a negative disparity, {low:g} px", "left disparities are positive")
    high = float(known.max())
    if high > width:
        raise InputError(f"{where} holds a disparity of {high:g} px in a picture {width} px wide")
    if high < 1:
        raise InputError(
            f"{where}: the largest disparity is {high:g} px", "is it divided by the width, or by 256?"
        )


def check_seconds(where: str, data: bytes, before: str) -> None:
    """Raise InputError unless `data` is a runtime in seconds: a positive number behind the text `before`."""
    text = data.decode("ascii", "backslashreplace").strip()
    try:
        seconds = float(text.removeprefix(before)) if text.startswith(before) else math.nan
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"{where} should hold {before + 'the seconds'!r}, and holds {text[:40]!r}")


def _from_png(where: str, data: bytes) -> NDArray[np.float32]:
    """(H, W), pixels, inf = no estimate."""
    if not data.startswith(png.SIGNATURE):
        raise InputError(f"{where} is not a PNG")
    samples = png.read_png(io.BytesIO(data), where, _MAX_PIXELS).samples
    if samples.dtype != np.uint16 or samples.shape[2] != 1:
        bits = 8 * samples.dtype.itemsize
        raise InputError(
            f"{where} has {samples.shape[2]} channel(s) of {bits} bits, not one of 16",
            "disparities are stored in 16 bits, 256 for each pixel",
        )
    units = samples[..., 0]
    return np.where(units > 0, units.astype(np.float32) / 256, np.float32(np.inf))


def _from_pfm(where: str, data: bytes) -> NDArray[np.float32]:
    """(H, W), pixels, as they lie in the file, but for the order of the rows."""
    header = _PFM_HEADER.match(data)
    if header is None or float(header[3]) == 0:
        raise InputError(f"{where} is not a grey PFM: it begins with {data[:12]!r}")
    width, height = int(header[1]), int(header[2])
    held = len(data) - header.end()
    if held != 4 * width * height or not held:
        raise InputError(
            f"{where}: {held} bytes of pixels where {width} x {height} need {4 * width * height}"
        )
    order = "<f4" if float(header[3]) < 0 else ">f4"
    return np.frombuffer(data, order, offset=header.end()).reshape(height, width).astype(np.float32)
