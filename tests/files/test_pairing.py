"""Pairs from folders, templates and lists, and hints where nothing fits: the suggested words must work."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pamcli.errors import InputError, UsageError
from pamcli.files.pairing import (
    PairPaths,
    iter_pair_list,
    pair_folders,
    pair_templates,
    read_pair_list,
    require_all_paired,
    resolve_packed,
    resolve_pairs,
)
from pamcli.files.paths import join_names, quote


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(*names: str) -> None:
    """Files of these names, each with its name inside."""
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def triples(pairs: tuple[PairPaths, ...]) -> list[tuple[str, str, str]]:
    return [(str(pair.left), str(pair.right), pair.key) for pair in pairs]


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


def write_list(data: bytes) -> Path:
    path = Path("pairs.tsv")
    path.write_bytes(data)
    return path


def test_a_list_with_everything_that_is_fine() -> None:
    make("in/a/1.png", "in/b/2.png", "r 1.png", "r2.png", "in/ü.png")
    found = read_pair_list(
        write_list(
            b"\xef\xbb\xbfin/a/1.png\tr 1.png\r\n\r\n \nin/b/2.png\tr2.png\tout/x.pfm\r\n"
            b"in/\xc3\xbc.png\tr2.png"
        )
    )
    pairs = tuple(found)
    assert len(found) == 3
    assert pairs == (
        PairPaths(Path("in/a/1.png"), Path("r 1.png"), "in/a/1", None, 1),
        PairPaths(Path("in/b/2.png"), Path("r2.png"), "in/b/2", Path("out/x.pfm"), 4),
        PairPaths(Path("in/ü.png"), Path("r2.png"), "in/ü", None, 5),
    )
    assert str(pairs[1]) == "in/b/2.png (line 4)"


def test_file_names_are_bytes(here: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    make_bytes = os.path.join(os.fsencode(here), b"caf\xe9.png")
    try:
        Path(os.fsdecode(make_bytes)).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    make("b.png")
    (pair,) = read_pair_list(write_list(b"caf\xe9.png\tb.png\n"))
    assert pair.left == Path(name)
    assert str(pair).isprintable()


def test_a_list_of_one_column_is_found_out_at_its_first_line() -> None:
    make("a.png")
    for data in (b"\na.png\na.png\n", b"a.png b.png\n"):
        path = write_list(data)
        with pytest.raises(UsageError, match=f"{path}: the list has one column: line"):
            read_pair_list(path)
        with pytest.raises(UsageError, match="one column"):
            next(iter_pair_list(io.BytesIO(data)))


@pytest.mark.parametrize(("mark", "nul"), [(b"\t", False), (b"\0", True)])
def test_a_line_that_does_not_end_is_not_read_to_its_end(mark: bytes, nul: bool) -> None:
    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(size) or b"x" * (size or 0)

        def readline(self, size: int | None = -1) -> bytes:
            assert size is not None
            assert 0 < size < 100_000
            return super().readline() or b"x" * size

    make("a.png", "b.png")
    good = b"a.png" + mark + b"b.png" + (mark if nul else b"\n")
    items = iter_pair_list(Endless(good), nul)
    assert next(items) == (1, PairPaths(Path("a.png"), Path("b.png"), "a", None, 1))
    with pytest.raises(UsageError, match="line 2 of the list has more than"):
        next(items)


LIST = "a list with left<TAB>right per line: `pairs`"


def hint(left: str, right: str) -> str:
    with pytest.raises(UsageError) as error:
        resolve_pairs(left, right)
    assert error.value.hint is not None
    return error.value.hint


@pytest.mark.parametrize(
    ("lefts", "rights", "given"),
    [
        ([f"L/L_{i:04}.png" for i in range(1, 13)], [f"R/R_{i + 812:04}.png" for i in range(1, 13)], "L R"),
        (["l/f9.jpg", "l/f10.jpg"], ["r/g99.png", "r/g100.png"], "l r"),
        (["my l/a 1.png", "my l/a 2.png"], ["r's/b$3.png", "r's/b$4.png"], "my l|r's"),
        (["d/L_1.png", "d/L_2.png"], ["d/R_8.png", "d/R_9.png"], "d/L_{}.png d/R_{}.png"),
    ],
    ids=["counted", "not-padded", "quoted", "templates"],
)
def test_the_line_to_type_lists_the_pairs(lefts: list[str], rights: list[str], given: str) -> None:
    make(*lefts, *rights, "L/times.txt", "r/.hidden.png")
    said = hint(*given.split("|" if "|" in given else " "))
    assert said.startswith("if the cameras count differently: ")
    assert "`pairs` pairs.txt" in said
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here to type the line into")
    line = re.search(r"paste .* >pairs\.txt", said)
    assert line is not None
    subprocess.run([bash, "-c", line[0]], check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    listed = [(str(pair.left), str(pair.right)) for pair in read_pair_list(Path("pairs.txt"))]
    assert listed == list(zip(lefts, rights, strict=True))


def test_templates_where_most_of_the_names_agree() -> None:
    make(*(f"l/L_{i:03}.png" for i in range(20)), *(f"r/{i:03}_right.tif" for i in range(1, 20)))
    said = hint("l", "r")
    assert said == "use templates: 'l/L_{}.png' 'r/{}_right.tif'"
    assert len(resolve_pairs("l/L_{}.png", "r/{}_right.tif").pairs) == 19


def test_no_template_where_few_numbers_are_on_both_sides() -> None:
    make(*(f"l/L_{i:03}.png" for i in range(20)), *(f"r/R_{i:03}.png" for i in range(15, 35)))
    assert hint("l", "r").startswith("if the cameras count differently: ")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["l/a1.png", "l/a2.png", "r/b7.png"], LIST),
        (["l/a1.png", "l/a2.jpg", "r/b7.png", "r/b8.png", "l/a1.txt"], LIST),
        (["l/one a.png", "r/b.png"], "name both images: 'l/one a.png' r/b.png"),
    ],
    ids=["counts", "suffixes", "single"],
)
def test_no_line_where_none_would_be_right(names: list[str], expected: str) -> None:
    make(*names)
    assert expected in hint("l", "r")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Left.PNG", "did you mean left.png?"),
        ("lft.png", "did you mean left.png?"),
        ("my", 'put quotes around names with spaces: "my ..."'),
        ("\u201cmy", "put straight quotes around names with spaces"),
        ("*.png", "use {} for the part"),
        ("other.jpg", None),
    ],
)
def test_a_missing_image_comes_with_what_was_probably_meant(name: str, said: str | None) -> None:
    make("left.png", "my image.png")
    with pytest.raises(InputError, match="no such file") as error:
        resolve_pairs(name, "left.png")
    assert (error.value.hint or "").startswith(said or "")
    assert (error.value.hint is None) == (said is None)


@pytest.mark.parametrize(
    ("ends", "templates"),
    [
        (("_left.png", "_right.png"), "'x/{}_left.png' 'x/{}_right.png'"),
        (("L.jpg", "R.jpg"), "'x/{}L.jpg' 'x/{}R.jpg'"),
        ((" l.tif", " r.tif"), "'x/{} l.tif' 'x/{} r.tif'"),
        (("_Left.png", "_Right.png"), "'x/{}_Left.png' 'x/{}_Right.png'"),
        (("_a.png", "_b.png"), None),
    ],
)
def test_a_folder_with_both_views_is_read_by_the_templates_of_the_hint(
    ends: tuple[str, str], templates: str | None
) -> None:
    make(*(f"x/{number}{end}" for number in (1, 2) for end in ends))
    with pytest.raises(UsageError) as error:
        resolve_packed(["x"], by_suffix=True)
    if templates is None:
        assert (error.value.hint or "").startswith("give a left and a right folder")
        return
    assert error.value.hint == f"use templates: {templates}"
    pairs = resolve_pairs(*(each.strip("'") for each in templates.split("' '"))).pairs
    assert [pair.key for pair in pairs] == ["1", "2"]
