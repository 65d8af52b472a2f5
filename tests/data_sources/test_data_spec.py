"""Tests of parsing `--data`: NAME[/SPLIT]:PATH[?key=value&...]."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pamcli.data.open import open_data, parse_data
from pamcli.errors import InputError, UsageError


def test_every_part_of_a_specification() -> None:
    spec = parse_data("procedural?first=20&size=960x512")
    assert (spec.path, spec.first, spec.keys, spec.label) == (None, 20, {"size": "960x512"}, "procedural")
    spec = parse_data("sceneflow/test:rel/sf?pass=clean&part=driving&first=20&weight=0.5")
    assert spec.split == "test"
    assert spec.path == Path("rel/sf")
    assert spec.keys == {"pass": "clean", "part": "driving"}
    assert (spec.first, spec.weight) == (20, 0.5)
    spec = parse_data("kitti2015:~/mine")
    assert (spec.info.name, spec.split, spec.path) == ("kitti2015", "training", Path.home() / "mine")
    assert (spec.keys, spec.first, spec.weight) == ({}, None, 1)
    assert spec.label == "kitti2015/training"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("pairs:C:\\data\\mine", "C:\\data\\mine"),
        ("pairs:/mnt/a:b/c", "/mnt/a:b/c"),
        ("pairs:/what?/now", "/what?/now"),
        ("pairs:/what?/now?first=3", "/what?/now"),
        ("pairs:.", "."),
    ],
)
def test_colons_and_question_marks_of_the_path_stay(text: str, path: str) -> None:
    assert parse_data(text).path == Path(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kiti2015:/x", "unknown data set 'kiti2015' (did you mean kitti2015? expected one of bag, booster,"),
        ("C:\\data", "unknown data set 'C' (expected one of bag, booster"),
        ("/data/kitti2015", "does not begin with the name of a data set (give NAME:PATH"),
        ("kitti2015:", "lacks a folder"),
        ("kitti2015", "lacks a folder (give NAME:PATH, as in kitti2015:FOLDER)"),
        ("procedural:", "procedural alone"),
        ("procedural?size=1x1", "unknown size of procedural '1x1'"),
        ("kitti2015/train:/x", "unknown split of kitti2015 'train' (did you mean training? expected one of "),
        ("kitti2015:/x?truht=occ", "unknown key of kitti2015 'truht' (did you mean truth? expected one of "),
        ("sceneflow:/x?pass=cleen", "unknown pass of sceneflow 'cleen' (did you mean clean? expected one"),
        ("pairs:/x?first", "key=value, got 'first'"),
        ("pairs:/x?first=0", "whole number above 0"),
        ("pairs:/x?weight=-1", "got -1"),
        ("pairs:/x?weight=a", "got a"),
        ("pairs:/x?first=1&first=2", "first is given twice"),
    ],
)
def test_invalid_specifications(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_data(text)
    assert message in str(caught.value)


def test_pairs_of_a_list_are_those_of_pam_disparity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a_L.png", "a_R.png", "deep/b_L.png", "deep/b_R.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(name)
    np.save("b.npy", np.ones((8, 8), np.float32))
    Path("list.tsv").write_text("a_L.png\ta_R.png\ndeep/b_L.png\tdeep/b_R.png\tb.npy\n")
    source = open_data("pairs:list.tsv")
    assert [name.removeprefix(str(tmp_path)[1:]) for name in source.names] == ["/a_L", "/deep/b_L"]
    assert [source.load(i).disparity is not None for i in range(2)] == [False, True]
    with pytest.raises(UsageError, match=r"list\.tsv is a list"):
        open_data("pairs:list.tsv?left={}_L.png&right={}_R.png")
    Path("bad.tsv").write_text("a_L.png\tnone.png\n")
    with pytest.raises(UsageError, match=r"bad\.tsv: 1 bad line: line 1: no such file: none\.png"):
        open_data("pairs:bad.tsv")
    with pytest.raises(InputError, match="none does not exist"):
        open_data("pairs:none")


def test_pairs_by_templates_are_those_of_pam_disparity(tmp_path: Path) -> None:
    for name in ("day1/a_L.png", "day1/a_R.png", "day2/b_L.png", "day2/b_R.png", "day2/c_L.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    np.save(tmp_path / "day1" / "a_d.npy", np.ones((8, 8), np.float32))
    source = open_data(f"pairs:{tmp_path}?left={{}}_L.png&right={{}}_R.png&disparity={{}}_d.npy")
    assert sorted(source.names) == ["day1/a", "day2/b"]
    assert [source.load(i).disparity is not None for i in range(2)].count(True) == 1
    assert source.unpaired == (f"{tmp_path}/day2/c_L.png has no right image",)
    inside = open_data(f"pairs:{tmp_path}?left=day2/{{}}_L.png&right=day2/{{}}_R.png")
    assert source.names != inside.names == ("b",)
    for keys in ("left={}_L.png", "left=a&right={}_R.png"):
        with pytest.raises(UsageError, match=r"template .*left=\{\}_L.png&right=\{\}_R.png"):
            open_data(f"pairs:{tmp_path}?{keys}")
