from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pair_files import make, one_line, triples

from pamcli.errors import InputError, PamError, UsageError
from pamcli.files.pairing import (
    PairPaths,
    pair_folders,
    pair_templates,
    require_all_paired,
    resolve_packed,
    resolve_pairs,
)
from pamcli.files.paths import join_names, quote

pytestmark = pytest.mark.usefixtures("here")


# --- one pair -------------------------------------------------------------------------------------------


def test_single_pair() -> None:
    make("a/left.view.png", "b/right.jpg")
    pair = PairPaths(Path("a/left.view.png"), Path("b/right.jpg"), "left.view")
    assert resolve_pairs("a/left.view.png", "b/right.jpg") == ((pair,), (), False)


@pytest.mark.parametrize("name", ["right.png", "left.png/x"])
def test_a_missing_image_is_named(name: str) -> None:
    make("left.png")
    for pair in (("left.png", name), (name, "left.png")):
        with pytest.raises(InputError, match=rf"no such file: {name}"):
            resolve_pairs(*pair)


def test_an_unexpanded_pattern_is_told_about_templates() -> None:
    with pytest.raises(InputError) as error:
        resolve_pairs("lefts/*.png", "rights/*.png")
    assert "{}" in one_line(error)


def test_what_is_no_regular_file(here: Path) -> None:
    make("left.png")
    os.mkfifo(here / "pipe")
    with pytest.raises(InputError, match="pipe is not a regular file"):
        resolve_pairs("left.png", "pipe")


@pytest.mark.parametrize("how", ["same", "dots", "symlink", "hardlink"])
def test_the_same_file_on_both_sides(how: str) -> None:
    make("left.png", "x/y")
    right = {"same": "left.png", "dots": "x/../left.png"}.get(how, "right.png")
    if how == "symlink":
        os.symlink("left.png", "right.png")
    if how == "hardlink":
        os.link("left.png", "right.png")
    with pytest.raises(UsageError, match="the same file") as error:
        resolve_pairs("left.png", right)
    assert f"left.png = {right}" in one_line(error)


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


def test_orphans_are_named_by_the_caller_s_choice() -> None:
    make("l/a.png", "r/a.png", "r/z.png", *(f"l/o{i}.png" for i in range(6)))
    pairing = pair_folders(Path("l"), Path("r"))
    assert [pair.key for pair in pairing.pairs] == ["a"]
    assert len(pairing.unpaired) == 7
    with pytest.raises(UsageError) as error:
        require_all_paired(pairing)
    text = one_line(error)
    assert (
        "7 files without a counterpart: l/o0.png, l/o1.png, l/o2.png, l/o3.png, l/o4.png and 2 more" in text
    )
    assert "`skip_unpaired`" in text


def test_two_images_of_one_stem() -> None:
    make("l/a.png", "l/a.jpg", "r/a.png")
    with pytest.raises(UsageError, match=r"l/a\.jpg and l/a\.png"):
        pair_folders(Path("l"), Path("r"))


def test_a_folder_without_images() -> None:
    make("l/a.png", "l/b.png")
    Path("r").mkdir()
    with pytest.raises(UsageError, match="the folder r is empty"):
        pair_folders(Path("l"), Path("r"))
    make("r/day1/a.png")
    with pytest.raises(UsageError, match=r"templates.*sub-folders"):
        pair_folders(Path("l"), Path("r"))


def test_folders_without_a_common_stem() -> None:
    make("l/a_L.png", "l/b_L.png", "r/a_R.png")
    with pytest.raises(UsageError) as error:
        pair_folders(Path("l"), Path("r"))
    text = one_line(error)
    assert "the image names in l and r do not match, for example a_L and a_R" in text
    assert "{}_L.png" in text


def test_one_folder_twice_and_links_to_the_same_images() -> None:
    make("l/a.png", "r/b.png", "l/b.png")
    with pytest.raises(UsageError, match="both views"):
        pair_folders(Path("l"), Path("l/../l"))
    os.symlink("../l/a.png", "r/a.png")
    with pytest.raises(UsageError, match=r"the same file: l/a\.png = r/a\.png"):
        pair_folders(Path("l"), Path("r"))


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ("l", "b.png", r"l is a folder and b\.png is a file"),
        ("b.png", "l", r"l is a folder and b\.png is a file"),
        ("{}_L.png", "l", r"put \{\} into l too"),
        ("b.png", "{}_R.png", r"put \{\} into b\.png too"),
        ("l", "lost", "no such file: lost"),
    ],
)
def test_mixtures_are_refused(left: str, right: str, said: str) -> None:
    make("l/a.png", "b.png")
    with pytest.raises(PamError, match=said):
        resolve_pairs(left, right)


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


def test_hidden_files_are_found_only_by_their_names() -> None:
    make("s/.l/a.png", "s/.r/a.png")
    with pytest.raises(UsageError):
        pair_templates("s/{}/a.png", "s/{}/b.png")


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


def test_templates_that_match_nothing_say_what_was_looked_for() -> None:
    make("l/a_L.png", "l/b_L.png", "r/c.png")
    with pytest.raises(UsageError) as error:
        pair_templates("l/{}_L.png", "r/{}_R.png")
    assert "l/{}_L.png matches 2 files, r/{}_R.png matches 0 files" in one_line(error)
    with pytest.raises(UsageError, match="1 file, none with the same text"):
        pair_templates("l/{}_L.png", "r/{}.png")
    with pytest.raises(InputError, match="the folder lost/ does not exist"):
        pair_templates("lost/{}.png", "r/{}.png")
    with pytest.raises(UsageError, match="both templates"):
        pair_templates("l/{}.png", "./l/{}.png")


# --- packed images ------------------------------------------------------------------------------------


def test_packed_images_mirror_the_current_folder_or_a_root() -> None:
    make("in/day1/a.jpg", "in/day2/a.png", "in/day2/b.png", "in/day2/deep/c.png", "in/day2/x.txt")
    pairing = resolve_packed(["in/day1/a.jpg", "in/day2"])
    assert [(str(pair.left), pair.right, pair.key) for pair in pairing.pairs] == [
        ("in/day1/a.jpg", None, "in/day1/a"),
        ("in/day2/a.png", None, "in/day2/a"),
        ("in/day2/b.png", None, "in/day2/b"),
    ]
    below = resolve_packed(["in/day1/a.jpg", "in/day2"], root=Path("in/day2"))
    assert {str(pair.left): pair.key for pair in below.pairs} == {
        "in/day1/a.jpg": None,
        "in/day2/a.png": "a",
        "in/day2/b.png": "b",
    }
    assert resolve_packed(["in/day1/a.jpg"]).batch is False
    assert resolve_packed(["in/day2/"]).batch is True
    assert [pair.key for pair in resolve_packed(["in/day2"]).pairs] == ["a", "b"]
    for name in ("in/day2/a10.jpg", "in/day2/a9.jpg"):
        Path(name).touch()
    assert [pair.key for pair in resolve_packed(["in/day2"]).pairs] == ["a", "a9", "a10", "b"]
    assert resolve_packed(["in/day1/a.jpg"]).pairs[0].key == "a"


def test_packed_images_that_are_missing() -> None:
    Path("empty").mkdir()
    with pytest.raises(InputError, match=r"no such file: x\.png"):
        resolve_packed(["x.png"])
    with pytest.raises(UsageError, match="the folder empty is empty"):
        resolve_packed(["empty"])
    with pytest.raises(UsageError, match="no packed image"):
        resolve_packed([])


def test_names_in_messages() -> None:
    assert quote(Path("ü x.png")) == "ü x.png"
    assert quote("a\nb") == "'a\\nb'"
    assert quote("\udce9") == "'\\udce9'"
    assert join_names(str(i) for i in range(5)) == "0, 1, 2, 3, 4"
    assert join_names((str(i) for i in range(12)), "; ") == "0; 1; 2; 3; 4 and 7 more"


def test_only_the_standard_library_is_imported() -> None:
    code = (
        "import sys, pamcli.files.pairing, pamcli.files.outputs\n"
        "print([n for n in ('numpy', 'torch', 'PIL', 'typer') if n in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "[]\n"
