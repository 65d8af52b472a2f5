"""Find the left and right images of pairs in folders and zip archives, which are read without unpacking."""

import fnmatch
import functools
import os
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pamcli.errors import InputError, UsageError
from pamcli.files.paths import join_names, natural_key, open_source, pluralize, quote, walk_folders
from pamcli.files.safe_reading import read_text
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.flickr1024.resumable import LOG
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

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if self.member is None:
            with open_source(self.path, str(self)) as file:
                yield file
        else:
            with report_damage(str(self)), _open_archive(self.path).open(self.member) as member:
                yield member

    def read(self) -> RgbImage:
        """Decode the image. Raises InputError if it is missing, damaged, truncated or not an image."""
        if self.member is None:
            return read_image(self.path)
        with self._open() as stream:
            # Reading no more than the declared size limits memory; the last read verifies the checksum.
            data = stream.read(_open_archive(self.path).getinfo(self.member).file_size)
            stream.read(1)
        return read_image(data, name=str(self))

    def size(self) -> tuple[int, int]:
        """Return (width, height), px, of a PNG from its header alone. Raises InputError as `read` does."""
        with self._open() as stream:
            head = stream.read(24)
        if head.startswith(PNG_SIGNATURE) and head[12:16] == b"IHDR" and len(head) == 24:
            width, height = struct.unpack(">II", head[16:])
        else:
            height, width = self.read().pixels.shape[:2]
        return width, height


def find_images(place: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[ImageLocation]:
    """Return the images below a folder (archives included) or in one archive, sorted by name."""
    found: list[ImageLocation] = []
    others = []
    if place.is_file() and place.suffix.lower() == ".zip":
        found += _find_in_archive(place, (), suffixes)
    elif not place.is_dir():
        reason = "is neither a folder nor a zip archive" if place.exists() else "does not exist"
        raise InputError(f"{quote(place)} {reason}", "pass the folder or the archives with the images")
    else:
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
    """Return the files in a zip archive, which are never unpacked to disk. Raises InputError if unsafe."""
    infos = _open_archive(path).infolist()
    danger = "its members overlap" if sum(i.compress_size for i in infos) > path.stat().st_size else ""
    for info in infos:
        if info.flag_bits & _ENCRYPTED:
            raise InputError(f"{quote(path)} is encrypted", "unpack it with its password first")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others unpack blocks whole
            method = f"compression method {info.compress_type} instead of deflate"
            danger = f"member {quote(info.filename)} uses {method}"
        most = min(LARGEST_MEMBER, max(_SMALL, LARGEST_RATIO * info.compress_size))
        if info.file_size > most:
            sizes = f"{info.compress_size:,} to {info.file_size:,} bytes"
            danger = f"member {quote(info.filename)} unpacks from {sizes}"
    if danger:
        raise InputError(f"{quote(path)} is unsafe: {danger}", "pack the images again, or unpack them")
    return [info for info in infos if not info.is_dir()]


def _open_archive(path: Path) -> zipfile.ZipFile:
    with open_source(path, quote(path)):  # reports missing and unreadable files clearly
        state = path.stat()
    return _open_unchanged(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=16)
def _open_unchanged(path: Path, changed: int, size: int) -> zipfile.ZipFile:
    """Cache archives, as reading the directory again for each image would dominate the run time."""
    with report_damage(quote(path)):
        return zipfile.ZipFile(path)


SPLITS = ("train", "validation", "test")

_SPLIT = re.compile(r"(?<![a-z])(train|val|test)(ing|idation)?(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Pair:
    """Two images of high resolution, not yet read."""

    source: str  # data set of the pair: "flickr1024", "middlebury" ...
    name: str  # unique within its source
    left: ImageLocation
    right: ImageLocation
    halved: bool = False  # True if the images are first downscaled by 2, as the authors did with Middlebury

    def __str__(self) -> str:
        return f"{self.source}/{self.name}"


@dataclass(frozen=True)
class Pairs:
    """Pairs in the order in which their patches are numbered."""

    pairs: tuple[Pair, ...]
    unpaired: tuple[str, ...] = ()  # images without a counterpart, a line each
    other_splits: Counter[str] = field(default_factory=Counter)  # number of pairs in the other splits

    def __add__(self, other: "Pairs") -> "Pairs":
        counts = self.other_splits + other.other_splits
        return Pairs(self.pairs + other.pairs, self.unpaired + other.unpaired, counts)


def find_published_pairs(place: Path, split: str, source: str = "flickr1024") -> Pairs:
    """Return the pairs NAME_L, NAME_R below a folder or in a zip archive, nested or flat.

    A folder or archive on its path (Train, Validation.zip, Test_2) assigns an image to a split; otherwise it
    belongs to `split`. An unpacked image takes precedence over one in an archive.
    """
    views: dict[str, dict[str, ImageLocation]] = {"_L": {}, "_R": {}}
    others: set[tuple[str, str]] = set()
    for found in find_images(place):
        stem = os.path.splitext(found.name)[0]
        side, stem = stem[-2:], stem[:-2]
        if side not in views or not stem:
            continue
        belongs, kept = split, []
        for folder in found.folders:
            if match := _SPLIT.search(folder):
                belongs = next(name for name in SPLITS if name.startswith(match[1].lower()))
            elif folder.lower() != "flickr1024" and not folder.lower().endswith(".zip"):
                kept.append(folder)
        name = "/".join([*kept, stem])
        if belongs != split:
            others.add((belongs, name))
            continue
        before = views[side].setdefault(name, found)
        if before is not found and (before.member is None) == (found.member is None):
            reason = f"two images have the name {quote(name)}: {before} and {found}"
            raise InputError(reason, "pass only the folder or archive to use")
        if found.member is None:
            views[side][name] = found
    lefts, rights = views["_L"], views["_R"]
    names = sorted(lefts.keys() & rights.keys(), key=natural_key)
    unpaired = [f"{lefts[name]} has no right image" for name in lefts.keys() - rights.keys()]
    unpaired += [f"{rights[name]} has no left image" for name in rights.keys() - lefts.keys()]
    counts = Counter(name for name, _ in sorted(others, key=lambda each: SPLITS.index(each[0])))
    if not names and not unpaired:
        if counts:
            present = join_names([f"{count} of {name}" for name, count in counts.items()])
            hint = f"use `split` {next(iter(counts))}"
            raise InputError(f"{quote(place)} contains no pair of the split {split}, but {present}", hint)
        raise InputError(
            f"{quote(place)} contains no image pair",
            "expected NAME_L.png and NAME_R.png, in one folder or zip archive, or in Train, Validation and "
            "Test; for other layouts pass NAME:PATH, such as pairs:mine",
        )
    pairs = [Pair(source, name, lefts[name], rights[name]) for name in names]
    return Pairs(tuple(pairs), tuple(sorted(unpaired, key=natural_key)), counts)


def select_pairs(found: Pairs, names: Path | None, *, skip_unpaired: bool) -> tuple[Pair, ...]:
    """Return the pairs that the file `names` lists (None: all), and log the excluded ones."""
    if found.unpaired and not skip_unpaired:
        hint = "add the missing images, or ignore these with `skip_unpaired`"
        raise UsageError(join_names(found.unpaired, "; "), hint)
    for line in found.unpaired:
        LOG.warning("%s and is excluded", line)
    if others := [f"{pluralize(count, 'pair')} of {name}" for name, count in found.other_splits.items()]:
        LOG.info(f"not included: {join_names(others)} (`split`)")
    if names is None:
        return found.pairs
    pairs = filter_by_name(found.pairs, read_text(names).splitlines(), str(names))
    LOG.info(f"{quote(names)} selects {len(pairs)} of {len(found.pairs)} pairs")
    return pairs


def filter_by_name(pairs: Sequence[Pair], lines: Sequence[str], file: str) -> tuple[Pair, ...]:
    """Return the listed pairs in their original order; a line is NAME or SOURCE/NAME, with * for any text."""
    wanted = {line.strip(): False for line in lines if line.strip() and not line.lstrip().startswith("#")}
    patterns = {line: re.compile(fnmatch.translate(line)) for line in wanted if "*" in line}
    taken = []
    for pair in pairs:
        calls = {pair.name, str(pair)}
        hits = calls & wanted.keys()
        hits |= {line for line, pattern in patterns.items() if any(map(pattern.match, calls))}
        wanted |= dict.fromkeys(hits, True)
        if hits:
            taken.append(pair)
    if unused := [line for line, used in wanted.items() if not used]:
        raise UsageError(
            f"{len(unused)} lines of {quote(file)} match no pair: {join_names(unused)}",
            f"pairs have names such as {join_names([str(pair) for pair in pairs[:2]])}" if pairs else None,
        )
    if not taken:
        raise UsageError(f"{quote(file)} lists no pair", "write one name per line")
    return tuple(taken)
