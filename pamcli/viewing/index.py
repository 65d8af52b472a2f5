"""Index of the result pages in a folder, whichever run wrote them."""

import html
import os
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote as quote_url

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.json_files import check_json, parse_stored_json
from pamcli.files.paths import join_names, natural_key, quote
from pamcli.viewing.page import PageEntry, render_template

INDEX_NAME = "index.html"
MOST_THUMBNAILS = 500  # an index of more pages shows names only
_ENTRY_START, _INDEX = '<meta name="pam" ', '<meta name="pam-index"'
_ENTRY = re.compile(_ENTRY_START + r'content="(.*?)">')
_HEAD_BYTES = 1 << 16  # at the start of a page, which contain its entry


def find_index_path(pages: str) -> Path:
    """Return the path of the index for pages in a folder, or named by a template with `{}`."""
    return Path(os.path.dirname(pages[: pages.index("{}")]) if "{}" in pages else pages, INDEX_NAME)


def check_index(path: Path, pages: Iterable[Path] = ()) -> None:
    """Raise UsageError if the index would overwrite a page or a file that is not an index."""
    hint = "choose another folder or other names for the pages"
    if path in pages:
        raise UsageError(f"{quote(path)} would be both a page and the index of the pages", hint)
    if path.exists() and _INDEX not in _read_head(path):
        raise UsageError(f"{quote(path)} already exists and is not an index of pages", hint)


def write_index(path: Path) -> None:
    """Write the index of all pages below the folder of `path`, replacing an earlier one."""
    if not path.parent.is_dir():
        return
    check_index(path)
    index, damaged = render_index(path.parent)
    write_atomically(path, index)
    if damaged:
        hint = "delete the damaged pages and repeat the command with `skip_existing`"
        raise InputError(f"{quote(path)} lacks pages that are damaged: {join_names(damaged)}", hint)


def render_index(folder: Path) -> tuple[bytes, list[Path]]:
    """Return the index of all pages below a folder, in natural order, and the paths of damaged pages."""
    pages, damaged = [], []
    for path in sorted(folder.rglob("*.html"), key=lambda path: natural_key(path.as_posix())):
        head = _read_head(path)
        if _ENTRY_START not in head:
            continue  # not written by pam
        found = _ENTRY.search(head)
        try:
            values = parse_stored_json(html.unescape(found[1] if found else ""), path, "")
            entry = check_json(PageEntry, values, path, "")
        except InputError:
            damaged.append(path)
            continue
        inside = path.relative_to(folder)
        link = quote_url(inside.as_posix(), errors="surrogateescape")
        pages.append({"link": link, "path": inside.with_suffix("").as_posix(), **vars(entry)})
    counts = Counter(page["title"] for page in pages)
    for page in pages:
        if counts[page["title"]] > 1:  # same name in several folders
            page["title"] += f" ({page['path']})"
        if len(pages) > MOST_THUMBNAILS:
            page["picture"] = ""
    return render_template("index.html", pages=pages), damaged


def _read_head(path: Path) -> str:
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as stream:
                return stream.read(_HEAD_BYTES).decode("utf-8", "replace")
    return ""
