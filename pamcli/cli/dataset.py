"""pam dataset: what data sets pam reads, whether one on disk is whole and sound, and what it looks like.

`prepare-flickr1024` and `stats` have files of their own.
"""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from pamcli.cli import completion, prepare, statistics
from pamcli.cli.console import Console
from pamcli.cli.groups import argument, command, flag, group, option
from pamcli.cli.options import Quiet, Text, check_new_file
from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.finding import counted, listed, shown
from pamcli.files.suffixes import PICTURE_OUTPUT_SUFFIXES

if TYPE_CHECKING:
    from pamcli.data.open import DataSpec
    from pamcli.data.source import Source, SourceInfo
    from pamcli.data.verify import Finding

app = group("Data sets: list, verify, preview, measure, prepare.")

FORM = "NAME[/SPLIT]:PATH[?key=value&...]"
DATA = argument(
    f"{FORM}, with the names, splits and keys of `pam dataset list`.",
    default=MISSING,
    metavar="DATA",
    autocompletion=completion.data,
)

_WIDTH = 100  # characters, where a line of `list` may be broken
_MOST_ROWS = 200  # of a contact sheet, which is held in memory: about 0.3 GB


@command(app, "list", "What can be read.")
def list_sources(
    text: Text,
    name: str | None = argument("One data set; by default all.", metavar="NAME", show_default=False),
) -> None:
    """Show what can be read: names, splits, keys, expected tree.

    $ pam dataset list
    $ pam dataset list kitti2015
    """
    from pamcli.data.open import unknown
    from pamcli.data.sources import COMMON_KEYS, SOURCES

    console = Console()
    if name is not None and name not in SOURCES:
        raise unknown("data set", name, list(SOURCES))
    rows = list(SOURCES.values()) if name is None else [SOURCES[name]]
    for row in rows:
        if text.jsonl:
            console.record(_record(row))
        else:
            for line in _description(row):
                console.result(line)
            console.result("")
    if not text.jsonl:
        keys = ", ".join(f"{key} ({meaning})" for key, meaning in COMMON_KEYS)
        console.result(f"Given as {FORM}; the first split is the default.")
        console.result(f"Keys of every data set: {keys}.")


@command(app, "verify", "Whether data sets are whole and sound.")
def verify(text: Text, messages: Quiet, data: list[str] = DATA) -> None:
    """Check that data sets are whole and sound.

    Every file is read, and every truth is tried on its pictures.

    A line of stdout for whatever is wrong, and a last one with the counts. Damage (a view without the other,
    a file that cannot be read, sizes that differ, a truth that does not warp the right picture onto the left
    one) ends with 3; what is merely not there is reported and ends with 0.

    $ pam dataset verify kitti2015:kitti 'pairs:mine?first=20'
    $ pam dataset verify flickr1024:data/flickr1024
    """
    from pamcli.data.open import open_data, parse_data

    console = messages.console()
    specs = [parse_data(each) for each in data]
    # All are opened before any is read: reading takes long, and a mistyped path is reported at once.
    sources = [open_data(spec) for spec in specs]
    from pamcli.data.verify import verify as findings_of

    damaged = False
    with console.progress("verifying", sum(map(len, sources))) as bar:
        for spec, source in zip(specs, sources, strict=True):
            findings = findings_of(source, lambda done: bar.advance())
            damaged |= any(finding.severity == "damage" for finding in findings)
            _report(spec, source, findings, text.jsonl, console)
    if damaged:
        raise typer.Exit(InputError.exit_code)


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The contact sheet."""

    panel: ClassVar[str] = "Output"
    output: Path = option("The picture: .png, .jpg, .webp, .tif.", "-o", default=MISSING, metavar="FILE")
    count: int = option(
        "Samples, spread evenly over the set (or its ?first=N).", default=8, min=1, max=_MOST_ROWS
    )
    overwrite: bool = flag("Replace results that exist.")


@command(app, "preview", "A contact sheet.")
def preview(sheet: Sheet, messages: Quiet, data: str = DATA) -> None:
    """Draw a contact sheet of a data set.

    A row a sample, with left and right picture, disparity, and occlusion.

    Occlusion is white where both views see a pixel, black where the left one alone does, grey where that is
    not known. A cell stays dark where the data set does not have the part.

    $ pam dataset preview kitti2015:kitti -o sheet.png --count 12
    $ pam dataset preview flickr1024:data/flickr1024 -o sheet.png
    """
    from pamcli.data.open import open_data, parse_data

    console, output = messages.console(), sheet.output
    check_new_file(output, *PICTURE_OUTPUT_SUFFIXES, overwrite=sheet.overwrite)
    spec = parse_data(data)
    source = open_data(spec)
    if _is_part(output, source):
        raise UsageError(f"{shown(output)} belongs to the data set", "give the sheet another name")
    if not spec.info.verified:
        console.inform(f"{spec.text}: layout unverified: {spec.info.unverified}")
    for line in source.absent:
        console.inform(f"{spec.text}: {line}")
    if source.unpaired:
        console.warn(f"{spec.text}: {listed(source.unpaired, '; ')}")
    from pamcli.data.preview import contact_sheet
    from pamcli.imaging.images import Picture, encode_picture

    pixels = contact_sheet(source, statistics.spread(len(source), sheet.count))
    write_atomically(output, encode_picture(Picture(pixels), output.suffix, name=str(output)))
    console.path(output)


command(app, "prepare-flickr1024", "Training patches for super-resolution.")(prepare.command)
command(app, "stats", "Sizes, disparities, sharpness, duplicates.")(statistics.command)


def _record(row: SourceInfo) -> dict[str, Any]:
    from pamcli.data.sources import COMMON_KEYS

    common = [{"name": name, "meaning": meaning} for name, meaning in COMMON_KEYS]
    return {
        "name": row.name,
        "about": row.about,
        "splits": row.splits,
        "keys": [*map(asdict, row.keys), *({**each, "choices": None, "default": None} for each in common)],
        "tree": row.tree,
        "unverified": row.unverified or None,
    }


def _description(row: SourceInfo) -> Iterator[str]:
    yield f"{row.name}: {row.about}"
    yield from _entry("splits", ", ".join(row.splits))
    for key in row.keys:
        choices = ", ".join(f"{each} (default)" if each == key.default else each for each in key.choices)
        choices += "" if key.default else "; default: whatever is there"
        yield from _entry(f"?{key.name}=", f"{key.meaning}: {choices}")
    for index, line in enumerate(row.tree):
        yield f"  {'' if index else 'tree':12}{line}"
    if row.unverified:
        yield from _entry("unverified", row.unverified)


def _entry(word: str, text: str) -> Iterator[str]:
    for index, line in enumerate(textwrap.wrap(text, _WIDTH - 14, break_on_hyphens=False)):
        yield f"  {'' if index else word:12}{line}"


def _report(spec: DataSpec, source: Source, findings: list[Finding], jsonl: bool, console: Console) -> None:
    """A line for each finding, and one with the counts."""
    counts = Counter({"damage": 0, "incomplete": 0})
    for finding in findings:
        counts[finding.severity] += 1
        if jsonl:
            facts = {**asdict(finding), "sample": finding.sample or None}
            console.record({"kind": "finding", "data": spec.text, **facts})
        else:
            sample = f"{finding.sample}: " if finding.sample else ""
            console.result(f"{spec.text}: {sample}{finding.severity}: {finding.message}")
    if jsonl:
        place = {"name": spec.info.name, "split": spec.split, "path": spec.path, "pairs": len(source)}
        unverified = {"unverified": spec.info.unverified or None}
        console.record({"kind": "summary", "data": spec.text, **place, **counts, **unverified})
        return
    found = ", ".join(f"{count} {severity}" for severity, count in counts.items())
    unsure = "" if spec.info.verified else f"; layout unverified: {spec.info.unverified}"
    console.result(f"{spec.text}: {counted(len(source), 'pair')}, {found}{unsure}")


def _is_part(output: Path, source: Source) -> bool:
    """Whether the file, if there is one, is one of those that the data set consists of."""
    if not os.path.exists(output):
        return False
    there = os.stat(output)
    return any(
        os.path.samestat(os.stat(path), there)
        for files in source.files
        for path in (files.left, files.right, *files.parts.values())
        if os.path.exists(path)
    )
