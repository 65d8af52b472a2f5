"""Run `pam guide`, which shows the included guide in the terminal, and `pam help`."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pamcli.cli.console import Console
from pamcli.cli.groups import make_name_argument
from pamcli.errors import UsageError, did_you_mean
from pamcli.settings.options import argument

PAGES = Path(__file__).parents[1] / "guide"


def page_names() -> list[str]:
    """Return the names of the pages, the start page first."""
    return sorted((path.stem for path in PAGES.glob("*.md")), key=lambda name: (name != "start", name))


def _read(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def _complete_page(incomplete: str) -> list[str]:
    return [name for name in page_names() if name.startswith(incomplete)]


def command(
    console: Console, page: str | None = make_name_argument("the page", _complete_page, "PAGE")
) -> None:
    """Show a page of the guide, or list all pages.

    On a terminal the page is formatted; into a pipe it is written as Markdown.

    $ pam guide
    $ pam guide batches
    """
    if page is None:
        for name in page_names():
            title = _read(name).partition("\n")[0]
            title = title.removeprefix("# ")
            console.answer({"page": name, "title": title}, f"{name:24} {title}")
        return
    if page not in page_names():
        word = re.compile(rf"\b{re.escape(page)}\b", re.IGNORECASE)
        counts = {each: len(word.findall(_read(each))) for each in page_names()}
        found = [each for each in sorted(counts, key=counts.__getitem__, reverse=True)[:3] if counts[each]]
        hint = f"it occurs on the pages {', '.join(found)}; " if found else ""
        if not found or any(name.startswith(page) for name in page_names()):
            hint = did_you_mean(page, page_names())
        hint += "pam guide lists all pages"
        raise UsageError(f"unknown page {page!r}", hint)
    text = _read(page)
    if console.jsonl:
        console.record({"page": page, "text": text})
        return
    if not sys.stdout.isatty():
        console.block(text.rstrip("\n"))
        return
    from rich.console import Console as Terminal
    from rich.markdown import Markdown

    Terminal().print(Markdown(text, hyperlinks=False))


def show_help(
    words: Sequence[str] | None = argument("Name of the command, such as eval disparity.", metavar="COMMAND"),
) -> None:
    """Show the help of a command, as `pam COMMAND --help` does.

    $ pam help
    $ pam help eval disparity
    """
    from pamcli.cli import app

    app([*(words or ()), "--help"], prog_name="pam", standalone_mode=False)
