"""pam dataset prepare-flickr1024 --from-stereograms: pairs, what became of each image, patches."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pam_program import files, names, pam, refuse, unchanged
from PIL import Image
from published import archive, png, split_stereogram, views

from pamcli.flickr1024 import stereogram_pairs

PREPARE = ["dataset", "prepare-flickr1024", "found", "-o", "mine", "--from-stereograms", "--workers", "1"]
PREPARE += ["--infinity", "no"]
SIZE = (288, 132)


@pytest.fixture(autouse=True)
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


def test_pairs_are_written_and_every_image_is_accounted_for() -> None:
    run = pam(*PREPARE, "--skip-damaged")
    assert run.code == 0
    assert run.lines == [
        "mine/pairs: 2 pairs, 1 set aside, 1 damaged; the reasons are in mine/stereograms.csv"
    ]
    damaged, aside = run.complaints
    assert damaged.startswith("warning: cut.png: found/cut.png is damaged or truncated")
    assert aside == "black.png is set aside: it is black"
    assert names("mine") == [
        "pairs/a_L.png",
        "pairs/a_R.png",
        "pairs/trip_b_L.png",
        "pairs/trip_b_R.png",
        "stereograms.csv",
        "stereograms.json",
    ]
    left, right = views(SIZE, 1)
    np.testing.assert_array_equal(np.asarray(Image.open("mine/pairs/trip_b_L.png")), left)
    np.testing.assert_array_equal(np.asarray(Image.open("mine/pairs/trip_b_R.png")), right)
    rows = list(csv.DictReader(Path("mine/stereograms.csv").read_text().splitlines()))
    assert [(row["picture"], row["outcome"], row["reason"]) for row in rows] == [
        ("a.png", "pair", ""),
        ("black.png", "set aside", "it is black"),
        ("cut.png", "damaged", "found/cut.png is damaged or truncated: the file ends too early"),
        ("trip/b.png", "pair", ""),
    ]
    kept = {key: rows[3][key] for key in ("name", "width", "height", "certainty", "shift", "infinity")}
    assert kept == {
        "name": "trip_b",
        "width": "288",
        "height": "132",
        "certainty": "0.75",
        "shift": "7",
        "infinity": "no",
    }
    report = json.loads(Path("mine/stereograms.json").read_text())
    assert report["pictures"][3]["vertical_offset"] == 1.25


def test_an_image_that_cannot_be_read_is_mended_or_left_out(found: Path) -> None:
    whole = pam(*PREPARE, "--scale", "2")
    assert whole.code == 6
    assert whole.lines == []
    assert whole.complaints[0].startswith("error: cut.png: found/cut.png is damaged or truncated")
    assert whole.complaints[1].startswith("3 of 4 images are done")
    assert "--skip-damaged" in whole.complaints[1]
    assert not Path("mine/pairs").exists()
    (found / "cut.png").write_bytes((found / "a.png").read_bytes())
    assert pam(*PREPARE).lines == [
        "mine/pairs: 3 pairs, 1 set aside, 0 damaged; the reasons are in mine/stereograms.csv"
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_in_another_encoding_stay_as_they_are(found: Path) -> None:
    (found / "cut.png").unlink()
    os.rename(os.fsencode(found / "a.png"), os.fsencode(found) + b"/\xff.png")
    assert pam(*PREPARE).code == 0
    assert b"\xff.png,pair" in Path("mine/stereograms.csv").read_bytes()


def test_it_must_be_said_whether_the_farthest_thing_is_infinitely_far() -> None:
    with unchanged():
        refuse(pam(*PREPARE[:-2]), 2, "--from-stereograms requires --infinity")


def test_patches_are_cut_from_the_pairs_in_one_go() -> None:
    run = pam(*PREPARE, "--scale", "2", "--skip-damaged")
    assert run.code == 0, run.stderr
    assert run.lines[1:] == ["mine/x2: stereograms: 2 pairs, 12 patches", "mine/x2: 2 pairs, 12 patches"]
    again = pam(*PREPARE, "--scale", "2", "--skip-damaged")
    assert again.lines == run.lines
    assert {"mine/pairs is already complete", "mine/x2 is already complete"} <= set(again.complaints)
    assert pam("dataset verify flickr1024:mine").lines[-1].startswith("flickr1024:mine: 12 pairs, 0 dam")


def test_the_layout_is_passed_on_and_belongs_to_the_folder() -> None:
    assert pam(*PREPARE, "--layout", "parallel", "--skip-damaged").code == 0
    np.testing.assert_array_equal(np.asarray(Image.open("mine/pairs/a_L.png")), views(SIZE, 0)[1])
    with unchanged():
        refuse(pam(*PREPARE), 2, "mine/pairs was made with another layout: parallel, now auto")
        other = [*PREPARE[:-1], "yes", "--layout", "parallel"]
        refuse(pam(*other), 2, "mine/pairs was made with another infinity: no, now yes")


def test_what_was_done_before_an_interruption_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pam(*PREPARE[:4], "whole", *PREPARE[5:], "--skip-damaged")
    done: list[int] = []

    def interrupted(picture: NDArray[np.generic], layout: str, infinity: str) -> object:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(picture.shape[1])
        return split_stereogram(picture, layout, infinity)

    monkeypatch.setattr(stereogram_pairs, "rectify_stereogram", interrupted)
    assert pam(*PREPARE).code == 130
    assert not Path("mine/pairs").exists()
    done.clear()
    run = pam(*PREPARE, "--skip-damaged")
    assert run.code == 0
    assert "mine/pairs is resumed: 2 of 4 images are done" in run.complaints
    assert done == [2 * SIZE[0]]  # the one that was left; the damaged one is tried again, too
    assert files(Path("mine")) == files(Path("whole"))


def test_two_images_that_would_become_one_pair_are_refused(found: Path) -> None:
    shutil.copy(found / "a.png", found / "trip_b.png")
    with unchanged():
        refuse(pam(*PREPARE), 2, "trip_b.png and trip/b.png would both become trip_b_L.png")


def test_stereograms_in_an_archive_and_none_at_all(found: Path) -> None:
    archive(Path("zips/all.zip"), {"x/c.jps": (found / "a.png").read_bytes()})
    assert pam(*PREPARE[:2], "zips", *PREPARE[3:]).code == 0
    assert names("mine/pairs") == ["all_x_c_L.png", "all_x_c_R.png"]
    Path("empty").mkdir()
    refuse(pam(*PREPARE[:2], "empty", "-o", "none", *PREPARE[5:]), 3, "empty contains no image")
