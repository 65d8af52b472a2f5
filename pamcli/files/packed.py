"""Recognise files that hold both views of a pair, without decoding them."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pamcli.files.suffixes import HEIF_SUFFIXES, PACKED_SUFFIXES

_MARKS = {**dict.fromkeys(HEIF_SUFFIXES, b"ster"), **dict.fromkeys((".jpg", ".jpeg"), b"GImage:")}
"""What the metadata of spatial photos and of VR180 photos contain."""
_HEAD = 1 << 18  # bytes at the beginning of a file that hold its metadata


def are_packed(paths: Sequence[str]) -> bool:
    """Return True for one folder, and for files that state that they hold both views."""
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return True
    return bool(paths) and all(map(states_layout, paths))


def states_layout(path: str | Path) -> bool:
    """Return True if a file states that it holds both views: MPO and JPS by suffix, others by metadata."""
    suffix = os.path.splitext(path)[1].lower()
    mark = _MARKS.get(suffix)
    if mark is None or not os.path.isfile(path):
        return suffix in PACKED_SUFFIXES
    with suppress(OSError), open(path, "rb") as stream:
        return mark in stream.read(_HEAD)
    return False
