"""Store the training patches of PASSRnet's and iPASSR's authors (paper, section 5.4) on disk.

Both images are cut to a multiple of the scale, downscaled by MATLAB's antialiased bicubic and rounded to 8
bits. Windows of 90x30 px with a stride of 20 px are cut from the low resolution and the same areas from the
high one. The authors' loops begin at the third pixel and end before the last window that would fit.

    OUT/patches_x4/000001/hr0.png, hr1.png, lr0.png, lr1.png  folders, as the authors' script writes them
    OUT/patches_x4.csv, OUT/patches_x4.json                   manifest and index, beside the patches
    OUT/x4/pixels.npy                     packed: uint8; of each pair (H, 2, W, 3) and (H/4, 2, W/4, 3)
    OUT/x4/manifest.csv, OUT/x4/index.json

Patches overlap nearly sevenfold, so whole images take a seventh of the space and fit into memory. Rows of
both images are interleaved, so a patch is two short runs of bytes; the index holds the offsets.
"""

import csv
import errno
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field

from pamcli.errors import InputError
from pamcli.files.atomic import report_write_errors, write_atomically
from pamcli.files.json_files import Text, Whole, check_json, read_json
from pamcli.files.paths import open_source, quote
from pamcli.flickr1024.pairs import Pair
from pamcli.flickr1024.resumable import Request, encode_csv
from pamcli.imaging.images import to_uint8
from pamcli.imaging.raster import encode_png, report_damage
from pamcli.imaging.resize import imresize

HEIGHT, WIDTH = 30, 90  # px of low resolution, size of a patch
STRIDE = 20
SCALES = (2, 4)
FORMAT = 1
HEADER = 128  # bytes before the pixels in pixels.npy
VIEW_FILES = ("hr0.png", "hr1.png", "lr0.png", "lr1.png")  # in the order of the fields of `Patch`

StoreName = Literal["packed", "folders"]
Pixels = NDArray[np.uint8]
LARGEST_SIDE = 65_536
Side = Annotated[int, Field(strict=True, ge=1, le=LARGEST_SIDE)]  # width or height of an image (px)

_HINT = "remove the store and prepare it again"


class Views(NamedTuple):
    """Both images of a pair in both resolutions, interleaved by rows."""

    high: Pixels  # (H, 2, W, 3): [:, 0] is the left image, [:, 1] the right one
    low: Pixels  # (H / scale, 2, W / scale, 3)


class Patch(NamedTuple):
    """A training sample. Left and right are (30, 90, 3), and (30 scale, 90 scale, 3)."""

    high_left: Pixels
    high_right: Pixels
    low_left: Pixels
    low_right: Pixels

    def checksum(self) -> str:
        """Return the SHA-256 of the pixels: high left, high right, low left, low right."""
        return hashlib.sha256(b"".join(view.tobytes() for view in self)).hexdigest()


def list_corners(height: int, width: int) -> list[tuple[int, int]]:
    """Return (row, column), from 0, of the top left pixel of every patch of a low-resolution image."""
    # 3 : 20 : height - 33 in MATLAB, which counts from 1 and includes the end.
    rows, columns = range(2, height - HEIGHT - 3, STRIDE), range(2, width - WIDTH - 3, STRIDE)
    return [(row, column) for row in rows for column in columns]


def compute_crop(width: int, height: int, scale: int, halved: bool) -> tuple[int, int]:
    """Return the (width, height) to which a high-resolution image of this size is cropped."""
    if halved:
        width, height = -(-width // 2), -(-height // 2)
    return width - width % scale, height - height % scale


def read_views(pair: Pair, scale: int) -> Views:
    """Read a pair as 8 bits and downscale it. Raises InputError if it is unreadable or its sizes differ."""
    left, right = (to_uint8(location.read().pixels) for location in (pair.left, pair.right))
    if left.shape != right.shape:
        sizes = [f"{view.shape[1]}x{view.shape[0]}" for view in (left, right)]
        raise InputError(f"{pair.left} is {sizes[0]}, but {pair.right} is {sizes[1]}")
    if pair.halved:
        left, right = (imresize(view, 1 / 2).astype(np.uint8, copy=False) for view in (left, right))
    height, width = (side - side % scale for side in left.shape[:2])
    high = np.stack([left[:height, :width], right[:height, :width]], axis=1)
    low = np.stack([imresize(high[:, side], 1 / scale) for side in (0, 1)], axis=1)
    return Views(high, low.astype(np.uint8, copy=False))


def cut_patch(views: Views, row: int, column: int) -> Patch:
    """Return a copy of the patch with this top left pixel in low resolution."""

    def window(pixels: Pixels, scale: int) -> Pixels:
        rows, columns = (slice(at * scale, (at + n) * scale) for at, n in ((row, HEIGHT), (column, WIDTH)))
        return np.ascontiguousarray(pixels[rows, :, columns].transpose(1, 0, 2, 3))

    scale = views.high.shape[0] // views.low.shape[0]
    return Patch(*window(views.high, scale), *window(views.low, 1))


@dataclass(frozen=True)
class StorePaths:
    """Paths of a store and its files below an output folder."""

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
class StoredPair:
    """A pair in a store: its location and its patches."""

    source: Text
    name: Text
    width: Side
    height: Side  # high-resolution height, cut to a multiple of the scale
    first: Annotated[Whole, Field(ge=1)]  # number of its first patch, from 1
    patches: Whole
    offset: Whole  # offset of its first pixel in the packed file (also set for folders)

    def list_corners(self, scale: int) -> list[tuple[int, int]]:
        """Return the top left corners of its patches in low resolution; see `list_corners`."""
        return list_corners(self.height // scale, self.width // scale)

    def end(self, scale: int) -> int:
        """Return the offset after its last pixel in the packed file."""
        return self.offset + count_bytes(self.width, self.height, scale)


@pydantic.dataclasses.dataclass(frozen=True)
class Index:
    """The contents of a store. Raises ValueError if they are inconsistent."""

    scale: Whole
    split: Text
    pictures: tuple[StoredPair, ...]
    job: Request  # options and images that the store was made from
    left_out: tuple[tuple[Text, Text], ...] = ()  # pairs that cannot be read, with the reason

    @pydantic.model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.scale not in SCALES:
            raise ValueError(f"scale is {self.scale}, must be one of {', '.join(map(str, SCALES))}")
        number, offset, names = 1, 0, set()
        for pair in self.pictures:
            count = len(pair.list_corners(self.scale))
            if pair.width % self.scale or pair.height % self.scale or pair.patches != count:
                raise ValueError(f"the number of patches of {quote(pair.name)} does not match its size")
            if pair.first < number or pair.offset < offset:
                raise ValueError(f"{quote(pair.name)} overlaps the pair before it")
            number, offset = pair.first + pair.patches, pair.end(self.scale)
            names.add((pair.source, pair.name))
        if len(names) < len(self.pictures):
            raise ValueError("two pairs have the same name")
        return self

    @property
    def patches(self) -> int:
        return sum(picture.patches for picture in self.pictures)

    def names(self) -> tuple[str, ...]:
        """Return the names of the patches: their numbers, with gaps for excluded pairs."""
        spans = ((picture.first, picture.first + picture.patches) for picture in self.pictures)
        return tuple(f"{number:06d}" for start, end in spans for number in range(start, end))

    def sources(self) -> dict[str, dict[str, int]]:
        """Return the numbers of pairs and patches by source."""
        counts: dict[str, dict[str, int]] = {}
        for pair in self.pictures:
            found = counts.setdefault(pair.source, {"pairs": 0, "patches": 0})
            found["pairs"] += 1
            found["patches"] += pair.patches
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
    """Read the index of a store. Raises InputError if it is missing, damaged, or of a later version."""
    found = read_json(path, _HINT)
    version = found.get("format") if isinstance(found, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise InputError(f"{quote(path)} was written by a later version of pam", "update pam")
    return check_json(Index, found, path, _HINT)


def count_bytes(width: int, height: int, scale: int) -> int:
    """Return the bytes of a pair: both images in both resolutions."""
    return 6 * (width * height + (width // scale) * (height // scale))


def write_patch_folder(folder: Path, patch: Patch) -> None:
    """Write one patch as a folder in the authors' layout. Raises OutputError."""
    for name, pixels in zip(VIEW_FILES, patch, strict=True):
        write_atomically(folder / name, encode_png(pixels))
    with report_write_errors(folder):
        for leftover in folder.glob(".pam-*.tmp"):  # of a killed run, one of whose processes may still run
            leftover.unlink(missing_ok=True)


def allocate(path: Path, count: int) -> None:
    """Create pixels.npy with `count` pixels unless it exists. Raises OutputError, as for a full disk."""
    if path.exists() and path.stat().st_size == HEADER + count:
        return
    array = {"descr": "|u1", "fortran_order": False, "shape": (count,)}
    with report_write_errors(path):
        try:
            with open(path, "wb") as stream:
                np.lib.format.write_array_header_1_0(stream, array)
                stream.truncate(HEADER + count)
                if hasattr(os, "posix_fallocate"):  # reports a full disk now instead of in an hour
                    os.posix_fallocate(stream.fileno(), 0, HEADER + count)
        except BaseException as error:
            # Some file systems do not support reservation.
            if not isinstance(error, OSError) or error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                path.unlink(missing_ok=True)
                raise


def write_pixels(path: Path, offset: int, views: Views) -> None:
    """Write a pair at its offset. Raises OutputError."""
    with report_write_errors(path), open(path, "r+b") as stream:
        stream.seek(HEADER + offset)
        stream.write(np.ascontiguousarray(views.high).data)
        stream.write(np.ascontiguousarray(views.low).data)
        stream.flush()
        os.fsync(stream.fileno())  # before the record that marks it as done


def open_pixels(path: Path) -> Pixels:
    """Return all pixels, mapped into memory. Raises InputError if the file is missing or damaged."""
    with open_source(path, quote(path)), report_damage(quote(path)):
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    if pixels.dtype != np.uint8 or pixels.ndim != 1:
        raise InputError(f"{quote(path)} does not contain pixels")
    return np.asarray(pixels)


def get_views(pixels: Pixels, pair: StoredPair, scale: int) -> Views:
    """Return a pair within the mapped pixels; nothing is read before it is accessed."""
    height, width = pair.height, pair.width
    middle = pair.offset + 6 * width * height
    high = pixels[pair.offset : middle].reshape(height, 2, width, 3)
    low = pixels[middle : pair.end(scale)].reshape(height // scale, 2, width // scale, 3)
    return Views(high, low)


def encode_manifest(index: Index, checksums: Sequence[Sequence[str]]) -> bytes:
    """Return the manifest as CSV, given the checksums of the patches of each image."""
    rows: list[tuple[Any, ...]] = [
        ("patch", "source", "picture", "row", "column", "height", "width", "sha256")
    ]
    for picture, sums in zip(index.pictures, checksums, strict=True):
        corners = enumerate(picture.list_corners(index.scale), start=picture.first)
        for (number, corner), checksum in zip(corners, sums, strict=True):
            rows.append((f"{number:06d}", picture.source, picture.name, *corner, HEIGHT, WIDTH, checksum))
    return encode_csv(rows)


def read_checksums(path: Path) -> dict[str, str]:
    """Return the SHA-256 of each patch. Raises InputError if the file is missing or damaged."""
    try:
        with open(path, newline="", encoding="utf-8", errors="surrogateescape") as stream:
            return {line["patch"]: line["sha256"] for line in csv.DictReader(stream)}
    except OSError as error:
        raise InputError(f"cannot read {quote(path)}: {error.strerror}") from None
    except (KeyError, ValueError, csv.Error):
        raise InputError(f"{quote(path)} is not a valid list of patches") from None
