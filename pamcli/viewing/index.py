"""The table of contents of a folder of pages, made from the pages themselves, whichever run wrote them."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from pamcli.errors import UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.finding import natural, shown
from pamcli.viewing.page import rendered

INDEX_NAME = "index.html"
MOST_PICTURES = 500
"""Pages above which an index shows names only."""

_ENTRY = re.compile(r'<meta name="pam" content="(.*?)">')
_INDEX = b'<meta name="pam-index"'
_HEAD = 1 << 16
"""Bytes of a page within which its entry lies."""


def index_place(pages: str) -> Path:
    """Where the index of pages goes that are named by a folder or a template with `{}`."""
    return Path(os.path.dirname(pages[: pages.index("{}")]) if "{}" in pages else pages, INDEX_NAME)


def check_index(place: Path, pages: Iterable[Path] = ()) -> None:
    """Raise UsageError where the name of an index belongs to a file that is none, or to one of the pages."""
    hint = "take another folder or other names for the pages"
    if place in pages:
        raise UsageError(f"{shown(place)} would be both a page and the index of the pages", hint)
    if place.exists() and _INDEX not in place.read_bytes()[:_HEAD]:
        raise UsageError(f"{shown(place)} exists and is no index of pages", hint)


def write_index(place: Path) -> None:
    """Write, or renew, the index of what lies below its folder. Raises UsageError, OutputError."""
    if place.parent.is_dir():
        check_index(place)
        write_atomically(place, render_index(place.parent))


def render_index(folder: Path) -> bytes:
    """The index of the pages in a folder and below it, in natural order of their paths."""
    pages = []
    for path in sorted(folder.rglob("*.html"), key=lambda path: natural(path.as_posix())):
        with path.open("rb") as stream:
            found = _ENTRY.search(stream.read(_HEAD).decode("utf-8", "replace"))
        if found:
            entry = json.loads(html.unescape(found[1]))
            link = quote(path.relative_to(folder).as_posix(), errors="surrogateescape")
            pages.append({"link": link, "title": entry["title"], "picture": entry["picture"]})
    if len(pages) > MOST_PICTURES:
        pages = [{**page, "picture": ""} for page in pages]
    return rendered("index.html", pages=pages)
