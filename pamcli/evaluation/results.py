"""What an evaluation found: facts, figures in tables, notes; as text, JSON, CSV, and as a report."""

import datetime
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pamcli import __version__
from pamcli.data.open import DataSpec, open_data, parse_data
from pamcli.data.source import Source
from pamcli.errors import UsageError
from pamcli.evaluation.published import Figures, published_rows, published_table
from pamcli.evaluation.report_charts import CurveChart, Histogram
from pamcli.evaluation.report_pictures import ShownPair
from pamcli.evaluation.tables import Table, csv_table, json_row, text_table
from pamcli.files.finding import counted, shown

Fact = tuple[str, str]
"""Name and value."""

WORST = 5
"""Pairs that a report shows."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found. Every text may hold any character."""

    title: str
    facts: tuple[Fact, ...]
    """Name and value: network, sha256 of the weights, device, precision, data, date, and so on."""
    summary: Table
    """A row for each data set, part of the picture or method, and way of averaging: all figures."""
    images: Table
    """A row for each pair."""
    notes: tuple[str, ...] = ()
    """What a reader must know: parts of the data that were missing, options that change the figures."""
    warnings: tuple[str, ...] = ()
    """Notes on figures that are probably not what was meant."""
    key_figures: tuple[tuple[str, tuple[Fact, ...]], ...] = ()
    """Of each data set the few figures to see first, name and value as people read them."""
    headline: tuple[Table, ...] = ()
    """What a terminal shows of the summary; empty: all of it."""
    studies: tuple[Table, ...] = ()
    published: Mapping[str, Table] = field(default_factory=dict)
    """Rows from papers and benchmarks' pages by data set, below one of this evaluation."""
    charts: tuple[Histogram | CurveChart, ...] = ()
    worst_pairs: tuple[ShownPair, ...] = ()
    """The worst pairs, worst first."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """For JSON, beside facts and notes."""

    def json(self) -> dict[str, Any]:
        """For `json.dumps(..., allow_nan=False)`."""
        return {"facts": dict(self.facts), "notes": list(self.notes), **self.numbers}

    def csv(self) -> str:
        """The figures of every picture."""
        return csv_table(self.images)

    def text(self, width: int | None = 80) -> str:
        """Tables of columns that fit into `width` characters, the most telling ones."""
        tables = [*(self.headline or (self.summary,)), *self.studies, *self.published.values()]
        return "\n\n".join(text_table(table, width) for table in tables if table.rows)

    def report(self) -> bytes:
        """An HTML file in UTF-8, without anything outside it."""
        from pamcli.evaluation.report import render_report

        return render_report(self)


def opened(data: Iterable[str | Source]) -> list[Source]:
    """Data sets, opened where they are given as `NAME:PATH`. Raises UsageError, InputError."""
    data = list(data)
    if not data:
        raise UsageError("no data set is given", "give NAME:PATH; pam dataset list shows the names")
    # All are understood before any is opened.
    specs = [parse_data(each) if isinstance(each, str) else each for each in data]
    return [open_data(each) if isinstance(each, DataSpec) else each for each in specs]


def facts_of(
    method: list[Fact], more: list[Fact], sets: Sequence[Source], counts: Sequence[int]
) -> list[Fact]:
    """What was measured, with what, when, on which data. more: of the run. counts: pairs of each set."""
    today = datetime.datetime.now().astimezone().strftime("%Y-%m-%d")
    texts = [shown(source.spec.text if source.spec else source.label) for source in sets]
    named = [f"{text} ({counted(count, 'pair')})" for text, count in zip(texts, counts, strict=True)]
    version = f"{__version__}, Python {platform.python_version()}"
    return [*method, ("pam", version), ("date", today), *more, ("data", ", ".join(named))]


def set_notes(sets: Sequence[Source], notes: Sequence[Sequence[str]]) -> list[str]:
    """`notes` of each set, layouts that are unverified, and weights, which are for training."""
    found = []
    for source, lines in zip(sets, notes, strict=True):
        found += [f"{source.label}: {line}" for line in lines]
        if source.spec and source.spec.info.unverified:
            found.append(f"{source.label}: unverified layout, {source.spec.info.unverified}")
        if source.spec and source.spec.weight != 1:
            weight = f"weight={source.spec.weight:g}"
            found.append(f"{source.label}: {weight} is about training and changes nothing here")
    return found


def with_published(
    found: Evaluation, sets: Sequence[Source], own: Sequence[Figures], method: str, scale: int | None = None
) -> Evaluation:
    """With the published rows of every set that has some, below this evaluation's own.

    own: figures of each set by region or protocol. scale: of super-resolution.
    """
    tables, rows, notes = {}, {}, [*found.notes]
    figures = {source.spec.info.name: each for source, each in zip(sets, own, strict=True) if source.spec}
    for name, each in figures.items():
        if published := published_rows(name, scale):
            tables[name] = published_table(published, name, each, method)
            rows[name] = [json_row(row) for row in tables[name].rows[1:]]
        else:
            notes.append(f"no published rows are known for {name}")
    numbers = {**found.numbers, "published": rows}
    return replace(found, published=tables, notes=tuple(notes), numbers=numbers)


def cost_of(
    seconds: Sequence[float | None], network: Any | None, what: str
) -> tuple[list[Fact], dict[str, Any]]:
    """What running a network took, for people and for JSON: seconds a pair, and the peak of memory in bytes.

    seconds: of each pair. what: is included in them. Memory is the GPU's, or else that of the whole process.
    """
    known = [each for each in seconds if each is not None]
    if not known or network is None:
        return [], {"seconds_per_pair": None, "peak_memory_bytes": None}
    mean, memory = sum(known) / len(known), network.compute.peak_memory()
    where = "on the GPU" if network.compute.describe()["device"].startswith("cuda") else "in all"
    facts = [("time", f"{mean:.3f} s a pair, {what}"), ("peak memory", f"{memory / 1e9:.2f} GB {where}")]
    return facts, {"seconds_per_pair": mean, "peak_memory_bytes": memory}
