"""The two views of a pair are found in every layout of the published set; what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import source_trees
from published import SMALL, archive, files, tree

from pamcli.data.preparing import list_data_pairs
from pamcli.errors import InputError, UsageError
from pamcli.flickr1024.pairs import filter_by_name, find_published_pairs
from pamcli.flickr1024.prepare import make_store


def found(place: Path, split: str = "train") -> list[str]:
    return [pair.name for pair in find_published_pairs(place, split).pairs]


def test_folders_of_the_three_splits(tmp_path: Path) -> None:
    tree(tmp_path, {"Train/0010": SMALL, "Train/0002": SMALL, "Validation/0001": SMALL, "Test/0001": SMALL})
    pairs = find_published_pairs(tmp_path, "train")
    assert [pair.name for pair in pairs.pairs] == ["0002", "0010"]
    assert pairs.other_splits == {"validation": 1, "test": 1}
    assert pairs.pairs[0].left.path == tmp_path / "Train/0002_L.png"
    assert found(tmp_path, "test") == ["0001"]
    assert found(tmp_path / "Validation") == ["0001"]  # the folder that is given is the one that is meant


def test_views_in_two_parts_of_an_archive_are_a_pair(tmp_path: Path) -> None:
    parts = files({"0002": SMALL})
    archive(tmp_path / "Train_1.zip", {"Train/0002_L.png": parts["0002_L.png"]})
    archive(tmp_path / "Train_2.zip", {"Flickr1024/Train/0002_R.png": parts["0002_R.png"]})
    (pair,) = find_published_pairs(tmp_path, "train").pairs
    assert str(pair.left) == f"{tmp_path}/Train_1.zip (Train/0002_L.png)"
    assert str(pair) == "flickr1024/0002"


def test_an_unpacked_image_goes_before_the_one_in_the_archive(tmp_path: Path) -> None:
    tree(tmp_path, {"Train/0001": SMALL})
    archive(tmp_path / "Train.zip", files({"Train/0001": SMALL, "Train/0002": SMALL}))
    first, second = find_published_pairs(tmp_path, "train").pairs
    assert (first.left.member, second.left.member) == (None, "Train/0002_L.png")


def test_two_images_of_one_name_are_refused(tmp_path: Path) -> None:
    tree(tmp_path, {"Train/0001": SMALL, "Flickr1024/Train/0001": SMALL})
    with pytest.raises(InputError, match=r"two images have the name 0001: .* and "):
        find_published_pairs(tmp_path, "train")


def test_a_place_without_pairs_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"contains no image pair \(expected NAME_L.png"):
        find_published_pairs(tmp_path, "train")
    tree(tmp_path, {"Validation/0001": SMALL})
    with pytest.raises(
        InputError, match=r"no pair of the split train, but 1 of validation \(use `split` valid"
    ):
        find_published_pairs(tmp_path, "train")


def test_middlebury_is_halved_and_other_sets_are_not(tmp_path: Path) -> None:
    source_trees.middlebury(tmp_path / "midd")
    source_trees.pairs(tmp_path / "set")
    halved = list_data_pairs(f"middlebury:{tmp_path}/midd").pairs
    assert [str(pair) for pair in halved] == ["middlebury/Adirondack-perfect", "middlebury/Piano-perfect"]
    assert all(pair.halved for pair in halved)
    assert not any(pair.halved for pair in list_data_pairs(f"pairs:{tmp_path}/set").pairs)


def test_a_list_restricts_by_name_source_and_pattern(tmp_path: Path) -> None:
    tree(tmp_path, {"0001": SMALL, "0002": SMALL, "0003": SMALL})
    pairs = find_published_pairs(tmp_path, "train").pairs
    taken = filter_by_name(pairs, ["# mine", "", "flickr1024/0003", " 0001 "], "names.txt")
    assert [pair.name for pair in taken] == ["0001", "0003"]
    assert filter_by_name(pairs, ["flickr1024/*"], "names.txt") == pairs
    with pytest.raises(UsageError, match=r"1 lines of names.txt match no pair: 0009 \(pairs have names"):
        filter_by_name(pairs, ["0001", "0009"], "names.txt")
    with pytest.raises(UsageError, match=r"names\.txt lists no pair"):
        filter_by_name(pairs, ["# nothing"], "names.txt")


def test_two_pairs_of_one_source_and_name_are_refused(tmp_path: Path) -> None:
    pairs = find_published_pairs(tree(tmp_path, {"0001": SMALL}), "train").pairs
    with pytest.raises(UsageError, match="two pairs have the same name flickr1024/0001"):
        make_store(pairs + pairs, tmp_path / "out", 2, "packed", "train")
