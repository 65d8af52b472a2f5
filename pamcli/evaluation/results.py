"""Hold the results of an evaluation, and make its tables and facts from what was measured."""

import datetime
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pamcli import __version__
from pamcli.evaluation.loop import MeasuredSet, Method, Task
from pamcli.evaluation.report_charts import CurveChart, Histogram
from pamcli.evaluation.report_images import DrawnPair
from pamcli.evaluation.tables import (
    Column,
    Fact,
    Row,
    Table,
    flatten,
    format_csv,
    format_latex,
    format_markdown,
    format_text,
    format_value,
    make_text_columns,
)
from pamcli.files.paths import escape_line, pluralize, quote

WORST = 5  # number of pairs that a report shows


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation. Every text may contain any character."""

    title: str
    facts: tuple[Fact, ...]  # network, sha256 of the weights, device, data, date, ...
    summary: Table  # all metrics, one row per data set, region or method, and average
    images: Table  # one row per pair
    notes: tuple[str, ...] = ()  # caveats: missing parts of the data, options that change the metrics
    key_figures: tuple[tuple[str, tuple[Fact, ...]], ...] = ()  # the most important metrics of each set
    headline: tuple[Table, ...] = ()  # excerpt of the summary for terminals; empty = the whole summary
    sections: tuple[Table, ...] = ()  # requested tables; a terminal shows only these
    studies: tuple[Table, ...] = ()
    published: Mapping[str, Table] = field(default_factory=dict)  # published rows by data set
    charts: tuple[Histogram | CurveChart, ...] = ()
    worst_pairs: tuple[DrawnPair, ...] = ()  # the pairs with the largest errors, worst first
    numbers: Mapping[str, Any] = field(default_factory=dict)  # JSON content besides facts and notes

    def json(self) -> dict[str, Any]:
        """Return an object for `json.dumps(..., allow_nan=False)`."""
        return {"facts": dict(self.facts), "notes": list(self.notes), **self.numbers}

    def csv(self) -> str:
        """Return the metrics of every image as CSV."""
        return format_csv(self.images)

    def text(self, width: int | None = 80) -> str:
        """Format the tables with the columns that fit into `width` characters, most important first."""
        shown = self.sections or self.headline or (self.summary,)
        tables = (*shown, *self.studies, *self.published.values())
        return "\n\n".join(format_text(table, width) for table in tables if table.rows)

    def markdown(self) -> str:
        """Format the terminal tables in Markdown, with the notes."""
        parts = []
        for table in self._titled_tables:
            parts += [escape_line(f"## {table.title}"), escape_line(table.note), format_markdown(table)]
        parts.append("\n".join(f"- {escape_line(note)}" for note in self.notes))
        return "\n\n".join(filter(None, parts)) + "\n"

    def latex(self) -> str:
        """Format the terminal tables as LaTeX tabulars with booktabs rules."""
        parts = [r"% \usepackage{booktabs}"]
        for table in self._titled_tables:
            title = escape_line(f"% {table.title}. {table.note}".rstrip())
            parts.append(f"{title}\n{format_latex(table)}")
        return "\n\n".join(parts) + "\n"

    def table_csv(self) -> str:
        """Format the first table as CSV with all metrics and full precision."""
        return format_csv((*self.sections, self.summary)[0])

    @property
    def _titled_tables(self) -> tuple[Table, ...]:
        return self.sections or (replace((*self.headline, self.summary)[0], title=self.title),)


def make_page(
    task: Task[Any, Any, Any],
    sets: Sequence[MeasuredSet[Any]],
    methods: Sequence[Method[Any, Any]],
    notes: Iterable[str] = (),
) -> Evaluation:
    """Make the tables, facts and notes that both tasks have; the last of the methods is under test."""
    named = len(methods) > 1 or task.names_single_method
    images: list[Row] = []
    summary: list[Row] = []
    key_figures: list[tuple[str, tuple[Fact, ...]]] = []
    for one in sets:
        for name, total in one.methods.items():
            about = {"data": one.label} | ({"method": name} if named else {})
            summary += [{**about, **row} for row in task.make_rows(total)]
            figures = flatten(total.headline)
            columns = [task.columns[key] for key in task.key_figures]
            values = [(each.heading, format_value(figures[each.key], each.decimals)) for each in columns]
            key_figures.append((", ".join(filter(None, [*about.values(), task.average])), tuple(values)))
        for measured in zip(*(total.images for total in one.methods.values()), strict=True):
            for name, image in zip(one.methods, measured, strict=True):
                about = {"data": one.label} | ({"method": name} if named else {}) | {"name": image.name}
                images.append({**about, "seconds": image.seconds, **flatten(image.figures)})
    headline = []
    for keys in task.headline:
        if rows := [row for row in summary if not row.keys().isdisjoint(keys)]:
            headline.append(_make_table(task, rows, task.row_columns, keys))
    title, facts, numbers = _describe_methods(task, sets, methods)
    return Evaluation(
        title=f"{task.title}{f' x{task.scale}' if task.scale else ''} of {title}",
        facts=(*facts, ("data", ", ".join(_describe_set(one) for one in sets))),
        summary=_make_table(
            task, summary, task.row_columns, dict.fromkeys((*task.headline[0], *task.columns))
        ),
        headline=tuple(headline),
        images=_make_table(task, images, [Column("seconds", "time", "s", 3)], task.columns),
        notes=(*notes, *(note for one in sets for note in _list_notes(one))),
        key_figures=tuple(key_figures),
        worst_pairs=tuple(pair for one in sets for pair in one.worst),
        numbers=numbers,
    )


def _make_table(
    task: Task[Any, Any, Any], rows: Sequence[Row], first: Iterable[Column], keys: Iterable[str]
) -> Table:
    present = {key for row in rows for key in row}
    names = make_text_columns(*filter(rows[0].__contains__, ("data", "name", "method")))
    return Table((*names, *first, *(task.columns[key] for key in keys if key in present)), tuple(rows))


def _describe_methods(
    task: Task[Any, Any, Any], sets: Sequence[MeasuredSet[Any]], methods: Sequence[Method[Any, Any]]
) -> tuple[str, list[Fact], dict[str, Any]]:
    """Return the methods' name in titles; facts about them; and, of a single network, time and memory."""
    described = {each.name: [*facts, *task.facts] for each in methods if (facts := each.facts())}
    method = methods[-1]
    cost: list[Fact] = []
    numbers: dict[str, Any] = {"seconds_per_pair": None, "peak_memory_bytes": None}
    if len(described) > 1:
        numbers, about = {}, []
        title = f"{', '.join(each.name for each in methods[:-1])} and {method.name}"
        plain = ("method", "weights", "device")
        for name, facts in described.items():
            texts = [value if key in plain else f"{key} {value}" for key, value in facts if key != "network"]
            about.append((name, "; ".join(texts)))
    else:
        about = next(iter(described.values()), [("method", f"{method.name} alone")])
        title = about[0][1]
        images = [image for one in sets for image in one.meter.images]
        seconds = [image.seconds for image in images if image.seconds is not None]
        if seconds and method.network is not None:
            mean, compute = sum(seconds) / len(seconds), method.network.compute
            memory = compute.peak_memory()
            where = "on the GPU" if compute.device.type == "cuda" else "in total"
            cost.append(("time", f"{mean:.3f} s per pair, {task.timed}"))
            cost.append(("peak memory", f"{memory / 1e9:.2f} GB {where}"))
            numbers = {"seconds_per_pair": mean, "peak_memory_bytes": memory}
    about.append(("pam", f"{__version__}, Python {platform.python_version()}"))
    about.append(("date", datetime.date.today().isoformat()))
    return title, about + cost, numbers


def _describe_set(one: MeasuredSet[Any]) -> str:
    pairs = len([image for image in one.meter.images if image.figures])
    return f"{quote(one.source.spec.text if one.source.spec else one.label)} ({pluralize(pairs, 'pair')})"


def _list_notes(one: MeasuredSet[Any]) -> Iterator[str]:
    spec = one.source.spec
    yield from (f"{one.label}: {line}" for line in one.notes)
    if spec and spec.info.unverified:
        yield f"{one.label}: unverified layout, {spec.info.unverified}"
    if spec and spec.weight != 1:
        yield f"{one.label}: weight={spec.weight:g} affects training only and is ignored here"
