"""Small calibrations that stand for much: refused, or read, at once and in little memory."""

from __future__ import annotations

import struct
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import calibration_files as files
import pytest

from pamcli.calibration.files import read_calibration
from pamcli.calibration.mat_files import read_mat
from pamcli.errors import InputError

HEAD = b"MATLAB 5.0".ljust(124) + b"\0\1IM"


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def array(kind: int, shape: tuple[int, int], *rest: bytes) -> bytes:
    flags, sides = element(6, struct.pack("<II", kind, 0)), element(5, struct.pack("<ii", *shape))
    return element(14, b"".join((flags, sides, element(1, b"rig"), *rest)))


FIELDLESS = array(2, (65535, 65535), element(5, struct.pack("<i", 32)), element(1, b""))
FIELDS = array(2, (65535, 65535), element(5, struct.pack("<i", 8)), element(1, b"K1".ljust(8, b"\0")))
CELLS = array(1, (65535, 65535))
BOMB = element(15, zlib.compress(array(6, (1, 1), element(9, bytes(40 << 20)))))


@pytest.fixture(autouse=True)
def cheap() -> Iterator[None]:
    """Half of what two large variables take, and a few seconds."""
    start = time.perf_counter()
    tracemalloc.start()
    yield
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 512 << 20
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("body", [FIELDS, CELLS, BOMB * 3, array(2, (-1, 5))])
def test_variables_that_their_bytes_cannot_fill(body: bytes) -> None:
    with pytest.raises(InputError):
        read_mat(HEAD + body)


def test_structs_without_fields_hold_nothing() -> None:
    assert read_mat(HEAD + FIELDLESS) == {"rig": {}}


@pytest.mark.parametrize(
    ("before", "behind"),
    [("\n" * 900_000, ""), (" \t\n" * 300_000, ""), ("", "time: 1" + ":1" * 400_000 + "\n")],
)
def test_blank_lines_and_long_numbers_do_not_keep_a_calibration_from_being_read(
    before: str, behind: str, tmp_path: Path
) -> None:
    (tmp_path / "rig.yaml").write_text(before + files.OPENCV_4.replace("...", "") + behind)
    assert read_calibration(tmp_path / "rig.yaml").rig is not None
