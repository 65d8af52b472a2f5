from __future__ import annotations

import os
from pathlib import Path

import pytest
from pair_files import make, triples

from pamcli.errors import InputError, UsageError
from pamcli.files.pairing import (
    pair_folders,
    pair_templates,
    require_all_paired,
    resolve_pairs,
)
from pamcli.files.paths import join_names, quote

pytestmark = pytest.mark.usefixtures("here")


# --- one pair -------------------------------------------------------------------------------------------


def test_what_is_no_regular_file(here: Path) -> None:
    make("left.png")
    os.mkfifo(here / "pipe")
    with pytest.raises(InputError, match="pipe is not a regular file"):
        resolve_pairs("left.png", "pipe")


# --- folders --------------------------------------------------------------------------------------------


def test_folders_are_paired_by_stem_in_natural_order() -> None:
    make("l/f10.png", "l/f2.PNG", "l/f1.a.jpg", "r/f1.a.png", "r/f2.webp", "r/f10.tif")
    make("l/.hidden.png", "r/.hidden.png", "l/notes.txt", "r/notes.txt", "l/sub/x.png", "r/sub/x.png")
    pairing = resolve_pairs("l", "r/")
    assert pairing.batch
    assert triples(pairing.pairs) == [
        ("l/f1.a.jpg", "r/f1.a.png", "f1.a"),
        ("l/f2.PNG", "r/f2.webp", "f2"),
        ("l/f10.png", "r/f10.tif", "f10"),
    ]
    assert pairing.unpaired == ()
    require_all_paired(pairing)


def test_one_folder_twice_and_links_to_the_same_images() -> None:
    make("l/a.png", "r/b.png", "l/b.png")
    with pytest.raises(UsageError, match="both views"):
        pair_folders(Path("l"), Path("l/../l"))
    os.symlink("../l/a.png", "r/a.png")
    with pytest.raises(UsageError, match=r"the same file: l/a\.png = r/a\.png"):
        pair_folders(Path("l"), Path("r"))


# --- templates ------------------------------------------------------------------------------------------


def test_templates_stand_for_the_same_text_with_slashes() -> None:
    make("day1/a_L.png", "day1/a_R.png", "day1/x/b2_L.png", "day1/x/b2_R.png", "day1/x/b10_L.png")
    make("day1/x/b10_R.png", "day1/readme.txt", "day2/c_L.png", "day1/.x/d_L.png", "day1/.x/d_R.png")
    pairing = resolve_pairs("./day1/{}_L.png", "day1//{}_R.png")
    assert pairing.batch
    assert triples(pairing.pairs) == [
        ("day1/a_L.png", "day1/a_R.png", "a"),
        ("day1/x/b2_L.png", "day1/x/b2_R.png", "x/b2"),
        ("day1/x/b10_L.png", "day1/x/b10_R.png", "x/b10"),
    ]
    assert pairing.unpaired == ()


@pytest.mark.parametrize(
    ("left", "right", "keys"),
    [
        ("{}/left.png", "{}/right.png", ["s1", "s2/deep"]),  # not those of the current folder
        ("HERE/{}/left.png", "HERE/{}/right.png", ["s1", "s2/deep"]),
        ("{}/{}_L.png", "R/{}/{}.png", ["a", "b"]),  # all {} stand for the same text
        ("l/{}", "r/{}", ["a.png"]),  # without a suffix only images
        ("l/{}.raw", "r/{}.raw", ["a"]),
        ("{}/.l/a.png", "{}/.r/a.png", ["s"]),  # hidden, but named
    ],
)
def test_texts_that_templates_stand_for(here: Path, left: str, right: str, keys: list[str]) -> None:
    make("s1/left.png", "s1/right.png", "s2/deep/left.png", "s2/deep/right.png", "left.png", "right.png")
    make("a/a_L.png", "a/b_L.png", "R/a/a.png", "b/b_L.png", "R/b/b.png", "s/.l/a.png", "s/.r/a.png")
    make("l/a.png", "l/a.txt", "r/a.png", "r/a.txt", "l/a.raw", "r/a.raw")
    pairs = pair_templates(left.replace("HERE", str(here)), right.replace("HERE", str(here))).pairs
    assert [pair.key for pair in pairs] == keys


def test_a_right_view_that_looks_like_a_left_one_is_no_orphan() -> None:
    make("a.png", "a_R.png", "b.png")
    pairing = pair_templates("{}.png", "{}_R.png")
    assert triples(pairing.pairs) == [("a.png", "a_R.png", "a")]
    assert pairing.unpaired == (Path("b.png"),)


def test_links_are_followed_but_not_in_circles() -> None:
    make("store/a_L.png", "store/a_R.png")
    Path("in").mkdir()
    os.symlink("../store", "in/link")
    os.symlink("..", "store/up")
    os.symlink("loop", "in/loop")
    pairs = pair_templates("in/{}_L.png", "in/{}_R.png").pairs
    assert "link/a" in [pair.key for pair in pairs]
    assert len(pairs) <= 2


# --- packed images ------------------------------------------------------------------------------------


def test_names_in_messages() -> None:
    assert quote(Path("ü x.png")) == "ü x.png"
    assert quote("a\nb") == "'a\\nb'"
    assert quote("\udce9") == "'\\udce9'"
    assert join_names(str(i) for i in range(5)) == "0, 1, 2, 3, 4"
    assert join_names((str(i) for i in range(12)), "; ") == "0; 1; 2; 3; 4 and 7 more"
