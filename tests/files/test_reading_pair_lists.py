"""Lists of pairs."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from pair_files import make

from pamcli.errors import UsageError
from pamcli.files.pairing import PairPaths, iter_pair_list, read_pair_list

pytestmark = pytest.mark.usefixtures("here")


def write_list(data: bytes) -> Path:
    path = Path("pairs.tsv")
    path.write_bytes(data)
    return path


def test_a_list_with_everything_that_is_fine() -> None:
    make("in/a/1.png", "in/b/2.png", "r 1.png", "r2.png", "in/ü.png")
    found = read_pair_list(
        write_list(
            b"\xef\xbb\xbfin/a/1.png\tr 1.png\r\n\r\n \nin/b/2.png\tr2.png\tout/x.pfm\r\n"
            b"in/\xc3\xbc.png\tr2.png"
        )
    )
    pairs = tuple(found)
    assert len(found) == 3
    assert pairs == (
        PairPaths(Path("in/a/1.png"), Path("r 1.png"), "in/a/1", None, 1),
        PairPaths(Path("in/b/2.png"), Path("r2.png"), "in/b/2", Path("out/x.pfm"), 4),
        PairPaths(Path("in/ü.png"), Path("r2.png"), "in/ü", None, 5),
    )
    assert str(pairs[1]) == "in/b/2.png (line 4)"


def test_file_names_are_bytes(here: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    make_bytes = os.path.join(os.fsencode(here), b"caf\xe9.png")
    try:
        Path(os.fsdecode(make_bytes)).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    make("b.png")
    (pair,) = read_pair_list(write_list(b"caf\xe9.png\tb.png\n"))
    assert pair.left == Path(name)
    assert str(pair).isprintable()


def test_a_list_of_one_column_is_found_out_at_its_first_line() -> None:
    make("a.png")
    for data in (b"\na.png\na.png\n", b"a.png b.png\n"):
        path = write_list(data)
        with pytest.raises(UsageError, match=f"{path}: the list has one column: line"):
            read_pair_list(path)
        with pytest.raises(UsageError, match="one column"):
            next(iter_pair_list(io.BytesIO(data)))


@pytest.mark.parametrize(("mark", "nul"), [(b"\t", False), (b"\0", True)])
def test_a_line_that_does_not_end_is_not_read_to_its_end(mark: bytes, nul: bool) -> None:
    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(size) or b"x" * (size or 0)

        def readline(self, size: int | None = -1) -> bytes:
            assert size is not None
            assert 0 < size < 100_000
            return super().readline() or b"x" * size

    make("a.png", "b.png")
    good = b"a.png" + mark + b"b.png" + (mark if nul else b"\n")
    items = iter_pair_list(Endless(good), nul)
    assert next(items) == (1, PairPaths(Path("a.png"), Path("b.png"), "a", None, 1))
    with pytest.raises(UsageError, match="line 2 of the list has more than"):
        next(items)
