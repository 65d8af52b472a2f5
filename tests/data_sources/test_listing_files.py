"""Tests of the lists of files that every data source is built on."""

from __future__ import annotations

from pathlib import Path

import pytest
import source_trees

from pamcli.data.listing import Listed, find_root, list_by_stem
from pamcli.data.source import Files
from pamcli.errors import InputError
from pamcli.files.paths import list_folders, walk_folders


def files(name: str) -> Files:
    return Files(name, Path(f"left/{name}.png"), Path(f"right/{name}.png"))


def test_samples_come_in_natural_order() -> None:
    source = Listed([files("b/10"), files("b/9"), files("a/11")])
    assert source.names == ("a/11", "b/9", "b/10")
    assert len(source) == 3


def test_two_samples_of_one_name_are_errors() -> None:
    with pytest.raises(InputError, match=r"two pairs have the name x, one of them left/x\.png"):
        Listed([files("x"), files("y"), files("x")])


def test_first_keeps_the_first_samples_without_ground_truth() -> None:
    source = Listed([files("b"), files("a"), files("c")]).first(2)
    assert source.names == source.without_truth().names == ("a", "b")
    assert [each.name for each in source.without_truth().files] == ["a", "b"]
    with pytest.raises(IndexError):
        source.load(2)


def test_files_by_stem(tmp_path: Path) -> None:
    for name in ("1_L.png", "1_R.png", "2_L.JPG", ".hidden_L.png", "_L.png", "notes_L.txt"):
        (tmp_path / name).touch()
    assert list_by_stem(tmp_path, ending="_L") == {"1": tmp_path / "1_L.png", "2": tmp_path / "2_L.JPG"}
    assert list_by_stem(tmp_path / "nowhere") == {}


def test_of_two_files_of_one_stem_the_suffix_decides(tmp_path: Path) -> None:
    for name in ("a.pfm", "a.png", "b.png", "b.pfm"):
        (tmp_path / name).touch()
    for first, other in ((".pfm", ".png"), (".png", ".pfm")):
        assert list_by_stem(tmp_path, (first, other)) == {name: tmp_path / f"{name}{first}" for name in "ab"}


def test_folders_in_natural_order_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("scene10", "scene9", ".cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert list(list_folders(tmp_path)) == ["scene9", "scene10"]
    assert list_folders(tmp_path / "file") == {}


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "back").symlink_to(tmp_path)
    found = [below for below, _, _ in walk_folders(tmp_path, depth=3)]
    assert found == ["", "a", "a/back", "a/back/a"]


def test_the_top_folder_of_an_archive_may_be_there_or_not(tmp_path: Path) -> None:
    source_trees.kitti2015(tmp_path / "Kitti2015")
    assert find_root(tmp_path, "Kitti2015", holds=["training"]) == tmp_path / "Kitti2015"
    assert find_root(tmp_path / "Kitti2015", "Kitti2015", holds=["training"]) == tmp_path / "Kitti2015"
    assert find_root(tmp_path, "other", holds=["training"]) == tmp_path
