"""The table of contents of a folder of pages."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import numpy as np
import pytest

from pamcli.errors import InputError, UsageError
from pamcli.viewing import index
from pamcli.viewing.index import check_index, render_index, write_index
from pamcli.viewing.page import render_page

NASTY = 'a "b" <c> #1 ü%41'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    disparity = np.ones((8, 12), np.float32)
    left = np.zeros((8, 12, 3), np.uint8)
    for name in ("frame10", "frame9", f"sub/{NASTY}"):
        path = tmp_path / f"{name}.html"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(render_page(f"title of {name}", left, disparity))
    (tmp_path / "other.html").write_text("<html>somebody else's</html>")
    return tmp_path


def test_it_lists_the_pages_and_nothing_else(folder: Path) -> None:
    write_index(folder / "index.html")
    write_index(folder / "index.html")  # its own place is no page
    text = (folder / "index.html").read_text()
    entry = r'<li><a href="(.*?)"><img alt="" src="data:image/jpeg;base64,[\w+/=]+">(.*?)</a>'
    links = re.findall(entry, text)
    assert [title for _, title in links][:2] == ["title of frame9", "title of frame10"]
    assert "&lt;c&gt;" in links[2][1]
    nasty = "sub/a%20%22b%22%20%3Cc%3E%20%231%20%C3%BC%2541.html"
    assert [link for link, _ in links] == ["frame9.html", "frame10.html", nasty]


def test_pages_of_one_title_are_told_apart(folder: Path) -> None:
    for path in ("frame9.html", "sub/twin.html"):
        (folder / path).write_bytes(render_page("left.png", np.zeros((8, 12, 3), np.uint8), np.ones((8, 12))))
    text = render_index(folder)[0].decode()
    titles = re.findall(r"/>?[^<>]*>([^<>]+)</a>", text)
    assert "left.png (frame9)" in titles
    assert "left.png (sub/twin)" in titles
    assert "title of frame10" in titles


def test_many_pages_have_no_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MOST_THUMBNAILS", 2)
    page, _ = render_index(folder)
    assert b"<img" not in page
    assert b"title of frame9" in page


def test_a_file_of_its_name_that_is_no_index_stays(folder: Path) -> None:
    place = folder / "index.html"
    place.write_bytes((folder / "frame9.html").read_bytes())
    with pytest.raises(UsageError, match="not an index of pages"):
        write_index(place)
    assert place.read_bytes() == (folder / "frame9.html").read_bytes()
    with pytest.raises(UsageError, match="both a page and the index"):
        check_index(folder / "new" / "index.html", [folder / "new" / "index.html"])


def test_what_is_no_page_is_left_out(folder: Path) -> None:
    usual = render_index(folder)
    assert usual[1] == []
    (folder / "folder.html").mkdir()
    os.mkfifo(folder / "pipe.html")
    for name, target in (("endless.html", "/dev/zero"), ("loop.html", "loop.html")):
        os.symlink(target, folder / name)
    assert render_index(folder) == usual


@pytest.mark.parametrize(
    "entry",
    ["{", "null", "[" * 50_000, '{"title": 1, "picture": ""}', '{"title": "a", "picture": "<b>"}'],
    ids=lambda entry: entry[:30],
)
def test_a_damaged_page_is_named_and_the_others_are_listed(folder: Path, entry: str) -> None:
    write_index(folder / "index.html")
    usual = (folder / "index.html").read_bytes()
    (folder / "odd.html").write_text(f'<meta name="pam" content="{html.escape(entry)}">')
    with pytest.raises(InputError, match=r"index\.html.* damaged: .*odd\.html \(delete"):
        write_index(folder / "index.html")
    assert (folder / "index.html").read_bytes() == usual


def test_an_index_that_is_no_file_stays(folder: Path) -> None:
    os.mkfifo(folder / "index.html")
    with pytest.raises(UsageError, match="not an index of pages"):
        write_index(folder / "index.html")
