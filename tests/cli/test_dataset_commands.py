"""pam dataset list, verify, preview, label."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import source_trees
from pam_program import pam, refuse, refuse_all, succeed, unchanged
from PIL import Image

from pamcli.data.open import open_data
from pamcli.data.sources import SOURCES
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.inference.matcher import StereoMatcher
from pamcli.training.labels import CONTRADICTION, combine_networks, combine_with_blocks, find_labels

pytestmark = pytest.mark.usefixtures("remembering_networks")


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
        assert all(f"?{key.name}= {key.meaning}" in text for key in row.keys)
        assert all(" ".join(line.split()) in text for line in row.tree)
        assert (f"unverified {row.unverified}" in text) == bool(row.unverified)
        assert all(len(line) <= 110 and line == line.rstrip() for line in lines)
    assert "NAME[/SPLIT]:PATH[?key=value&...]" in blocks[-1]
    assert "first (use only the first N samples)" in blocks[-1]
    assert [record["name"] for record in pam("dataset list --jsonl").records] == list(SOURCES)
    (record,) = pam("dataset list sintel --jsonl").records
    assert (record["splits"], record["unverified"]) == (list(SOURCES["sintel"].splits), None)
    assert record["tree"] == list(SOURCES["sintel"].tree)
    said = {"meaning": "rendered without or with blur and haze", "choices": ["clean", "final"]}
    assert record["keys"][0] == {"name": "pass", **said, "default": "final"}


def test_verify_tells_what_is_not_there_and_ends_well(sound: Path) -> None:
    run = pam("dataset", "verify", "pairs:set")
    assert (run.code, run.stderr) == (0, "")
    assert run.lines == ["pairs:set: 2 pairs, 0 damage, 0 incomplete"]
    Path("set/disparity/two.pfm").unlink()
    run = pam("dataset", "verify", "pairs:set")
    assert (run.code, run.stderr) == (0, "")
    assert run.lines == [
        "pairs:set: incomplete: no ground truth (disparity) for 1 of 2 pairs: two",
        "pairs:set: 2 pairs, 0 damage, 1 incomplete",
    ]


def damage(sound: Path) -> None:
    """Make every kind of damage there is, one sample each, beside sound ones."""
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


def test_verify_names_every_damage_with_its_sample_and_ends_with_3(sound: Path) -> None:
    damage(sound)
    run = pam("dataset", "verify", "pairs:set")
    assert (run.code, run.stderr) == (3, "")
    cut = "set/right/cut.png is damaged or truncated: the file ends too early"
    half = "it matches with 0.5 units per pixel (add the key scale=0.5)"
    assert len(run.lines) == 5
    assert run.lines[:3] == [
        "pairs:set: damage: set/right/zz.png has no left image",
        f"pairs:set: cut: damage: {cut}",
        f"pairs:set: half: damage: the ground truth does not match the images: {half}",
    ]
    assert run.lines[3].startswith("pairs:set: small: damage: set/right/small.png is 96x64, but the left")
    assert run.lines[4] == "pairs:set: 5 pairs, 4 damage, 0 incomplete"
    run = pam("dataset", "verify", "pairs:set?weight=2", "--jsonl")
    assert (run.code, run.stderr) == (3, "")
    data = "pairs:set?weight=2"
    finding = {"kind": "finding", "data": data, "severity": "damage"}
    assert run.records[1] == finding | {"sample": "cut", "message": cut}
    counts = {"pairs": 5, "damage": 4, "incomplete": 0, "unverified": None}
    summary = {"kind": "summary", "data": data, "name": "pairs", "split": "all", "path": "set"}
    assert run.records[-1] == summary | counts


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


def test_preview_draws_a_sheet_and_says_what_is_not_there(here: Path) -> None:
    root = kitti()
    shutil.rmtree(root / "training/obj_map")
    run = succeed("dataset", "preview", "kitti2015:kitti", "-o", "sheet.png")
    assert run.lines == ["sheet.png"]
    assert run.complaints == [
        "kitti2015:kitti: layout unverified: the names of object maps and of the calibration",
        "kitti2015:kitti: no object maps (obj_map)",
    ]
    # 4 + 2 rows of 14 for the name, 213 (4 x 6 px, 320 wide) and 4; four cells with 4 around.
    assert size("sheet.png") == (4 * 320 + 5 * 4, 4 + 2 * (14 + 213 + 4))
    image = root / "training/image_3/000001_10.png"
    image.write_bytes(image.read_bytes()[:60])
    preview = ["dataset", "preview", "kitti2015:kitti", "--quiet", "-o"]
    with unchanged():
        refuse(pam(*preview, "new.png"), 3, f"{image} is damaged or truncated")
    image.unlink()
    run = pam(*preview, "deep/in/sheet.jpg")
    assert (run.code, run.lines) == (0, ["deep/in/sheet.jpg"])
    left = "kitti/training/image_2/000001_10.png"
    assert run.complaints == [f"warning: kitti2015:kitti: {left} has no right image"]


def test_preview_of_some_samples_spread_over_the_set(here: Path) -> None:
    for number in range(10):
        source_trees.pair(Path(f"set/left/{number}.png"), Path(f"set/right/{number}.png"))
        source_trees.picture(Path(f"set/left/{number}.png"), 10 * number)
    for words, levels in {" --count 3": [0, 40, 90], "?first=2 --count 20": [0, 10]}.items():
        succeed(f"dataset preview pairs:set{words} -o sheet.png --overwrite --quiet")
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
    succeed("dataset preview kitti2015:kitti -o sheet.png --overwrite")
    assert size("sheet.png")[0] == 1300


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
    refuse_all(table, "dataset verify kitti2015:kitti")
    table = """
        2 dataset preview -o sheet.png kity2015:kitti | unknown data set 'kity2015'
        3 eval disparity --data kitti2015:none | none does not exist
        2 dataset list kitty2015 | 'kitty2015' | did you mean kitti2015? | pairs
        2 dataset list xyz --jsonl | unknown data set 'xyz' | booster
        2 dataset verify | Missing argument 'DATA | --help lists all options
    """
    refuse_all(table)


# --- label --------------------------------------------------------------------------------------------------


@pytest.fixture
def mine(here: Path, views: tuple[np.ndarray, np.ndarray]) -> Path:
    """Three pairs without a truth: two sound ones, and one of two walls without texture."""
    even = [np.full_like(views[0], 128)] * 2
    for name, pair in (("a", views), ("b", views), ("wall", even)):
        for side, view in zip(("left", "right"), pair, strict=True):
            (here / "mine" / side).mkdir(parents=True, exist_ok=True)
            Image.fromarray(view).save(here / "mine" / side / f"{name}.png")
    return here / "mine"


def test_labels_are_what_was_found_without_contradiction() -> None:
    nan, apart = np.nan, 5.0 + 1.1 * CONTRADICTION
    network = np.array([[5, 5, nan, 5, nan, 9]], np.float32)
    other = np.array([[5.5, nan, 4, apart, nan, 9]], np.float32)
    np.testing.assert_array_equal(combine_with_blocks(network, other), [[5.25, 5, nan, nan, nan, 9]])
    np.testing.assert_array_equal(combine_networks(network, other), [[5.25, nan, nan, nan, nan, 9]])


def test_another_network_is_asked_instead_of_block_matching(mine: Path) -> None:
    label = ["dataset", "label", "pairs:mine?first=1", "-o", "labelled", "--agree-with", "pasmnet"]
    succeed(*label, "--device", "cpu", "--precision", "fp32")
    sample = open_data("pairs:labelled").load(0)
    ours, papers = (
        StereoMatcher.load(name, device="cpu", precision="fp32") for name in ("pasmnet2", "pasmnet")
    )
    expected = find_labels(ours, sample.left, sample.right, papers)
    np.testing.assert_allclose(sample.disparity, expected, atol=1e-4)
    assert 0.3 < np.isfinite(expected).mean() < 1, "where the networks disagree there is no label"


def test_pairs_get_labels_that_fit_them_and_can_be_learned_from(mine: Path) -> None:
    run = succeed("dataset", "label", "pairs:mine", "-o", "labelled", "--device", "cpu", "--jsonl")
    assert [record["pair"] for record in run.records] == ["a", "b", "wall"]
    made = open_data("pairs:labelled")
    kept = [record["pair"] for record in run.records if record["kept"]]
    assert list(made.names) == kept
    assert {"a", "b"} <= set(kept)
    sample = made.load(0)
    assert np.array_equal(sample.left, np.asarray(Image.open("mine/left/a.png")))
    known = np.isfinite(sample.disparity)
    assert known.mean() == pytest.approx(run.records[0]["labelled"])
    assert 0.3 < known.mean() < 1
    succeed("dataset", "verify", "pairs:labelled")


def test_mirrored_pairs_are_pairs_of_their_own(mine: Path) -> None:
    label = ["dataset", "label", "pairs:mine?first=1", "-o", "labelled", "--device", "cpu"]
    succeed(*label)
    run = succeed(*label, "--mirrored", "--jsonl")
    assert [record["pair"] for record in run.records] == ["a-mirrored"], "the other is there"
    made = open_data("pairs:labelled")
    assert list(made.names) == ["a", "a-mirrored"]
    plain, mirrored = made.load(0), made.load(1)
    assert np.array_equal(mirrored.left, np.fliplr(plain.right))
    assert np.array_equal(mirrored.right, np.fliplr(plain.left))
    # The right view's disparities, found again where the left view's labels say.
    rows, columns = np.nonzero(np.isfinite(plain.disparity))
    match = np.rint(columns - plain.disparity[rows, columns]).astype(int)
    rows, columns, match = (values[match >= 0] for values in (rows, columns, match))
    difference = mirrored.disparity[rows, 95 - match] - plain.disparity[rows, columns]
    assert np.isfinite(difference).mean() > 0.3
    assert np.nanmedian(np.abs(difference)) < 0.5


def test_a_second_call_goes_on_and_overwrites_only_when_asked(mine: Path) -> None:
    label = ["dataset", "label", "pairs:mine?first=2", "-o", "labelled", "--device", "cpu"]
    succeed(*label)
    (mine.parent / "labelled/right/b.png").unlink()
    run = succeed(*label)
    assert "1 of 2 pairs have labels already" in run.stderr
    assert [line.partition(":")[0] for line in run.stdout.decode().splitlines()] == ["b"]
    assert Path("labelled/right/b.png").exists()
    np.save("labelled/disparity/a.npy", np.zeros((64, 96), np.float32))
    succeed(*label)
    assert not np.load("labelled/disparity/a.npy").any(), "left as it was"
    succeed(*label, "--overwrite", "--quiet")
    assert np.load("labelled/disparity/a.npy").any()


def test_a_damaged_image_is_one_line_and_the_others_are_labelled(mine: Path) -> None:
    (mine / "left/a.png").write_bytes(b"no picture")
    run = pam("dataset", "label", "pairs:mine?first=2", "-o", "labelled", "--device", "cpu")
    assert run.code == 6
    assert "a: " in run.stderr
    assert open_data("pairs:labelled").names == ("b",)


def test_what_cannot_be_labelled_is_an_error(mine: Path) -> None:
    Path("full/left").mkdir(parents=True)
    Path("full/left/other.onnx").write_bytes(b"a network")
    for side in ("left", "right"):
        Path("twice", side).mkdir(parents=True)
        for name in ("a", "a-mirrored"):
            Path(f"twice/{side}/{name}.png").write_bytes((mine / side / "a.png").read_bytes())
    table = """
        2 procedural -o labelled | has ground truth at every pixel
        2 pairs:mine -o mine | is an input
        2 pairs:mine -o mine/left/a.png | is a file
        3 pairs:nowhere -o labelled | does not exist
        2 mine -o labelled | does not begin with the name of a data set
        2 pairs:twice -o labelled --mirrored | already called a-mirrored
        2 pairs:mine -o labelled --agree-with pasmnet2 | --agree-with pasmnet2 is the network
        2 pairs:mine -o full --agree-with full/left/other.onnx | is an input
        4 pairs:mine -o labelled --weights passrnet2-x4 | does not match images
    """
    refuse_all(table, "dataset label")


def test_a_changed_image_is_noticed_in_any_place(mine: Path) -> None:
    label = ["dataset", "label", "pairs:mine?first=2", "-o", "labelled", "--device", "cpu"]
    succeed(*label)
    before = np.load("labelled/disparity/b.npy")
    view = np.asarray(Image.open("mine/right/b.png")).copy()
    view[:2, :2] ^= 1  # next to nothing
    Image.fromarray(view).save("mine/right/b.png")
    run = pam(*label)
    assert run.code == 2
    assert "labelled has labels of other images with the names of these pairs: b" in run.stderr
    assert "--overwrite" in run.stderr
    assert np.array_equal(np.load("labelled/disparity/b.npy"), before, equal_nan=True)
    run = succeed(*label, "--overwrite")
    assert "the images of b changed after labelling" in run.stderr
    assert np.array_equal(np.asarray(Image.open("labelled/right/b.png")), view)
    Image.fromarray(255 - view[::-1]).save("mine/right/b.png")  # of which too little can be labelled
    run = succeed(*label, "--overwrite")
    assert "warning: b: deleted its earlier labels" in run.stderr
    assert [path.name for path in Path("labelled/right").iterdir()] == ["a.png"]
