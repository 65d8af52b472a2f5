"""Find and read images in folders and zip archives without unpacking them."""

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
from pamcli.files.paths import quote, walk_folders
from pamcli.files.safe_reading import open_source
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.imaging.images import RgbImage, read_image
from pamcli.imaging.raster import PNG_SIGNATURE, report_damage

LARGEST_MEMBER = 1 << 30  # bytes, largest unpacked size of an image in an archive
LARGEST_RATIO = 100  # compression ratio of a member above `_SMALL` bytes; images hardly compress further
_SMALL = 10 << 20
_ENCRYPTED = 1
_OTHER_ARCHIVES = (".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")


@dataclass(frozen=True)
class ImageLocation:
    """Location of an image: a file, or a member of a zip archive."""

    path: Path
    member: str | None = None
    folders: tuple[str, ...] = ()  # folders and archives on the way to it from the place that was searched

    @property
    def name(self) -> str:
        return self.path.name if self.member is None else re.split(r"[\\/]", self.member)[-1]

    def __str__(self) -> str:
        return quote(self.path) + (f" ({quote(self.member)})" if self.member is not None else "")

    def read(self) -> RgbImage:
        """Decode the image. Raises InputError if it is missing, damaged, truncated or not an image."""
        if self.member is None:
            return read_image(self.path)
        archive = _open_archive(self.path)
        with report_damage(str(self)), archive.open(self.member) as stream:
            # Reading no more than the declared size limits memory; the last read verifies the checksum.
            data = stream.read(archive.getinfo(self.member).file_size)
            stream.read(1)
        return read_image(data, name=str(self))

    def size(self) -> tuple[int, int]:
        """Return (width, height), px, of a PNG from its header alone. Raises InputError as `read` does."""
        if self.member is None:
            with open_source(self.path, str(self)) as file:
                head = file.read(24)
        else:
            with report_damage(str(self)), _open_archive(self.path).open(self.member) as stream:
                head = stream.read(24)
        if head.startswith(PNG_SIGNATURE) and head[12:16] == b"IHDR" and len(head) == 24:
            width, height = struct.unpack(">II", head[16:])
        else:
            height, width = self.read().pixels.shape[:2]
        return width, height


def find_images(place: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[ImageLocation]:
    """Return the images below a folder (archives included) or in one archive, sorted by name."""
    if place.is_file() and place.suffix.lower() == ".zip":
        return sorted(_find_in_archive(place, (), suffixes), key=lambda found: (found.folders, found.name))
    if not place.is_dir():
        reason = "is neither a folder nor a zip archive" if place.exists() else "does not exist"
        raise InputError(f"{quote(place)} {reason}", "pass the folder or the archives with the images")
    found, others = [], []
    for below, folder, names in walk_folders(place):
        parts = tuple(filter(None, below.split("/")))
        for name in sorted(names):
            suffix = os.path.splitext(name)[1].lower()
            if suffix in suffixes:
                found.append(ImageLocation(folder / name, None, parts))
            elif suffix == ".zip" and (folder / name).is_file():
                found += _find_in_archive(folder / name, (*parts, name), suffixes)
            elif suffix in _OTHER_ARCHIVES:
                others.append(folder / name)
    if others and not found:
        raise UsageError(f"{quote(others[0])} is an archive in an unsupported format", "unpack it")
    return sorted(found, key=lambda found: (found.folders, found.name))


def _find_in_archive(
    path: Path, folders: tuple[str, ...], suffixes: tuple[str, ...]
) -> Iterator[ImageLocation]:
    for info in list_members(path):
        *parts, name = info.filename.replace("\\", "/").split("/")
        hidden = any(part.startswith(".") or part == "__MACOSX" for part in (*parts, name))
        if not hidden and os.path.splitext(name)[1].lower() in suffixes:
            yield ImageLocation(path, info.filename, (*folders, *filter(None, parts)))


def list_members(path: Path) -> list[zipfile.ZipInfo]:
    """Return the files in a zip archive without unpacking them. Raises InputError if it is unsafe."""
    infos = _open_archive(path).infolist()
    dangers = [*filter(None, map(_find_danger, infos))]
    if not dangers and any(info.flag_bits & _ENCRYPTED for info in infos):
        raise InputError(f"{quote(path)} is encrypted", "unpack it with its password first")
    if sum(info.compress_size for info in infos) > path.stat().st_size:
        dangers.append("its members overlap")
    if dangers:
        raise InputError(f"{quote(path)} is unsafe: {dangers[0]}", "pack the images again, or unpack them")
    return [info for info in infos if not info.is_dir()]


def _find_danger(info: zipfile.ZipInfo) -> str | None:
    """Return why a member is unsafe, or None if it is safe."""
    name, parts = quote(info.filename), info.filename.replace("\\", "/").split("/")
    if parts[0] == "" or re.match(r"[A-Za-z]:", info.filename):
        return f"member {name} has an absolute path"
    if ".." in parts:
        return f"the path of member {name} leads out of the archive"
    if stat.S_ISLNK(info.external_attr >> 16):
        return f"member {name} is a link"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"member {name} uses compression method {info.compress_type} instead of deflate"
    if info.file_size > LARGEST_MEMBER:
        return f"member {name} unpacks to {info.file_size:,} bytes"
    if info.file_size > max(_SMALL, LARGEST_RATIO * info.compress_size):
        return f"member {name} unpacks to {info.file_size / max(info.compress_size, 1):,.0f} times its size"
    return None


def _open_archive(path: Path) -> zipfile.ZipFile:
    with open_source(path, quote(path)):  # reports missing and unreadable files clearly
        state = path.stat()
    return _open_unchanged(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=16)
def _open_unchanged(path: Path, changed: int, size: int) -> zipfile.ZipFile:
    """Cache archives, as reading the directory again for each image would dominate the run time."""
    with report_damage(quote(path)):
        return zipfile.ZipFile(path)
