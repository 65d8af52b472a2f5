"""JPEGs with more than one view inside: MPO holds two JPEGs one after the other, JPS both in one picture."""

from typing import BinaryIO, get_args

from PIL.JpegImagePlugin import JpegImageFile
from PIL.MpoImagePlugin import MpoImageFile

from pamcli.errors import InputError
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.raster import decoding, quiet

_DISPARITY = "Multi-Frame Image: (Disparity)"
_THUMBNAIL = "Large Thumbnail"
_SAY_HOW = "say how it holds both views: `packed` lr, rl, tb or bt"


def mpo_views(stream: BinaryIO, name: str, *, named_so: bool) -> list[bytes]:
    """The two JPEGs in an MPO of a stereo camera that are views of a scene; empty for any other file.

    The stream is left at its start. Phones hide previews and gain maps in JPEGs by the same means, so only
    what is called a view counts. `named_so`: the file as a whole is said to be a pair, and of exactly two
    pictures of any kind both count.
    """
    if not _is_jpeg(stream):
        return []
    with decoding(name), quiet():
        image = JpegImageFile(stream)
        if "mp" not in image.info:
            stream.seek(0)
            return []
        base = image.info["mpoffset"]
        try:
            entries = (MpoImageFile(stream).mpinfo or {})[0xB002]
        except (SyntaxError, ValueError, KeyError, AssertionError):
            if named_so:
                raise
            entries = []
        finally:
            stream.seek(0)
    kinds = [entry["Attribute"]["MPType"] for entry in entries]
    found = [entry for entry, kind in zip(entries, kinds, strict=True) if kind == _DISPARITY]
    if not found and named_so:
        found = [e for e, kind in zip(entries, kinds, strict=True) if not kind.startswith(_THUMBNAIL)]
    if len(found) < 2:
        return []
    if len(found) > 2:
        raise InputError(f"{name} holds {len(found)} views of its scene", "save two of them as pictures")
    data = stream.read()
    stream.seek(0)
    views = []
    for entry in found:
        start = entry["DataOffset"] and entry["DataOffset"] + base
        if start + entry["Size"] > len(data):
            raise InputError(f"{name} is damaged or truncated: the second view ends behind the file")
        views.append(data[start : start + entry["Size"]])
    return views


def jps_layout(stream: BinaryIO, name: str, named_so: bool) -> PackedLayout:
    """The layout in the stereoscopic descriptor of a JPS (VRex, 1997)."""
    descriptor = None
    if _is_jpeg(stream):
        with decoding(name), quiet():
            segments = dict(JpegImageFile(stream).applist)
        stream.seek(0)
        found = segments.get("APP3", b"")
        if found.startswith(b"_JPSJPS_") and len(found) >= 14:
            descriptor = found[10:14]
    if descriptor is None:
        if named_so:
            return "rl"
        raise InputError(f"{name} does not say that it holds two views", _SAY_HOW)
    _separation, flags, arrangement, kind = descriptor
    if kind != 1 or arrangement not in (2, 3):
        what = "one view" if kind != 1 else "views interleaved or as an anaglyph"
        raise InputError(f"{name} says that it holds {what}", "save it side by side, or " + _SAY_HOW)
    beside, left_first = arrangement == 2, bool(flags & 4)
    order = ("lr" if left_first else "rl") if beside else ("tb" if left_first else "bt")
    layout = f"{order}-half" if flags & (2 if beside else 1) else order
    return next(known for known in get_args(PackedLayout) if known == layout)


def _is_jpeg(stream: BinaryIO) -> bool:
    magic = stream.read(3)
    stream.seek(0)
    return magic == b"\xff\xd8\xff"
