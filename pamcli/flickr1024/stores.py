"""The training patches of PASSRnet's and iPASSR's authors (paper, section 5.4), and how they lie on disk.

Both views are cut to a multiple of the scale, reduced by MATLAB's antialiased bicubic and rounded to 8 bits;
windows of 30 x 90 pixels with a stride of 20 are taken from the low resolution, and what they show from the
high one. The authors' loops begin at the third pixel and end before the last window that would fit.

Folders, as the authors' script writes them, one for each patch:

    OUT/patches_x4/000001/hr0.png, hr1.png, lr0.png, lr1.png
    OUT/patches_x4.csv, OUT/patches_x4.json         manifest and index; beside, for nothing else may lie in it

Packed, all pixels in one file, of which a patch is a window:

    OUT/x4/pixels.npy                               uint8; of each pair (H, 2, W, 3) and (H/4, 2, W/4, 3)
    OUT/x4/manifest.csv, OUT/x4/index.json

Patches overlap nearly sevenfold, so whole pictures take a seventh of the room, which then fits into
memory; the rows of both views lie side by side, so a patch is two short runs of bytes. `numpy.load(...,
mmap_mode="r")` opens the file; the index holds the offsets.

The manifest of either is a CSV file with a line a patch: its number, the data set and the picture that it is
from, the row and the column of its top left pixel and its height and width in low resolution, and the SHA-256
of its pixels (high left, high right, low left, low right).
"""

import csv
import errno
import hashlib
import io
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field

from pamcli.errors import InputError
from pamcli.files.atomic import write_atomically, writing
from pamcli.files.finding import csv_text, shown
from pamcli.files.guarded import open_source
from pamcli.files.stored import Text, Whole, read_json, understood
from pamcli.flickr1024.pairs import Pair
from pamcli.flickr1024.unfinished import Request
from pamcli.imaging.images import eight_bits
from pamcli.imaging.png import encode_png
from pamcli.imaging.raster import decoding
from pamcli.imaging.resize import imresize

HEIGHT, WIDTH = 30, 90  # of a patch, pixels of low resolution
STRIDE = 20
SCALES = (2, 4)
FORMAT = 1
HEADER = 128  # bytes before the pixels in pixels.npy
VIEW_FILES = ("hr0.png", "hr1.png", "lr0.png", "lr1.png")
"""Files of a patch's folder, in the order of the fields of `Patch`."""
MANIFEST_COLUMNS = ("patch", "source", "picture", "row", "column", "height", "width", "sha256")

StoreName = Literal["packed", "folders"]
Pixels = NDArray[np.uint8]
LARGEST_SIDE = 65_536
Side = Annotated[int, Field(strict=True, ge=1, le=LARGEST_SIDE)]
"""Pixels of a picture's width or height."""

ANEW = "remove what was prepared and prepare it anew"


@dataclass(frozen=True)
class Views:
    """Both views of a pair in both resolutions, side by side row by row."""

    high: Pixels
    """(H, 2, W, 3): [:, 0] is the left view, [:, 1] the right one."""
    low: Pixels
    """(H / scale, 2, W / scale, 3)."""


class Patch(NamedTuple):
    """What a training step sees. Left and right are (30, 90, 3), and (30 scale, 90 scale, 3)."""

    high_left: Pixels
    high_right: Pixels
    low_left: Pixels
    low_right: Pixels

    def checksum(self) -> str:
        """SHA-256 of the pixels: high left, high right, low left, low right."""
        digest = hashlib.sha256()
        for view in self:
            digest.update(np.ascontiguousarray(view).data)
        return digest.hexdigest()


def boxes(height: int, width: int) -> list[tuple[int, int]]:
    """(row, column) of the top left pixel of every patch of a low-resolution picture, counted from 0."""
    rows, columns = _places(height, width)
    return [(row, column) for row in rows for column in columns]


def _places(height: int, width: int) -> tuple[range, range]:
    # 3 : 20 : height - 33 in MATLAB, which counts from 1 and takes the end in.
    return range(2, height - HEIGHT - 3, STRIDE), range(2, width - WIDTH - 3, STRIDE)


def cut_size(width: int, height: int, scale: int, halved: bool) -> tuple[int, int]:
    """(width, height) of the high resolution that is left of a picture of this size."""
    if halved:
        width, height = -(-width // 2), -(-height // 2)
    return width - width % scale, height - height % scale


def read_views(pair: Pair, scale: int) -> Views:
    """Read a pair and make its low resolution.

    Pictures of 16 bits are rounded to 8. Raises InputError: a picture that cannot be read, or two sizes.
    """
    left, right = (eight_bits(location.read().pixels) for location in (pair.left, pair.right))
    if left.shape != right.shape:
        here, there = (f"{view.shape[1]} x {view.shape[0]}" for view in (right, left))
        raise InputError(f"{pair.right} is {here}, the left picture {pair.left} is {there}")
    if pair.halved:
        left, right = (imresize(view, 1 / 2).astype(np.uint8, copy=False) for view in (left, right))
    height, width = (side - side % scale for side in left.shape[:2])
    high = np.stack([left[:height, :width], right[:height, :width]], axis=1)
    low = np.stack([imresize(high[:, side], 1 / scale) for side in (0, 1)], axis=1)
    return Views(high, low.astype(np.uint8, copy=False))


def patch_at(views: Views, row: int, column: int) -> Patch:
    """The patch whose top left pixel is there in low resolution; arrays of its own, not views."""

    def window(pixels: Pixels, scale: int) -> Pixels:
        rows, columns = (slice(at * scale, (at + n) * scale) for at, n in ((row, HEIGHT), (column, WIDTH)))
        return np.ascontiguousarray(pixels[rows, :, columns].transpose(1, 0, 2, 3))

    scale = views.high.shape[0] // views.low.shape[0]
    return Patch(*window(views.high, scale), *window(views.low, 1))


@dataclass(frozen=True)
class StorePaths:
    """Where a store and what belongs to it lie below an output folder."""

    store: Path
    manifest: Path
    index: Path

    @staticmethod
    def of(out: Path, scale: int, store: StoreName) -> "StorePaths":
        if store == "packed":
            folder = out / f"x{scale}"
            return StorePaths(folder, folder / "manifest.csv", folder / "index.json")
        name = f"patches_x{scale}"
        return StorePaths(out / name, out / f"{name}.csv", out / f"{name}.json")


@pydantic.dataclasses.dataclass(frozen=True)
class PackedPicture:
    """A pair in a store: where it lies, and which patches are its own."""

    source: Text
    name: Text
    width: Side
    height: Side
    """Height of the high resolution, cut to a multiple of the scale."""
    first: Annotated[Whole, Field(ge=1)]
    """Number of its first patch, from 1."""
    patches: Whole
    offset: Whole
    """Number of its first pixel among all; of folders, what it would be."""

    def boxes(self, scale: int) -> list[tuple[int, int]]:
        """Top left corners of its patches in the low resolution, as `boxes` has them."""
        return boxes(self.height // scale, self.width // scale)


@pydantic.dataclasses.dataclass(frozen=True)
class Index:
    """What a store holds. Raises ValueError where parts of it contradict each other."""

    scale: Whole
    split: Text
    pictures: tuple[PackedPicture, ...]
    job: Request
    """Options and pictures that it was made from."""
    left_out: tuple[tuple[Text, Text], ...] = ()
    """Pairs that could not be read, with the reason."""

    @pydantic.model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.scale not in SCALES:
            raise ValueError(f"its scale is {self.scale}, and must be one of {', '.join(map(str, SCALES))}")
        number, offset, names = 1, 0, set()
        for picture in self.pictures:
            size = picture.width, picture.height
            rows, columns = _places(picture.height // self.scale, picture.width // self.scale)
            if any(side % self.scale for side in size) or picture.patches != len(rows) * len(columns):
                raise ValueError(f"{shown(picture.name)} has not the patches of a picture of its size")
            if picture.first < number or picture.offset < offset:
                raise ValueError(f"{shown(picture.name)} begins where the pair before it has not ended")
            number, offset = picture.first + picture.patches, picture.offset + pixels_of(*size, self.scale)
            names.add((picture.source, picture.name))
        if len(names) < len(self.pictures):
            raise ValueError("two of its pairs have one name")
        return self

    @property
    def patches(self) -> int:
        return sum(picture.patches for picture in self.pictures)

    def names(self) -> tuple[str, ...]:
        """Names of the patches: their numbers, with gaps where a pair was left out."""
        spans = ((picture.first, picture.first + picture.patches) for picture in self.pictures)
        return tuple(f"{number:06d}" for start, end in spans for number in range(start, end))

    def sources(self) -> dict[str, dict[str, int]]:
        """Source -> pairs and patches."""
        counts: dict[str, dict[str, int]] = {}
        for picture in self.pictures:
            count = counts.setdefault(picture.source, {"pairs": 0, "patches": 0})
            count["pairs"] += 1
            count["patches"] += picture.patches
        return counts

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "scale": self.scale,
            "split": self.split,
            "patch": [HEIGHT, WIDTH],
            "stride": STRIDE,
            "patches": self.patches,
            "sources": self.sources(),
            "left_out": [list(each) for each in self.left_out],
            "pictures": [vars(picture) for picture in self.pictures],
            "job": vars(self.job),
        }


def read_index(path: Path) -> Index:
    """Read the index of a store. Raises InputError: missing, damaged, or of a later version."""
    found = read_json(path, ANEW)
    version = found.get("format") if isinstance(found, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise InputError(f"{shown(path)} was written by a later version of pam", "update pam")
    return understood(Index, found, path, ANEW)


def pixels_of(width: int, height: int, scale: int) -> int:
    """Bytes that a pair takes: both views, both resolutions."""
    return 6 * (width * height + (width // scale) * (height // scale))


def write_patch_folder(folder: Path, patch: Patch) -> None:
    """One patch of the authors' tree. Raises OutputError."""
    if folder.exists():  # a run that was killed may have left something half-written
        with writing(folder):
            shutil.rmtree(folder)
    for name, pixels in zip(VIEW_FILES, patch, strict=True):
        write_atomically(folder / name, encode_png(pixels))


def allocate(path: Path, count: int) -> None:
    """Make pixels.npy with room for so many pixels, unless it is there. Raises OutputError: a full disk."""
    if path.exists() and path.stat().st_size == HEADER + count:
        return
    array = {"descr": "|u1", "fortran_order": False, "shape": (count,)}
    with writing(path):
        try:
            with open(path, "wb") as stream:
                np.lib.format.write_array_header_1_0(stream, array)
                assert stream.tell() == HEADER
                stream.truncate(HEADER + count)
                if hasattr(os, "posix_fallocate"):  # a full disk is noticed now, not in an hour
                    os.posix_fallocate(stream.fileno(), 0, HEADER + count)
        except BaseException as error:
            # Some file systems cannot reserve.
            if not isinstance(error, OSError) or error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                path.unlink(missing_ok=True)
                raise


def write_pixels(path: Path, offset: int, views: Views) -> None:
    """Put a pair into its place. Raises OutputError."""
    with writing(path), open(path, "r+b") as stream:
        stream.seek(HEADER + offset)
        stream.write(np.ascontiguousarray(views.high).data)
        stream.write(np.ascontiguousarray(views.low).data)
        stream.flush()
        os.fsync(stream.fileno())  # before the mark that says it is done


def open_pixels(path: Path) -> Pixels:
    """All pixels, mapped into memory. Raises InputError: missing, damaged."""
    with open_source(path, shown(path)), decoding(shown(path)):
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    if pixels.dtype != np.uint8 or pixels.ndim != 1:
        raise InputError(f"{shown(path)} holds no pixels")
    return np.asarray(pixels)


def views_in(pixels: Pixels, picture: PackedPicture, scale: int) -> Views:
    """A pair within all pixels: nothing is read before it is looked at."""
    height, width = picture.height, picture.width
    middle = picture.offset + 6 * width * height
    end = picture.offset + pixels_of(width, height, scale)
    high = pixels[picture.offset : middle].reshape(height, 2, width, 3)
    low = pixels[middle:end].reshape(height // scale, 2, width // scale, 3)
    return Views(high, low)


def encode_manifest(index: Index, checksums: Sequence[Sequence[str]]) -> bytes:
    """checksums: of the patches of each picture of the index."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(MANIFEST_COLUMNS)
    for picture, sums in zip(index.pictures, checksums, strict=True):
        places = enumerate(picture.boxes(index.scale), start=picture.first)
        for (number, (row, column)), checksum in zip(places, sums, strict=True):
            name = f"{number:06d}"
            names = map(csv_text, (picture.source, picture.name))
            writer.writerow([name, *names, row, column, HEIGHT, WIDTH, checksum])
    return out.getvalue().encode("utf-8", "surrogateescape")  # names need not be UTF-8


def read_checksums(path: Path) -> dict[str, str]:
    """Patch -> SHA-256. Raises InputError: missing, damaged."""
    try:
        with open(path, newline="", encoding="utf-8", errors="surrogateescape") as stream:
            return {line["patch"]: line["sha256"] for line in csv.DictReader(stream)}
    except OSError as error:
        raise InputError(f"cannot read {shown(path)}: {error.strerror}") from None
    except (KeyError, ValueError, csv.Error):
        raise InputError(f"{shown(path)} is no list of patches") from None
