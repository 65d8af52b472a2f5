"""What both `pam eval` commands share: their data, and how figures are shown and written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pamcli.cli import completion
from pamcli.cli.console import Console
from pamcli.cli.groups import flag, option
from pamcli.cli.options import PRECISION, Compute, Precision, check_new_file
from pamcli.errors import UsageError
from pamcli.files.atomic import write_atomically

if TYPE_CHECKING:
    from pamcli.data.source import Source
    from pamcli.evaluation.results import Evaluation


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is measured."""

    panel: ClassVar[str] = "Input"
    data: list[str] = option(
        "A data set of `pam dataset list`; may be given several times.",
        default=MISSING,
        metavar="NAME[/SPLIT]:PATH[?key=value&...]",
        autocompletion=completion.data,
    )
    predictions: Path | None = option(
        "Measure these files, made by any program, not a network.", metavar="FOLDER"
    )
    allow_missing: bool = flag("Leave out samples that have no prediction.")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Where the figures go."""

    panel: ClassVar[str] = "Output"
    as_json: bool = flag("One JSON object on stdout instead of tables.", "--json")
    per_image: Path | None = option("Write the figures of every picture.", metavar="FILE.csv")
    report: Path | None = option("Write a report that a browser shows, in one file.", metavar="FILE.html")
    compare: bool = flag("Show published rows of the same sets beside it.")
    overwrite: bool = flag("Replace results that exist.")


@dataclass(frozen=True, kw_only=True)
class Exact(Compute):
    """As figures are computed: in fp32, if nothing else is said."""

    precision: Precision = option(PRECISION, default="fp32")


def check_files(shown: Shown) -> None:
    """The files that are to be written, before any work. Raises UsageError, OutputError."""
    for path, suffix, name in ((shown.per_image, ".csv", "--per-image"), (shown.report, ".html", "--report")):
        if path is not None:
            check_new_file(path, suffix, overwrite=shown.overwrite, option=name)


def show(found: Evaluation, shown: Shown, console: Console) -> None:
    """Write the files that were asked for, then print the tables, or everything as JSON."""
    if shown.per_image is not None:
        write_atomically(shown.per_image, found.csv().encode("utf-8", "surrogateescape"))
    if shown.report is not None:
        write_atomically(shown.report, found.report())
    for warning in found.warnings:
        console.warn(warning)
    if shown.as_json:
        console.result(json.dumps(found.json(), allow_nan=False))
        return
    console.block(found.text(shutil.get_terminal_size().columns))
    # On stdout, too: a table that was kept without them cannot be compared with anything.
    console.result("")
    for name, value in found.facts:
        console.result(f"{name}: {value}")
    for note in found.notes:
        console.result(f"note: {note}")


def open_sets(texts: Sequence[str], console: Console) -> list[Source]:
    """Every `--data`, opened. Raises UsageError, InputError."""
    from pamcli.evaluation.results import opened

    sets = opened(texts)
    for text, source in zip(texts, sets, strict=True):
        console.detail(f"{text}: {len(source)} pairs")
    return sets


def one_set(sets: Sequence[Source], option: str) -> Source:
    """The only set. Raises UsageError where there are several."""
    if len(sets) > 1:
        raise UsageError(f"{option} goes with one data set, {len(sets)} are given", "run pam eval for each")
    return sets[0]
