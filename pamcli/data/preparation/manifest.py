"""The list of all patches of a store: where each is from, and the checksum of its pixels.

A CSV file with a line a patch: its number, the data set and the picture that it is from, the row and the
column of its top left pixel and its height and width in low resolution, and the SHA-256 of its pixels
(high left, high right, low left, low right). It is the same for both kinds of store.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from pamcli.data.preparation.patches import HEIGHT, WIDTH
from pamcli.data.preparation.stores import Index, patch_boxes
from pamcli.errors import InputError
from pamcli.files.finding import shown

COLUMNS = ("patch", "source", "picture", "row", "column", "height", "width", "sha256")


def encode_manifest(index: Index, checksums: Sequence[Sequence[str]]) -> bytes:
    """checksums: of the patches of each picture of the index."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for picture, sums in zip(index.pictures, checksums, strict=True):
        places = enumerate(patch_boxes(picture, index.scale), start=picture.first)
        for (number, (row, column)), checksum in zip(places, sums, strict=True):
            name = f"{number:06d}"
            writer.writerow([name, picture.source, picture.name, row, column, HEIGHT, WIDTH, checksum])
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
