"""`pam dataset prepare-flickr1024` and `pam dataset stats`: patches and pairs, and what goes wrong."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pam_program import Run, files, forked, gate, names, pam, refuse, refuse_all, succeed, unchanged
from PIL import Image
from published import LARGE, SMALL, archive, png, split_stereogram, tree, views
from published import files as pictures

from pamcli.cli.console import Progress
from pamcli.evaluation.image_quality import CNNIQA
from pamcli.flickr1024 import resumable, stereogram_pairs

PREPARE = ["dataset", "prepare-flickr1024", "Flickr1024/", "-o", "out", "--scale", "2", "--workers", "1"]


@pytest.fixture
def published(here: Path) -> Path:
    """Two training pairs with eight patches at x2, one pair for tests."""
    return tree(here / "Flickr1024", {"Train/0001": LARGE, "Train/0002": SMALL, "Test/0001": SMALL})


@pytest.fixture
def middlebury(here: Path) -> Path:
    """One scene, with one patch at x2 once it is halved."""
    for name, data in pictures({"a": (400, 150)}).items():
        path = here / "midd/Piano" / {"a_L.png": "im0.png", "a_R.png": "im1.png"}[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return here / "midd"


def result(run: Run) -> list[str]:
    assert run.code == 0, run.stderr
    return run.lines


@pytest.mark.usefixtures("published")
def test_patches_of_the_published_set_with_counts_and_a_data_set_that_can_be_read() -> None:
    run = pam(*PREPARE)
    assert result(run) == ["out/x2: flickr1024: 2 pairs, 8 patches", "out/x2: 2 pairs, 8 patches"]
    assert run.complaints == [
        "not included: 1 pair of test (--split)",
        "8 patches of 2 pairs, about 0.4 MB to write",
    ]
    assert names("out") == ["x2/index.json", "x2/manifest.csv", "x2/pixels.npy"]
    with unchanged():
        again = pam(*PREPARE)
    assert result(again) == run.lines
    assert "out/x2 is already complete" in again.complaints
    assert result(pam("dataset verify flickr1024:out")) == [
        "flickr1024:out: 8 pairs, 0 damage, 0 incomplete; layout unverified: the names of the images"
    ]
    assert result(pam("dataset", "preview", "flickr1024:out", "-o", "sheet.png", "-q")) == ["sheet.png"]
    run = pam("dataset", "stats", "out", "--workers", "1", "--jsonl")
    (record,) = run.records
    assert (record["data"], record["pairs"], record["cnniqa"]) == ("flickr1024:out", 2, None)
    assert record["pixels"] == (284 * 122 + 240 * 100) / 2


@pytest.mark.usefixtures("published", "middlebury")
def test_added_sets_a_list_and_the_authors_tree() -> None:
    Path("names.txt").write_text("0002\nmiddlebury/*\n")
    more = ["--add", "middlebury:midd", "--list", "names.txt", "--store", "folders", "--jsonl"]
    run = pam(*PREPARE, *more)
    (record,) = run.records
    assert record == {
        "kind": "patches",
        "path": "out/patches_x2",
        "scale": 2,
        "store": "folders",
        "split": "train",
        "pairs": 2,
        "patches": 3,
        "sources": {"middlebury": {"pairs": 1, "patches": 1}, "flickr1024": {"pairs": 1, "patches": 2}},
        "left_out": [],
    }
    assert "names.txt selects 2 of 3 pairs" in run.complaints
    assert len(names("out/patches_x2")) == 3 * 4
    # The authors number Middlebury first.
    assert Path("out/patches_x2.csv").read_text().splitlines()[1].startswith("000001,middlebury,Piano,2,2,")
    run = pam("dataset", "stats", "out/patches_x2", "--workers", "1", "--count", "2", "--jsonl")
    assert "patches without their images" in run.complaints[0]
    assert run.records[0]["pairs"] == 2


@pytest.mark.parametrize(
    ("store", "number"),
    [("packed", signal.SIGKILL), ("folders", signal.SIGTERM)],
    ids=["packed SIGKILL", "folders SIGTERM"],
)
def test_a_run_that_is_stopped_goes_on_and_ends_in_the_same_bytes(
    here: Path, store: str, number: signal.Signals
) -> None:
    tree(here / "Flickr1024", {f"Train/{index:04d}": LARGE for index in range(1, 9)})
    prepare = ["dataset", "prepare-flickr1024", "Flickr1024", "--scale", "2", "--store", store]
    result(pam(*prepare, "-o", "whole", "--workers", "1"))
    name = "x2" if store == "packed" else "patches_x2"
    with gate(Progress, "advance", 0), forked(*prepare, "-o", "out", "--workers", "2") as running:
        with open("gate", "wb"):  # which waits until the first pair is done
            running.send_signal(number)
        assert running.wait() == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    assert not Path("out", name).exists()
    refuse(pam("dataset", "verify", "flickr1024:out"), 3, "unfinished", "repeat the command that started it")
    run = pam(*prepare, "-o", "out", "--workers", "1")
    assert result(run)[-1] == f"out/{name}: 8 pairs, 48 patches"
    assert any(line.startswith(f"out/{name} is resumed: ") for line in run.complaints)
    assert files(Path("out")) == files(Path("whole"))


@pytest.mark.usefixtures("published", "middlebury")
def test_a_folder_of_other_options_or_images_is_refused() -> None:
    result(pam(*PREPARE))
    with unchanged():
        run = pam(*PREPARE, "--add", "middlebury:midd", "-q")
        refuse(run, 2, "out/x2 was made with other images: 2, now 3")
        run = pam(*PREPARE, "--split", "test", "-q")
        refuse(run, 2, "out/x2 was made with another split: train, now test")
    result(pam(*PREPARE, "--store", "folders"))  # another store and another scale stand beside
    shutil.rmtree("out/x2")
    Path("Flickr1024/Train/0001_R.png").write_bytes(b"no picture")
    assert pam(*PREPARE).code == 6
    with unchanged():
        run = pam(*PREPARE, "--add", "middlebury:midd", "-q")
        refuse(run, 2, "out/x2.unfinished was started with other images: 2, now 3")


@pytest.mark.usefixtures("published")
def test_what_is_refused() -> None:
    Path("Flickr1024/Test").rename("Test")
    for place in ("mixed/notes.txt", "foreign/x2/pixels.npy", "file"):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).touch()
    os.symlink("loop", "loop")
    broken = tree(Path("broken"), {"0001": SMALL}) / "0001_L.png"
    broken.write_bytes(b"no picture")
    tree(Path("tiny"), {"0001": (190, 90)})
    table = """
        2 Flickr1024 -o mixed | mixed holds files that pam did not write: notes.txt
        2 Flickr1024 -o foreign | foreign/x2 already exists
        2 Flickr1024 -o file | file is a file
        2 Flickr1024 -o Flickr1024/out | Flickr1024/out | inside
        7 Flickr1024 -o loop | cannot write loop
        3 broken -o out | broken/0001_L.png is not an image | --skip-damaged
        3 Flickr1024 -o out --list none.txt | cannot read none.txt
        2 Flickr1024 -o out --add kity2015:x | unknown data set 'kity2015'
        3 Flickr1024 -o out --add kitti2015:x | x does not exist
        3 none -o out | none does not exist
        3 tiny -o out | too small for a patch | 192x72
    """
    refuse_all(table, "dataset prepare-flickr1024 --scale 2 --workers 1")
    archive(Path("unsafe/more.zip"), {"0009_L.bmp": bytes(20 << 20)})
    table = """
        2 Flickr1024 | --scale | --from-stereograms
        2 Flickr1024 --scale 2 --layout cross | --layout requires --from-stereograms
        2 Flickr1024 --from-stereograms --infinity no --add pairs:x | --add requires --scale
        2 Flickr1024 --scale 3 | --scale | --help lists all options
        2 Flickr1024 --scale 2 --workers 0 | --workers | --help lists all options
        3 unsafe --scale 2 | unsafe/more.zip is unsafe | to 20,971,520 bytes
    """
    refuse_all(table, "dataset prepare-flickr1024 -o out")


@pytest.mark.usefixtures("published")
def test_a_truncated_image_is_named_the_rest_done_and_once_mended_it_goes_on() -> None:
    result(pam(*PREPARE[:4], "whole", *PREPARE[5:]))
    broken = Path("Flickr1024/Train/0001_R.png")
    good = broken.read_bytes()
    broken.write_bytes(good[:2000])
    run = pam(*PREPARE, "-q")
    assert (run.code, run.lines) == (6, [])
    assert run.complaints == [
        f"error: flickr1024/0001: {broken} is damaged or truncated: the file ends too early"
    ]
    run = pam(*PREPARE[:4], "less", *PREPARE[5:], "--skip-damaged")
    assert result(run)[-1].endswith("1 pair, 2 patches, 1 pair left out")
    assert any("warning: flickr1024/0001: " in line for line in run.complaints)
    assert pam("dataset verify flickr1024:less").lines[-1].startswith("flickr1024:less: 2 pairs, 0 damage")
    broken.write_bytes(good)
    assert result(pam(*PREPARE))[-1] == "out/x2: 2 pairs, 8 patches"
    assert files(Path("out")) == files(Path("whole"))


@pytest.mark.usefixtures("published")
def test_lone_views_are_named_and_can_be_left_out() -> None:
    Path("Flickr1024/Train/0002_R.png").unlink()
    with unchanged():
        refuse(pam(*PREPARE), 2, "Flickr1024/Train/0002_L.png has no right image", "--skip-unpaired")
    run = pam(*PREPARE, "--skip-unpaired")
    assert result(run)[-1] == "out/x2: 1 pair, 6 patches"
    assert "warning: Flickr1024/Train/0002_L.png has no right image and is excluded" in run.complaints


@pytest.mark.usefixtures("published")
def test_a_disk_that_is_too_small_is_told_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(".")._replace(free=1000)
    monkeypatch.setattr(resumable.shutil, "disk_usage", lambda path: usage)
    with unchanged():
        run = pam(*PREPARE, "-q")
        refuse(run, 7, "out/x2 needs about 0.000442 GB, but only 1e-06 GB", "free some space")


@pytest.mark.usefixtures("published")
def test_stats_with_the_image_quality_of_both_views() -> None:
    """Beside the table of the paper."""
    torch.manual_seed(0)
    torch.save(CNNIQA().state_dict(), "weights")
    stats = ["dataset", "stats", "flickr1024:Flickr1024", "--workers", "1", "--cnniqa"]
    (record,) = pam(*stats, "weights", "--jsonl").records
    assert record["cnniqa"] == pytest.approx((record["cnniqa_left"] + record["cnniqa_right"]) / 2)
    run = pam(*stats, "weights")
    assert run.lines[0].split()[:4] == ["data", "pairs", "pixels", "per"]
    assert run.lines[1].split()[:3] == ["flickr1024:Flickr1024", "2", "29698"]
    assert run.lines[0].split()[-3:] == ["CNNIQA", "left", "right"]
    assert run.lines[1].split()[-3] == f"{record['cnniqa']:.2f}"
    words = run.lines[3].split()
    assert (words[:7], words[-3]) == (["KITTI", "2012", "in", "the", "paper", "194", "462564"], "20.32")
    refuse(pam(*stats, "none"), 4, "checkpoint none does not exist")
    run = pam(*stats[:-1])
    assert "not computed: CNNIQA requires --cnniqa FILE; SR-metric requires pyiqa" in run.complaints[0]


@pytest.mark.usefixtures("published")
def test_stats_names_copies_and_damage_and_ends_with_3() -> None:
    for side in "LR":
        shutil.copy(f"Flickr1024/Train/0002_{side}.png", f"Flickr1024/Train/0003_{side}.png")
    shutil.copy("Flickr1024/Train/0001_L.png", "Flickr1024/Train/0001_R.png")
    tree(Path("Flickr1024"), {"Train/0004": SMALL})
    Path("Flickr1024/Train/0004_R.png").write_bytes(b"no picture")
    run = pam("dataset", "stats", "flickr1024:Flickr1024", "--workers", "1", "-q")
    assert run.code == 3
    assert run.lines[:2] == [
        "flickr1024:Flickr1024: 0003 is a copy of 0002",
        "flickr1024:Flickr1024: left and right of 0001 are the same image",
    ]
    (line,) = run.complaints
    assert line.startswith("error: flickr1024:Flickr1024: 0004: Flickr1024/Train/0004_R.png is not an image")


# --- stereograms --------------------------------------------------------------------------------------------


STEREOGRAMS = ["dataset", "prepare-flickr1024", "found", "-o", "mine", "--from-stereograms", "--workers", "1"]
STEREOGRAMS += ["--infinity", "no"]
SIZE = (288, 132)


@pytest.fixture
def found(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cross-eyed stereograms, one of them in a folder, one that cannot be used, one that is damaged."""
    monkeypatch.setattr(stereogram_pairs, "rectify_stereogram", split_stereogram)
    for seed, name in enumerate(("a.png", "trip/b.png")):
        left, right = views(SIZE, seed)
        (here / "found" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "found" / name).write_bytes(png(np.hstack([right, left])))
    (here / "found/black.png").write_bytes(png(np.zeros((20, 40, 3), np.uint8)))
    (here / "found/cut.png").write_bytes((here / "found/a.png").read_bytes()[:500])
    return here / "found"


@pytest.mark.usefixtures("found")
def test_pairs_are_written_and_every_image_is_accounted_for() -> None:
    run = succeed(*STEREOGRAMS, "--skip-damaged")
    assert run.lines == [
        "mine/pairs: 2 pairs, 1 set aside, 1 damaged; the reasons are in mine/stereograms.csv"
    ]
    damaged, aside = run.complaints
    assert damaged.startswith("warning: cut.png: found/cut.png is damaged or truncated")
    assert aside == "black.png is set aside: it is black"
    made = [f"pairs/{name}_{side}.png" for name in ("a", "trip_b") for side in "LR"]
    assert names("mine") == [*made, "stereograms.csv", "stereograms.json"]
    for side, view in zip("LR", views(SIZE, 1), strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(f"mine/pairs/trip_b_{side}.png")), view)
    rows = list(csv.DictReader(Path("mine/stereograms.csv").read_text().splitlines()))
    assert [(row["picture"], row["outcome"], row["reason"]) for row in rows] == [
        ("a.png", "pair", ""),
        ("black.png", "set aside", "it is black"),
        ("cut.png", "damaged", "found/cut.png is damaged or truncated: the file ends too early"),
        ("trip/b.png", "pair", ""),
    ]
    kept = [rows[3][key] for key in ("name", "width", "height", "certainty", "shift", "infinity")]
    assert kept == ["trip_b", "288", "132", "0.75", "7", "no"]
    report = json.loads(Path("mine/stereograms.json").read_text())
    assert report["pictures"][3]["vertical_offset"] == 1.25


def test_an_image_that_cannot_be_read_is_mended_or_left_out(found: Path) -> None:
    whole = pam(*STEREOGRAMS, "--scale", "2")
    assert (whole.code, whole.lines) == (6, [])
    assert whole.complaints[0].startswith("error: cut.png: found/cut.png is damaged or truncated")
    assert whole.complaints[1].startswith("3 of 4 images are done")
    assert "--skip-damaged" in whole.complaints[1]
    assert not Path("mine/pairs").exists()
    (found / "cut.png").write_bytes((found / "a.png").read_bytes())
    assert pam(*STEREOGRAMS).lines == [
        "mine/pairs: 3 pairs, 1 set aside, 0 damaged; the reasons are in mine/stereograms.csv"
    ]


@pytest.mark.usefixtures("found")
def test_patches_are_cut_from_the_pairs_in_one_go() -> None:
    run = succeed(*STEREOGRAMS, "--scale", "2", "--skip-damaged")
    assert run.lines[1:] == ["mine/x2: stereograms: 2 pairs, 12 patches", "mine/x2: 2 pairs, 12 patches"]
    again = pam(*STEREOGRAMS, "--scale", "2", "--skip-damaged")
    assert again.lines == run.lines
    assert {"mine/pairs is already complete", "mine/x2 is already complete"} <= set(again.complaints)
    assert pam("dataset verify flickr1024:mine").lines[-1].startswith("flickr1024:mine: 12 pairs, 0 dam")


@pytest.mark.usefixtures("found")
def test_the_layout_is_passed_on_and_belongs_to_the_folder() -> None:
    succeed(*STEREOGRAMS, "--layout", "parallel", "--skip-damaged")
    np.testing.assert_array_equal(np.asarray(Image.open("mine/pairs/a_L.png")), views(SIZE, 0)[1])
    with unchanged():
        refuse(pam(*STEREOGRAMS), 2, "mine/pairs was made with another layout: parallel, now auto")
        other = [*STEREOGRAMS[:-1], "yes", "--layout", "parallel"]
        refuse(pam(*other), 2, "mine/pairs was made with another infinity: no, now yes")


@pytest.mark.usefixtures("found")
def test_what_was_done_before_an_interruption_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pam(*STEREOGRAMS[:4], "whole", *STEREOGRAMS[5:], "--skip-damaged")
    done: list[int] = []

    def interrupted(picture: NDArray[np.generic], layout: str, infinity: str) -> object:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(picture.shape[1])
        return split_stereogram(picture, layout, infinity)

    monkeypatch.setattr(stereogram_pairs, "rectify_stereogram", interrupted)
    assert pam(*STEREOGRAMS).code == 130
    assert not Path("mine/pairs").exists()
    done.clear()
    run = succeed(*STEREOGRAMS, "--skip-damaged")
    assert "mine/pairs is resumed: 2 of 4 images are done" in run.complaints
    assert done == [2 * SIZE[0]]  # the one that was left; the damaged one is tried again, too
    assert files(Path("mine")) == files(Path("whole"))


def test_refusals(found: Path) -> None:
    shutil.copy(found / "a.png", found / "trip_b.png")
    Path("empty").mkdir()
    table = """
        2 found -o mine --infinity no | trip_b.png and trip/b.png would both become trip_b_L.png
        2 found -o mine | --from-stereograms requires --infinity
        3 empty -o mine --infinity no | empty contains no image
    """
    refuse_all(table, "dataset prepare-flickr1024 --from-stereograms --workers 1")


def test_stereograms_in_an_archive(found: Path) -> None:
    archive(Path("zips/all.zip"), {"x/c.jps": (found / "a.png").read_bytes()})
    succeed(*STEREOGRAMS[:2], "zips", *STEREOGRAMS[3:])
    assert names("mine/pairs") == ["all_x_c_L.png", "all_x_c_R.png"]
