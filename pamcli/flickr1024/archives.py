"""Pictures in folders and in zip archives, found and read without unpacking anything."""

import functools
import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pamcli.errors import InputError, UsageError
from pamcli.files.finding import folders_below, shown
from pamcli.files.guarded import open_source
from pamcli.files.suffixes import PICTURE_SUFFIXES
from pamcli.imaging import png
from pamcli.imaging.images import Picture, read_picture
from pamcli.imaging.raster import decoding

LARGEST_MEMBER = 1 << 30  # bytes to which a picture in an archive may unpack
LARGEST_RATIO = 100
"""How many times smaller than unpacked a member above `_SMALL` may be: pictures hardly get smaller at all."""
_SMALL = 10 << 20
_ENCRYPTED = 1
_OTHER_ARCHIVES = (".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")


@dataclass(frozen=True)
class Location:
    """Where the bytes of a picture are: a file, or a member of a zip archive."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return shown(self.path) + (f" ({shown(self.member)})" if self.member is not None else "")

    def read(self) -> Picture:
        """Decode it. Raises InputError: missing, damaged, truncated, not a picture."""
        if self.member is None:
            return read_picture(self.path)
        archive = _opened(self.path)
        with decoding(str(self)), archive.open(self.member) as stream:
            # Asked for what the directory says, no more is unpacked; the checksum is checked at the end.
            data = stream.read(archive.getinfo(self.member).file_size)
            stream.read(1)
        return read_picture(data, name=str(self))

    def size(self) -> tuple[int, int]:
        """(width, height), pixels, of a PNG from its header alone. Raises InputError as `read` does."""
        if self.member is None:
            with open_source(self.path, str(self)) as file:
                head = file.read(24)
        else:
            with decoding(str(self)), _opened(self.path).open(self.member) as stream:
                head = stream.read(24)
        if head.startswith(png.SIGNATURE) and head[12:16] == b"IHDR" and len(head) == 24:
            width, height = struct.unpack(">II", head[16:])
        else:
            height, width = self.read().pixels.shape[:2]
        return width, height


@dataclass(frozen=True)
class Found:
    """A picture below one of the places that were given."""

    folders: tuple[str, ...]
    """The folders and archives on the way to it, the given place itself left out."""
    name: str
    """Name of the file, with its suffix."""
    location: Location


def pictures_below(place: Path, suffixes: tuple[str, ...] = PICTURE_SUFFIXES) -> list[Found]:
    """Every picture below a folder, in archives too, or in one archive; in an order of names alone.

    Hidden files are passed over. Raises InputError: `place` is neither, an archive that is damaged,
    encrypted, or not to be trusted (see `members`); UsageError: other archives and nothing else.
    """
    if place.is_file() and place.suffix.lower() == ".zip":
        return sorted(_in_archive(place, (), suffixes), key=lambda found: (found.folders, found.name))
    if not place.is_dir():
        what = "is neither a folder nor a zip archive" if place.exists() else "does not exist"
        raise InputError(f"{shown(place)} {what}", "give the folder or the archives with the pictures")
    found, others = [], []
    for below, folder, names in folders_below(place):
        parts = tuple(filter(None, below.split("/")))
        for name in sorted(names):
            suffix = os.path.splitext(name)[1].lower()
            if suffix in suffixes:
                found.append(Found(parts, name, Location(folder / name)))
            elif suffix == ".zip" and (folder / name).is_file():
                found += _in_archive(folder / name, (*parts, name), suffixes)
            elif suffix in _OTHER_ARCHIVES:
                others.append(folder / name)
    if others and not found:
        raise UsageError(f"{shown(others[0])} is an archive of a kind that is not read here", "unpack it")
    return sorted(found, key=lambda found: (found.folders, found.name))


def _in_archive(path: Path, folders: tuple[str, ...], suffixes: tuple[str, ...]) -> Iterator[Found]:
    for info in members(path):
        *parts, name = info.filename.replace("\\", "/").split("/")
        hidden = any(part.startswith(".") or part == "__MACOSX" for part in (*parts, name))
        if not hidden and os.path.splitext(name)[1].lower() in suffixes:
            yield Found((*folders, *filter(None, parts)), name, Location(path, info.filename))


def members(path: Path) -> list[zipfile.ZipInfo]:
    """The files in a zip archive, none of them unpacked.

    Raises InputError: damaged or encrypted; a path that is absolute or leads up, or a link; a member that
    unpacks to more than `LARGEST_MEMBER` or `LARGEST_RATIO`, or members that overlap (so-called bombs).
    """
    infos = _opened(path).infolist()
    harms = [*filter(None, map(_harm, infos))]
    if not harms and any(info.flag_bits & _ENCRYPTED for info in infos):
        raise InputError(f"{shown(path)} is encrypted", "unpack it with its password first")
    if sum(info.compress_size for info in infos) > path.stat().st_size:
        harms.append("its members overlap")
    if harms:
        hint = "archives of pictures have nothing of the kind"
        raise InputError(f"{shown(path)} is refused: {harms[0]}", hint)
    return [info for info in infos if not info.is_dir()]


def _harm(info: zipfile.ZipInfo) -> str | None:
    """Why a member is not to be trusted; None where it is."""
    name, parts = shown(info.filename), info.filename.replace("\\", "/").split("/")
    if parts[0] == "" or re.match(r"[A-Za-z]:", info.filename):
        return f"the path of {name} in it is absolute"
    if ".." in parts:
        return f"the path of {name} in it leads out of it"
    if stat.S_ISLNK(info.external_attr >> 16):
        return f"{name} in it is a link"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"{name} in it is packed by method {info.compress_type}, not by deflation"
    if info.file_size > LARGEST_MEMBER:
        return f"{name} in it unpacks to {info.file_size:,} bytes"
    if info.file_size > max(_SMALL, LARGEST_RATIO * info.compress_size):
        return f"{name} in it unpacks to {info.file_size / max(info.compress_size, 1):,.0f} times its size"
    return None


def _opened(path: Path) -> zipfile.ZipFile:
    with open_source(path, shown(path)):  # what is missing or may not be read, in plain words
        state = path.stat()
    return _kept_open(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=16)
def _kept_open(path: Path, changed: int, size: int) -> zipfile.ZipFile:
    """Kept, since reading the directory of an archive anew for each of its pictures would take longest."""
    with decoding(shown(path)):
        return zipfile.ZipFile(path)
