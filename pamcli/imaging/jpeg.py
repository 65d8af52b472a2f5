"""Read what JPEG files state besides their pixels: views of a stereo camera, their layout, the quality."""

from typing import Any, BinaryIO, get_args

import numpy as np
from PIL.JpegImagePlugin import JpegImageFile
from PIL.MpoImagePlugin import MpoImageFile

from pamcli.errors import InputError
from pamcli.files.suffixes import STEREOGRAM_SUFFIXES, PackedLayout
from pamcli.imaging import raster

JPEG = b"\xff\xd8\xff"  # first bytes of a JPEG file
_DISPARITY = "Multi-Frame Image: (Disparity)"
_THUMBNAIL = "Large Thumbnail"
_HINT = "state the layout with `packed` lr, rl, tb or bt"

# Annex K of the JPEG standard, which libjpeg scales by the quality.
LUMINANCE = np.hstack(
    [
        (16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55),
        (14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62),
        (18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
        (49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
    ]
)


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
