"""Tests of the hints for images that cannot be paired by name: the suggested words must work."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pamcli.errors import InputError, UsageError
from pamcli.files.pairing import read_pair_list, resolve_packed, resolve_pairs

LIST = "a list with left<TAB>right per line: `pairs`"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)


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
