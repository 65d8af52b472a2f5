"""Read the views of MPO and JPS files, and the quality of JPEG files."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import BinaryIO, get_args

from PIL.JpegImagePlugin import JpegImageFile
from PIL.MpoImagePlugin import MpoImageFile

from pamcli.errors import InputError
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.raster import ignore_header_warnings, report_damage

JPEG = b"\xff\xd8\xff"  # first bytes of a JPEG file
_DISPARITY = "Multi-Frame Image: (Disparity)"
_THUMBNAIL = "Large Thumbnail"
_HINT = "state the layout with `packed` lr, rl, tb or bt"


def split_mpo(stream: BinaryIO, name: str, *, expect_pair: bool) -> list[bytes]:
    """Return both JPEG views of a stereo camera's MPO, or an empty list for other files.

    Phones store previews and gain maps in the same way: without `expect_pair`, only marked views count.
    """
    if not _is_jpeg(stream):
        return []
    with report_damage(name), ignore_header_warnings():
        image = JpegImageFile(stream)
        if "mp" not in image.info:
            stream.seek(0)
            return []
        base = image.info["mpoffset"]
        try:
            entries = (MpoImageFile(stream).mpinfo or {})[0xB002]
        except (SyntaxError, ValueError, KeyError, AssertionError):
            if expect_pair:
                raise
            entries = []
        finally:
            stream.seek(0)
    kinds = [entry["Attribute"]["MPType"] for entry in entries]
    found = [entry for entry, kind in zip(entries, kinds, strict=True) if kind == _DISPARITY]
    if not found and expect_pair:
        found = [e for e, kind in zip(entries, kinds, strict=True) if not kind.startswith(_THUMBNAIL)]
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


def read_jps_layout(stream: BinaryIO, name: str, *, is_jps: bool) -> PackedLayout:
    """Return the layout in the stereoscopic descriptor of a JPS file (VRex, 1997)."""
    segment = b""
    if _is_jpeg(stream):
        with report_damage(name), ignore_header_warnings():
            segment = dict(JpegImageFile(stream).applist).get("APP3", b"")
        stream.seek(0)
    if not segment.startswith(b"_JPSJPS_") or len(segment) < 14:
        if is_jps:
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


def _is_jpeg(stream: BinaryIO) -> bool:
    magic = stream.read(3)
    stream.seek(0)
    return magic == JPEG


# Annex K of the JPEG standard, which libjpeg scales by the quality.
LUMINANCE = (
    *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
)


def estimate_jpeg_quality(tables: Mapping[int, Sequence[int]]) -> int | None:
    """Return the libjpeg quality (1 to 100) with the nearest luminance table, or None without table 0."""
    return find_nearest_quality(sum(tables[0])) if 0 in tables else None


def find_nearest_quality(given: int, places: Sequence[int] = range(64)) -> int:
    """Return the quality whose divisors at `places` of the table (row by row) sum up nearest to `given`."""
    sums = {
        quality: sum(luminance_table(quality)[place] for place in places) for quality in range(100, 0, -1)
    }
    return min(sums, key=lambda quality: abs(sums[quality] - given))


@cache
def luminance_table(quality: int) -> tuple[int, ...]:
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return tuple(min(max((each * percent + 50) // 100, 1), 255) for each in LUMINANCE)
