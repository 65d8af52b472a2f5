"""The limits of files that others wrote: what is over them costs no time, and is one line."""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pamcli.errors import InputError, ModelError
from pamcli.files.safe_reading import (
    open_source,
    parse_json,
    parse_npz,
    parse_toml,
    parse_xml,
    parse_yaml,
    read_bytes,
    read_text,
)


def parse_first(text: str) -> Any:
    """The first document that is not empty."""
    return next((document for document in parse_yaml(text) if document is not None), None)


ALIASES = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (parse_first, ALIASES, "more than 1,000,000 values"),
        (parse_first, "a: &a {b: *a}", "recursive"),
        (parse_first, "[" * 100_000, "nesting"),
        (parse_first, "{[1, 2]: 3}", "used as a key"),
        (parse_json, "[" * 100_000, "recursion"),
        (parse_json, "[" * 200 + "]" * 200, "levels"),
        (parse_json, '{"a": ' + "9" * 5000 + "}", "4,300 digits"),
        (parse_toml, "a" + ".a" * 50_000 + " = 1", "dots"),
        (parse_toml, "a = " + "9" * 5000, "4,300 digits"),
        (parse_toml, "a = " + "[" * 5000, "recursion"),
        (parse_xml, "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "entities"),
        (parse_xml, "<a>" * 5000 + "</a>" * 5000, "levels"),
        (parse_xml, "<a>", "no element"),
    ],
)
def test_what_is_over_a_limit_or_damaged_is_one_line(
    parse: Callable[[str], Any], text: str, said: str
) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match=said) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - start < 2


def test_yaml_values() -> None:
    text = (
        "%YAML:1.0\n---\nM: !!opencv-matrix\n   rows: 1\n   data:[1., -2, .5e1]\non: yes\nx: ~\nn: '7'\n"
        "t: 1:30\nbig: " + "1" * 200 + "\nz: &z {k: 1, j: 2}\ny: {<<: *z, j: 3}\ni: -.inf\n"
    )
    found = parse_first(text)
    assert found["M"] == {"rows": 1, "data": [1.0, -2, 5.0]}
    assert (found["on"] if "on" in found else found[True], found["x"], found["n"]) == (True, None, "7")
    assert (found["t"], found["big"]) == ("1:30", "1" * 200)
    assert (found["y"], found["i"]) == ({"k": 1, "j": 3}, float("-inf"))
    assert list(parse_yaml("a: 1\n---\nb: 2\n---\n")) == [{"a": 1}, {"b": 2}, None]
    assert parse_first("---\n---\n- 1\n") == [1]


def test_many_values_are_read_quickly() -> None:
    start = time.process_time()
    assert len(parse_first("a: [" + "1, " * 100_000 + "]")["a"]) == 100_000
    assert parse_first("t: 1" + ":1" * 450_000)["t"].startswith("1:1")
    assert time.process_time() - start < 5


def npz(header: str, body: bytes = b"", flags: int = 0) -> bytes:
    """An .npz of one array K with a head that says anything."""
    stream = io.BytesIO()
    head = header.encode().ljust(117) + b"\n"
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("K.npy", b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head + body)
    data = bytearray(stream.getvalue())
    for signature, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(signature) + place] |= flags
    return bytes(data)


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (%s)}"


@pytest.mark.parametrize(
    "data",
    [
        npz("{'descr': '<f8', ("),
        npz(HEADER % f"{10**21},"),
        npz(HEADER % f"{10**6}, {10**6}"),
        npz(HEADER % "-1,", bytes(8)),
        npz(HEADER.replace("<f8", "|O") % "1,", bytes(8)),
        npz(HEADER % "2,", bytes(16), flags=1),
        b"PK no archive",
    ],
)
def test_a_damaged_npz_is_one_line(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_npz(data)


def test_arrays_of_an_npz_are_those_that_were_saved() -> None:
    saved = {"a": np.arange(6.0).reshape(2, 3), "b": np.asfortranarray(np.eye(3)), "c": np.zeros((0, 3))}
    saved["d"], saved["e"] = np.array(5), np.array("text")
    stream = io.BytesIO()
    np.savez_compressed(stream, **saved)  # type: ignore[arg-type]
    found = parse_npz(stream.getvalue())
    assert found.keys() == saved.keys()
    for name, expected in saved.items():
        assert (found[name].shape, found[name].tolist()) == (expected.shape, expected.tolist())
    with pytest.raises(ValueError, match="unpacks to more than"):
        parse_npz(stream.getvalue(), most=100)


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    pipe, link, text = tmp_path / "pipe", tmp_path / "zeros", tmp_path / "text"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    text.write_bytes("ä\r\nb".encode())
    with pytest.raises(InputError, match="pipe is not a regular file: it is a pipe"):
        read_text(pipe)
    with pytest.raises(ModelError, match="zeros is not a regular file: it is a device"):
        read_bytes(link, error=ModelError)
    with pytest.raises(InputError, match="no such file"), open_source(tmp_path / "none", "none"):
        pass
    assert read_text(text) == "ä\nb"
    with pytest.raises(InputError, match="more than"):
        read_text(text, most=4)
    text.write_bytes(b"")
    assert read_text(text) == ""
