"""pam dataset list, verify, preview."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import source_trees
from pam_program import Run, pam, refuse, refuse_all, unchanged
from PIL import Image

from pamcli.data.sources import SOURCES
from pamcli.imaging.disparity_files import encode_disparity


@pytest.fixture
def sound(here: Path, views: tuple[np.ndarray, np.ndarray]) -> Path:
    """Two pairs with a truth that fits, and its folder: left (y, x) = right (y, x - 8)."""
    _, right = views
    left = np.roll(right, 8, axis=1)
    for folder in ("left", "right", "disparity"):
        (here / "set" / folder).mkdir(parents=True)
    truth = np.full(left.shape[:2], 8, np.float32)
    truth[:, :8] = np.nan
    for name in ("one", "two"):
        Image.fromarray(left).save(f"set/left/{name}.png")
        Image.fromarray(right).save(f"set/right/{name}.png")
        Path(f"set/disparity/{name}.pfm").write_bytes(encode_disparity(truth, ".pfm").data)
    return here / "set"


def size(path: str) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def kitti() -> Path:
    """A miniature of KITTI 2015 in the folder kitti."""
    source_trees.kitti2015(Path("kitti"))
    return Path("kitti")


# --- list ---------------------------------------------------------------------------------------------------


def test_list_describes_every_data_set() -> None:
    run = pam("dataset", "list")
    assert (run.code, run.stderr) == (0, "")
    blocks = run.stdout.decode().split("\n\n")
    assert len(blocks) == len(SOURCES) + 1
    for row, block in zip(SOURCES.values(), blocks, strict=False):
        lines = block.splitlines()
        assert lines[0] == f"{row.name}: {row.about}"
        assert lines[1].split() == ["splits", *", ".join(row.splits).split()]
        text = " ".join(block.split())
        for key in row.keys:
            assert f"?{key.name}= {key.meaning}" in text
            assert all(choice in text for choice in key.choices)
            said = f"{key.default} (default)" if key.choices else f"(default {key.default})"
            assert said in text or key.default is None
        assert all(" ".join(line.split()) in text for line in row.tree)
        assert (f"unverified {row.unverified}" in text) == bool(row.unverified)
        assert all(len(line) <= 110 and line == line.rstrip() for line in lines)
    assert "NAME[/SPLIT]:PATH[?key=value&...]" in blocks[-1]
    assert "first (use only the first N samples)" in blocks[-1]


def test_list_as_json_is_one_object_a_line() -> None:
    run = pam("dataset list --jsonl")
    assert (run.code, run.stderr) == (0, "")
    assert [record["name"] for record in run.records] == list(SOURCES)
    (record,) = pam("dataset list eth3d --jsonl").records
    assert record in run.records
    assert record["splits"] == ["training", "test"]
    assert record["tree"] == list(SOURCES["eth3d"].tree)
    assert record["unverified"] == SOURCES["eth3d"].unverified
    assert [key["name"] for key in record["keys"]] == ["first", "weight"]
    (record,) = pam("dataset list sintel --jsonl").records
    assert record["unverified"] is None
    said = {"meaning": "rendered without or with blur and haze", "choices": ["clean", "final"]}
    assert record["keys"][0] == {"name": "pass", **said, "default": "final"}


# --- verify -------------------------------------------------------------------------------------------------


def test_verify_of_a_sound_set(sound: Path) -> None:
    run = pam("dataset", "verify", "pairs:set")
    assert (run.code, run.stderr) == (0, "")
    assert run.lines == ["pairs:set: 2 pairs, 0 damage, 0 incomplete"]


def test_verify_tells_what_is_not_there_and_ends_well(sound: Path) -> None:
    Path("set/disparity/two.pfm").unlink()
    run = pam("dataset", "verify", "pairs:set")
    assert (run.code, run.stderr) == (0, "")
    assert run.lines == [
        "pairs:set: incomplete: no ground truth (disparity) for 1 of 2 pairs: two",
        "pairs:set: 2 pairs, 0 damage, 1 incomplete",
    ]


def damaged(sound: Path) -> Run:
    """Every kind of damage there is, one sample each, and one that is sound."""
    for folder, suffix in (("left", ".png"), ("right", ".png"), ("disparity", ".pfm")):
        for name in ("cut", "small", "half", "zz"):
            shutil.copy(sound / folder / f"one{suffix}", sound / folder / f"{name}{suffix}")
    cut = sound / "right/cut.png"
    cut.write_bytes(cut.read_bytes()[:500])
    left = np.asarray(Image.open(sound / "left/one.png"))
    Image.fromarray(left[:, :90]).save(sound / "left/small.png")
    truth = np.full((64, 96), 4, np.float32)
    (sound / "disparity/half.pfm").write_bytes(encode_disparity(truth, ".pfm").data)
    (sound / "left/zz.png").unlink()
    return pam("dataset", "verify", "pairs:set")


def test_verify_names_every_damage_with_its_sample_and_ends_with_3(sound: Path) -> None:
    run = damaged(sound)
    assert (run.code, run.stderr) == (3, "")
    assert len(run.lines) == 5
    assert run.lines[0] == "pairs:set: damage: set/right/zz.png has no left image"
    assert (
        run.lines[1]
        == "pairs:set: cut: damage: set/right/cut.png is damaged or truncated: the file ends too early"
    )
    said = "it matches with 0.5 units per pixel (add the key scale=0.5)"
    assert run.lines[2] == f"pairs:set: half: damage: the ground truth does not match the images: {said}"
    assert run.lines[3].startswith("pairs:set: small: damage: set/right/small.png is 96x64, but the left")
    assert run.lines[4] == "pairs:set: 5 pairs, 4 damage, 0 incomplete"


def test_verify_of_several_sets_goes_through_all_and_ends_with_the_damage_of_any(sound: Path) -> None:
    kitti()
    Path("set/right/one.png").write_bytes(b"no picture")
    run = pam("dataset", "verify", "pairs:set", "pairs:set?first=1", "kitti2015/testing:kitti?first=1")
    assert (run.code, run.stderr) == (3, "")
    assert [line for line in run.lines if "pairs, " in line or "pair, " in line] == [
        "pairs:set: 2 pairs, 1 damage, 0 incomplete",
        "pairs:set?first=1: 1 pair, 1 damage, 0 incomplete",
        "kitti2015/testing:kitti?first=1: 1 pair, 0 damage, 1 incomplete; layout unverified: the names of "
        "object maps and of the calibration",
    ]


def test_verify_as_json(sound: Path) -> None:
    Path("set/disparity/one.pfm").unlink()
    Path("set/right/two.png").write_bytes(b"no picture")
    run = pam("dataset", "verify", "pairs:set?weight=2", "--jsonl")
    assert (run.code, run.stderr) == (3, "")
    first, second, summary = run.records
    of_set = {"kind": "finding", "data": "pairs:set?weight=2"}
    message = "no ground truth (disparity) for 1 of 2 pairs: one"
    assert first == {**of_set, "sample": None, "severity": "incomplete", "message": message}
    assert second == {
        **of_set,
        "sample": "two",
        "severity": "damage",
        "message": "set/right/two.png is not an image, or its format is not supported",
    }
    assert summary == {
        "kind": "summary",
        "data": "pairs:set?weight=2",
        "name": "pairs",
        "split": "all",
        "path": "set",
        "pairs": 2,
        "damage": 1,
        "incomplete": 1,
        "unverified": None,
    }


def test_a_name_that_would_command_the_terminal_is_escaped(sound: Path) -> None:
    for folder, suffix in (("left", ".png"), ("right", ".png"), ("disparity", ".pfm")):
        os.rename(sound / folder / f"one{suffix}", sound / folder / f"o\x1b[31m\nne{suffix}")
    Path("set/right/o\x1b[31m\nne.png").write_bytes(b"not an image")
    run = pam("dataset verify pairs:set")
    assert (run.code, len(run.lines)) == (3, 2)
    assert b"\x1b" not in run.stdout


# --- preview ------------------------------------------------------------------------------------------------


def test_preview_draws_a_sheet_and_says_what_is_not_there(here: Path) -> None:
    root = kitti()
    shutil.rmtree(root / "training/obj_map")
    run = pam("dataset", "preview", "kitti2015:kitti", "-o", "sheet.png")
    assert run.code == 0
    assert run.lines == ["sheet.png"]
    assert run.complaints == [
        "kitti2015:kitti: layout unverified: the names of object maps and of the calibration",
        "kitti2015:kitti: no object maps (obj_map)",
    ]
    # 4 + 2 rows of 14 for the name, 213 (4 x 6 px, 320 wide) and 4; four cells with 4 around.
    assert size("sheet.png") == (4 * 320 + 5 * 4, 4 + 2 * (14 + 213 + 4))


def test_preview_warns_of_unpaired_images_even_when_quiet(here: Path) -> None:
    root = kitti()
    (root / "training/image_3/000001_10.png").unlink()
    run = pam("dataset", "preview", "kitti2015:kitti", "-o", "deep/in/sheet.jpg", "--quiet")
    assert (run.code, run.lines) == (0, ["deep/in/sheet.jpg"])
    assert run.complaints == [
        "warning: kitti2015:kitti: kitti/training/image_2/000001_10.png has no right image"
    ]


def test_preview_of_some_samples_spread_over_the_set(here: Path) -> None:
    for number in range(10):
        source_trees.pair(Path(f"set/left/{number}.png"), Path(f"set/right/{number}.png"))
        source_trees.picture(Path(f"set/left/{number}.png"), 10 * number)
    for words, levels in {
        "pairs:set --count 3": [0, 40, 90],
        "pairs:set --count 1": [0],
        "pairs:set?first=4 --count 20": [0, 10, 20, 30],
    }.items():
        run = pam(f"dataset preview {words} -o sheet.png --overwrite --quiet")
        assert (run.code, run.stderr) == (0, "")
        sheet = np.asarray(Image.open("sheet.png"))
        rows = range(4 + 14 + 100, sheet.shape[0], 14 + 213 + 4)
        assert [int(sheet[row, 10, 0]) for row in rows] == levels


def test_preview_does_not_replace_unless_told_to(here: Path) -> None:
    kitti()
    Path("sheet.png").write_bytes(b"precious")
    os.symlink("nowhere", "gone.png")
    os.symlink("kitti/training/disp_occ_0/000000_10.png", "link.png")
    os.mkdir("folder.png")
    Path("file").touch()
    part = "kitti/training/image_3/000000_10.png"
    table = f"""
        2 -o sheet.png | sheet.png already exists | --overwrite
        2 -o gone.png | gone.png already exists | --overwrite
        2 -o {part} --overwrite | {part} would overwrite an input
        2 -o link.png --overwrite | link.png would overwrite an input
        2 -o sheet.pfm | must end in .png, .tif
        2 -o sheet | must end in .png, .tif
        2 -o - | must end in .png, .tif
        2 -o folder.png | folder.png is a folder
        2 -o folder.png --overwrite | folder.png is a folder
        7 -o file/sheet.png | cannot write file/sheet.png
        2 | Missing option '--output' | --help lists all options
        2 -o new.png --count 0 | --count | --help lists all options
    """
    refuse_all(table, "dataset preview kitti2015:kitti")
    assert pam("dataset preview kitti2015:kitti -o sheet.png --overwrite").code == 0
    assert size("sheet.png")[0] == 1300


def test_preview_of_a_damaged_image_writes_nothing(here: Path) -> None:
    broken = kitti() / "training/image_3/000001_10.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with unchanged():
        run = pam("dataset", "preview", "kitti2015:kitti", "-o", "sheet.png", "--quiet")
        refuse(run, 3, f"{broken} is damaged or truncated")
    assert pam("dataset", "preview", "kitti2015:kitti?first=1", "-o", "sheet.png").code == 0


# --- what verify and preview refuse alike -------------------------------------------------------------------


def test_a_set_that_cannot_be_opened_is_told_before_any_work(here: Path) -> None:
    root = kitti()
    (root / "training/image_2/000000_10.png").write_bytes(b"never read")
    Path("file").touch()
    table = """
        2 kity2015:kitti | unknown data set 'kity2015' | did you mean kitti2015?
        2 kitti | 'kitti' does not begin with the name of a data set | NAME:PATH
        2 kitti2015/train:kitti | unknown split of kitti2015 'train' | training
        2 kitti2015:kitti?trut=occ | unknown key of kitti2015 'trut' | truth
        2 kitti2015:kitti?first=0 | first must be
        2 kitti2015: | lacks a folder
        3 kitti2015:none | none does not exist | give the folder that contains kitti2015
        3 kitti2015:file | file is not a folder
        3 eth3d:kitti | kitti contains no pair of the data set eth3d/training
        3 eth3d:kitti | expected two_view_training/delivery_area_1l/im0.png
    """
    for command in (
        "dataset verify kitti2015:kitti",
        "dataset preview -o sheet.png",
        "eval disparity --data",
    ):
        refuse_all(table, command)
    table = """
        2 dataset list kitty2015 | 'kitty2015' | did you mean kitti2015? | pairs
        2 dataset list xyz --jsonl | unknown data set 'xyz' | booster
        2 dataset verify | Missing argument 'DATA | --help lists all options
    """
    refuse_all(table)
