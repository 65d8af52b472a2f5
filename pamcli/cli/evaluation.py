"""What both `pam eval` commands share: their data, and how figures are shown and written."""

from __future__ import annotations

import datetime
import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from pamcli import __version__
from pamcli.cli.console import Console, one_line
from pamcli.cli.options import Compute, Overwrite, Precision
from pamcli.errors import UsageError
from pamcli.files.atomic import check_writable, write_atomically
from pamcli.files.finding import listed, shown

if TYPE_CHECKING:
    from pamcli.data.open import DataSpec
    from pamcli.data.source import Source
    from pamcli.evaluation.published import PublishedRow
    from pamcli.evaluation.report import Published, ReportData
    from pamcli.evaluation.tables import Table


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is measured."""

    panel: ClassVar[str] = "Input"
    data: Annotated[
        list[str],
        typer.Option(
            "--data",
            metavar="NAME[/SPLIT]:PATH[?key=value&...]",
            help="A data set of `pam dataset list`; may be given several times.",
        ),
    ]
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            metavar="FOLDER",
            help="Measure these files, made by any program, not a network.",
        ),
    ] = None
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave out samples that have no prediction.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Where the figures go."""

    panel: ClassVar[str] = "Output"
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout instead of tables.")] = (
        False
    )
    per_image: Annotated[
        Path | None,
        typer.Option("--per-image", metavar="FILE.csv", help="Write the figures of every picture."),
    ] = None
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE.html", help="Write a report that a browser shows, in one file."
        ),
    ] = None
    compare: Annotated[
        bool, typer.Option("--compare", help="Show published rows of the same sets beside it.")
    ] = False
    overwrite: Overwrite = False


@dataclass(frozen=True, kw_only=True)
class Exact(Compute):
    """As figures are computed: in fp32, if nothing else is said."""

    precision: Precision = "fp32"


WORST = 5
"""Pairs that a report shows."""


@dataclass(frozen=True)
class Results:
    """Where the figures go, and what stands above them."""

    console: Console
    json: bool
    per_image: Path | None
    report: Path | None

    @classmethod
    def plan(cls, console: Console, shown: Shown, more: Sequence[Path] = ()) -> Results:
        """Check the files before any work. Raises UsageError, OutputError."""
        per_image, report = shown.per_image, shown.report
        for path, suffix, option in ((per_image, ".csv", "--per-image"), (report, ".html", "--report")):
            if path is not None and path.suffix.lower() != suffix:
                raise UsageError(f"{option} {path} must end in {suffix}")
        files = [path for path in (per_image, report, *more) if path is not None]
        existing = [path for path in files if path.exists()]
        if existing and not shown.overwrite:
            raise UsageError(f"{listed(existing)} exists already", "--overwrite replaces it")
        for path in files:
            check_writable(path)
        return cls(console, shown.as_json, per_image, report)

    def show(
        self,
        tables: Sequence[Table],
        images: Table,
        report: ReportData,
        numbers: Mapping[str, Any],
    ) -> None:
        """Write the files that were asked for, then print the tables, or `numbers` as JSON."""
        from pamcli.evaluation.report import render_report
        from pamcli.evaluation.tables import csv_table, text_table

        if self.per_image is not None:
            write_atomically(self.per_image, csv_table(images).encode("utf-8", "surrogateescape"))
        if self.report is not None:
            write_atomically(self.report, render_report(report))
        if self.json:
            facts = dict(report.facts)
            text = json.dumps({"facts": facts, "notes": list(report.notes), **numbers}, allow_nan=False)
            self.console.result(text)
            return
        for index, table in enumerate(tables):
            self.console.result(("\n" if index else "") + text_table(table))
        # On stdout, too: a table that was kept without them cannot be compared with anything.
        self.console.result("")
        for name, value in report.facts:
            self.console.result(one_line(f"{name}: {value}"))
        for note in report.notes:
            self.console.result(one_line(f"note: {note}"))


def open_sets(texts: Sequence[str], console: Console) -> list[tuple[DataSpec, Source]]:
    """Every `--data`, opened. Raises UsageError, InputError."""
    from pamcli.data.open import open_data, parse_data

    if not texts:
        raise UsageError("no data set is given", "--data NAME:PATH; pam dataset list shows the names")
    specs = [parse_data(text) for text in texts]
    opened = []
    for spec in specs:
        source = open_data(spec)
        console.detail(f"{spec.text}: {len(source)} pairs")
        opened.append((spec, source))
    return opened


def set_notes(sets: Sequence[tuple[DataSpec, Source]], notes: Sequence[Sequence[str]]) -> list[str]:
    """What a reader of the figures must know: `notes` of each set, and layouts that are unverified."""
    found = []
    for (spec, _), lines in zip(sets, notes, strict=True):
        found += [f"{spec.label}: {line}" for line in lines]
        if spec.info.unverified:
            found.append(f"{spec.label}: unverified layout, {spec.info.unverified}")
        if spec.weight != 1:
            found.append(f"{spec.label}: weight={spec.weight:g} is about training and changes nothing here")
    return found


def data_fact(sets: Sequence[tuple[DataSpec, Source]], counts: Sequence[int]) -> tuple[str, str]:
    """Every set as it was given, with the number of pairs measured."""
    named = [
        f"{shown(spec.text)} ({count} pair{'' if count == 1 else 's'})"
        for (spec, _), count in zip(sets, counts, strict=True)
    ]
    return "data", ", ".join(named)


def published(
    sets: Sequence[tuple[DataSpec, Source]], find: Callable[[str], Sequence[PublishedRow]]
) -> tuple[dict[str, Published], list[str]]:
    """Published rows of every set that has some, by its name, as a report has them; notes on the others.

    find: rows by the name of a set.
    """
    from pamcli.evaluation.published import published_table
    from pamcli.evaluation.report import Published

    found, notes = {}, []
    for name in dict.fromkeys(spec.info.name for spec, _ in sets):
        if rows := find(name):
            table = published_table(rows, name)
            found[name] = Published(table, "Copied from the sources named, not measured here.")
        else:
            notes.append(f"no published rows are known for {name}")
    return found, notes


def published_numbers(found: Mapping[str, Published]) -> dict[str, Any]:
    """Published rows for JSON, by the name of the set."""
    from pamcli.evaluation.tables import json_value

    return {
        name: [{key: json_value(value) for key, value in row.items()} for row in each.table.rows]
        for name, each in found.items()
    }


def run_facts(
    network: Any | None, weights: str, path: Path | None, folder: Path | None
) -> list[tuple[str, str]]:
    """Name and value of what was measured with what."""
    if network is None:
        source = [("predictions", shown(folder))] if folder is not None else [("method", "bicubic alone")]
    else:
        from pamcli.registry.catalog import sha256

        assert path is not None
        compute = network.compute.describe()
        source = [
            ("network", weights),
            ("weights", f"{path.name}, sha256 {sha256(path)}"),
            ("device", f"{compute['device']}, {compute['precision']}"),
        ]
    today = datetime.datetime.now().astimezone().strftime("%Y-%m-%d")
    return [*source, ("pam", f"{__version__}, Python {platform.python_version()}"), ("date", today)]


@dataclass(frozen=True)
class Cost:
    """What running a network took."""

    seconds: float | None = None
    """For a pair, the mean; None = no network was run."""
    memory: int | None = None
    """Bytes at the peak: on the GPU, or else of the whole process; None = not known."""
    on_gpu: bool = False

    @classmethod
    def of(cls, seconds: Sequence[float | None], network: Any | None) -> Cost:
        """From the times of the pairs."""
        known = [each for each in seconds if each is not None]
        if not known or network is None:
            return cls()
        mean = sum(known) / len(known)
        if (on_gpu := network.compute.peak_memory()) is not None:
            return cls(mean, on_gpu, True)
        if sys.platform == "win32":
            return cls(mean)
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return cls(mean, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)

    def facts(self, what: str) -> list[tuple[str, str]]:
        """For people. what: is included in the time."""
        found = []
        if self.seconds is not None:
            found.append(("time", f"{self.seconds:.3f} s a pair, {what}"))
        if self.memory is not None:
            found.append(
                ("peak memory", f"{self.memory / 1e9:.2f} GB {'on the GPU' if self.on_gpu else 'in all'}")
            )
        return found

    def numbers(self) -> dict[str, Any]:
        """For JSON."""
        return {"seconds_per_pair": self.seconds, "peak_memory_bytes": self.memory}


def left_out_note(missing: Sequence[str]) -> list[str]:
    """Says which samples --allow-missing left out."""
    if not missing:
        return []
    return [f"{len(missing)} without a prediction, left out: {listed(missing)}"]


def one_set(sets: Sequence[tuple[DataSpec, Source]], option: str) -> tuple[DataSpec, Source]:
    """The only set. Raises UsageError where there are several."""
    if len(sets) > 1:
        raise UsageError(f"{option} goes with one data set, {len(sets)} are given", "run pam eval for each")
    return sets[0]
