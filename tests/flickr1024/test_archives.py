"""Archives are read without unpacking, and refused where they could do harm."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from published import SMALL, archive, png, tree, views

from pamcli.errors import InputError, UsageError
from pamcli.flickr1024.pairs import find_images, list_members

PICTURE = png(views(SMALL)[0])


def test_a_image_in_an_archive_is_read_from_it(tmp_path: Path) -> None:
    path = archive(tmp_path / "Train.zip", {"Train/0001_L.png": PICTURE, "Train/": b""})
    (found,) = find_images(path)
    assert (found.folders, found.name) == (("Train",), "0001_L.png")
    assert found.size() == SMALL
    np.testing.assert_array_equal(found.read().pixels, views(SMALL)[0])
    assert sorted(tmp_path.rglob("*")) == [path]  # nothing was unpacked


def test_images_of_folders_and_of_the_archives_in_them(tmp_path: Path) -> None:
    tree(tmp_path, {"Train/0001": SMALL})
    archive(
        tmp_path / "more/Train_2.zip", {"b\\0002_L.png": PICTURE, "__MACOSX/._0002_L.png": b"x", "n.txt": b""}
    )
    (tmp_path / ".hidden_L.png").write_bytes(PICTURE)
    assert [("/".join(found.folders), found.name) for found in find_images(tmp_path)] == [
        ("Train", "0001_L.png"),
        ("Train", "0001_R.png"),
        ("more/Train_2.zip/b", "0002_L.png"),
    ]


def test_a_plain_image_is_no_bomb(tmp_path: Path) -> None:
    assert len(list_members(archive(tmp_path / "plain.zip", {"0001_L.bmp": bytes(1 << 20)}))) == 1


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("0001_L.png", PICTURE)
        first = packed.infolist()[0]
        for number in range(2, 6):  # entries of the directory that all lead to the first member's bytes
            copy = zipfile.ZipInfo(f"{number:04d}_L.png")
            for field in ("header_offset", "file_size", "compress_size", "CRC", "compress_type"):
                setattr(copy, field, getattr(first, field))
            packed.filelist.append(copy)
            packed.NameToInfo[copy.filename] = copy
    with pytest.raises(InputError, match="members overlap"):
        list_members(path)


def test_a_truncated_and_an_encrypted_archive_are_named(tmp_path: Path) -> None:
    path = archive(tmp_path / "cut.zip", {"0001_L.png": PICTURE})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"cut\.zip is damaged or truncated"):
        list_members(path)
    path = archive(tmp_path / "locked.zip", {"0001_L.png": PICTURE})
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"locked.zip is encrypted"):
        list_members(path)
    (tmp_path / "empty.zip").touch()
    with pytest.raises(InputError, match=r"empty\.zip is empty"):
        list_members(tmp_path / "empty.zip")


def test_other_archives_alone_are_named(tmp_path: Path) -> None:
    (tmp_path / "Train.rar").write_bytes(b"Rar!")
    with pytest.raises(UsageError, match=r"Train.rar is an archive in an unsupported format \(unpack it"):
        find_images(tmp_path)
    with pytest.raises(InputError, match=r"none\.zip does not exist"):
        find_images(tmp_path / "none.zip")
    with pytest.raises(InputError, match=r"Train\.rar is neither a folder nor a zip archive"):
        find_images(tmp_path / "Train.rar")
