"""A `--weights` value leads to a file on this machine (the Hub: test_hub.py)."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from network_states import NAMES, shipped

from pamcli.errors import ModelError
from pamcli.registry import catalog
from pamcli.registry.catalog import CHECKSUMS, REGISTERED, SHIPPED, locate, recorded_sha256, sha256


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the weights folder, in place of the shipped one."""
    folder = tmp_path / "weights"
    shutil.copytree(SHIPPED, folder)
    monkeypatch.setattr(catalog, "SHIPPED", folder)
    return folder


def test_every_registered_name_is_there_with_its_checksum_and_its_card() -> None:
    assert tuple(REGISTERED) == NAMES
    for name in NAMES:
        path = locate(name)
        assert path == shipped(name)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == recorded_sha256(name)
        assert path.with_suffix(".md").is_file()


def test_a_registered_name_wins_over_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pasmnet").write_bytes(b"something else")
    monkeypatch.chdir(tmp_path)
    assert locate("pasmnet") == shipped("pasmnet")


@pytest.mark.parametrize(
    "text",
    ["./pasmnet", "pasmnet/", "folder/pasmnet", "pasmnet.safetensors", "../x", "a.b", "~/x", "/x", "."],
)
def test_anything_with_a_separator_or_a_suffix_is_a_path(text: str) -> None:
    assert locate(text) == Path(text)


def test_a_path_object_is_always_a_path() -> None:
    assert locate(Path("pasmnet")) == Path("pasmnet")
    assert locate(Path("hf:x")) == Path("hf:x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("passmnet", r"unknown network 'passmnet' \(did you mean pasmnet\? known: pasmnet2, pasmnet, "),
        ("passrnet-x3", r"did you mean passrnet-x"),
        ("PASMnet", r"unknown network 'PASMnet'"),
        ("something", r"\(known: pasmnet2, pasmnet, passrnet2-x2, .*, passrnet-x4; a path needs a suffix\)"),
        ("", r"unknown network ''"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(text: str, words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        locate(text)
    assert caught.value.exit_code == 4


def test_a_shipped_file_that_was_changed_is_refused(copied: Path) -> None:
    file = copied / "passrnet-x2.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelError, match="its sha256 differs from the shipped file") as caught:
        locate("passrnet-x2")
    assert str(file) in caught.value.message
    assert caught.value.hint == "reinstall pam"
    assert locate("passrnet-x4") == copied / "passrnet-x4.safetensors"
    assert locate("passrnet-x2", check=False) == file


def test_a_shipped_file_that_is_missing_is_named(copied: Path) -> None:
    (copied / "pasmnet.safetensors").unlink()
    with pytest.raises(ModelError, match=r"the weights of pasmnet are missing: .*\(reinstall pam\)"):
        locate("pasmnet")


def test_a_missing_record_is_no_permission(copied: Path) -> None:
    record = copied / CHECKSUMS
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if "pasmnet" not in line))
    with pytest.raises(ModelError, match=f"{CHECKSUMS} has no checksum of pasmnet"):
        locate("pasmnet")
    locate("passrnet-x2")
    record.unlink()
    with pytest.raises(ModelError, match=f"{CHECKSUMS} does not exist .reinstall pam"):
        locate("passrnet-x2")


def test_the_checksum_of_what_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "cannot read"), (tmp_path / "none", "does not exist")):
        with pytest.raises(ModelError, match=f"({path} {reason}|{reason} {path})"):
            sha256(path)


def test_the_record_is_in_the_format_of_sha256sum() -> None:
    lines = (SHIPPED / CHECKSUMS).read_text().splitlines()
    assert [line.split("  ")[1] for line in lines] == sorted(f"{name}.safetensors" for name in NAMES)
    assert sorted(os.listdir(SHIPPED)) == sorted(
        [CHECKSUMS, *(f"{name}{suffix}" for name in NAMES for suffix in (".md", ".safetensors"))]
    )
