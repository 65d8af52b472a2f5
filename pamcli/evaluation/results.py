"""Hold the results of an evaluation: metrics per image and data set, and tables as text, JSON, CSV, LaTeX."""

import csv
import io
import math
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pamcli.data.open import parse_data
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.report_charts import CurveChart, Histogram
from pamcli.evaluation.report_images import DrawnPair
from pamcli.files.outputs import check_extra_output, check_new_file
from pamcli.files.paths import escape_csv, escape_line, quote
from pamcli.registry.catalog import check_network_files

Figures = Mapping[str, Mapping[str, float]]
"""Metrics: region ("noc", "both") -> metric ("d1", "psnr") -> value. Regions without pixels are absent; NaN
marks a value that could not be computed."""

Value = str | int | float | np.integer | np.floating | None  # the values that a cell can hold

Plain = str | int | float | None  # the value of a cell in JSON

Row = Mapping[str, Value]

Fact = tuple[str, str]  # name and value

WORST = 5  # number of pairs that a report shows


class ImageFigures(NamedTuple):
    """The metrics of one pair; empty if none of its pixels was counted."""

    name: str
    figures: Figures
    seconds: float | None = None  # run time of the method, s, if known
    memory: int | None = None  # peak memory of the method beyond what was in use before, bytes, if known


class Meter(ABC):
    """The metrics of a method on a data set, measured one pair after the other."""

    weights: Mapping[str, float] = {}
    """Weights of pairs in the means, by the last component of their names; 1 for all others."""

    def __init__(self) -> None:
        self.images: list[ImageFigures] = []

    @abstractmethod
    def add(self, case: Any, answer: Any) -> ImageFigures:
        """Measure one answer; raise InputError that names the sample."""

    @cached_property
    def image_means(self) -> Figures:
        """Mean of each metric over the pairs that have it; NaN if any of its values is NaN."""
        values: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
        for image in self.images:
            weight = self.weights.get(image.name.rpartition("/")[2], 1.0)
            for part, figures in image.figures.items():
                for metric, value in figures.items():
                    found, weights = values.setdefault((part, metric), ([], []))
                    found.append(value)
                    weights.append(weight)
        if not values:
            raise InputError("no pair was measured", "check that the data set has ground truth")
        means: dict[str, dict[str, float]] = {}
        for (part, metric), (found, weights) in values.items():
            means.setdefault(part, {})[metric] = float(np.average(found, weights=weights))
        return means

    @property
    def headline(self) -> Figures:
        """The average that is reported first."""
        return self.image_means

    @property
    def notes(self) -> list[str]:
        """Circumstances that change the metrics, one clause each."""
        return []

    @cached_property
    def image_counts(self) -> Counter[str]:
        """Number of pairs that have a region: "all", "noc", "left", ..."""
        return Counter(region for image in self.images for region in image.figures)


def flatten(figures: Figures) -> dict[str, float]:
    """Flatten metrics to column names: "d1" for all pixels, "noc d1", "both psnr"."""
    return {
        metric if part == "all" else f"{part} {metric}": value
        for part, values in figures.items()
        for metric, value in values.items()
    }


@dataclass(frozen=True)
class Column:
    """A table column and the format of its values."""

    key: str  # key in rows, CSV and JSON: stable, for programs
    title: str  # heading for people
    unit: str = ""  # "px", "%", "dB" or "s"; empty for plain numbers and text
    decimals: int = 2  # decimals shown to people; files for programs have full precision
    text: bool = False  # contains words, aligned left
    note: str = ""  # definition of the metric, one sentence

    @property
    def heading(self) -> str:
        """Title with unit: "D1 (%)"."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def make_text_columns(*names: str) -> list[Column]:
    """Return text columns titled like their keys."""
    return [Column(name, name, text=True) for name in names]


@dataclass(frozen=True)
class Table:
    """A table of metrics; rows may lack some of the columns."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""
    note: str = ""  # description of the contents, one sentence

    def texts(self, column: Column) -> list[str]:
        """Return the heading and every cell of a column, for people."""
        cells = [format_value(row.get(column.key), column.decimals) for row in self.rows]
        return [escape_line(column.heading), *cells]

    def lines(self) -> list[tuple[str, ...]]:
        """Return the headings and the cells of every row, for people."""
        return [*zip(*map(self.texts, self.columns), strict=True)]


def format_value(value: Value, decimals: int) -> str:
    """Format a value with the given number of decimals; "-" if it could not be computed."""
    if isinstance(value, str):
        return quote(value)
    if value is None or math.isnan(value):
        return "-"
    text = f"{float(value):.{decimals}f}"
    # Avoid "-0.00" for tiny negative values.
    return text.lstrip("-") if float(text) == 0 else text


def format_text(table: Table, width: int | None = None) -> str:
    """Format a table in aligned columns of at most `width`: shared words move above, then columns drop."""
    padded: dict[Column, list[str]] = {}
    for column in table.columns:
        texts = table.texts(column)
        pad, longest = str.ljust if column.text else str.rjust, max(map(len, texts))
        padded[column] = [pad(text, longest) for text in texts]

    def lines() -> list[str]:
        return ["  ".join(cells).rstrip() for cells in zip(*padded.values(), strict=True)]

    above = []
    for column in table.columns:
        countable = column.text or not column.decimals
        shared = countable and len({row.get(column.key) for row in table.rows}) == 1
        if width and shared and len(lines()[0]) > width:
            del padded[column]
            above.append(f"{column.title} {format_value(table.rows[0].get(column.key), column.decimals)}")
    while width and len(padded) > 2 and max(map(len, lines())) > width:
        padded.popitem()
    return "\n".join([", ".join(above)] * bool(above) + lines())


def format_markdown(table: Table) -> str:
    """Format a table in Markdown with numbers aligned right."""
    head, *rows = [
        "| " + " | ".join(each.replace("|", "\\|").replace("<", "&lt;") for each in line) + " |"
        for line in table.lines()
    ]
    rule = "| " + " | ".join("---" if column.text else "---:" for column in table.columns) + " |"
    return "\n".join((head, rule, *rows))


_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {sign: f"${sign}$" for sign in "<>|"}
)


def format_latex(table: Table) -> str:
    r"""Format a table as a LaTeX tabular with booktabs rules (\usepackage{booktabs})."""

    def line(cells: Sequence[str]) -> str:
        texts = [cell.translate(_LATEX) for cell in cells]
        if texts[0][:1] in ("[", "*", "("):  # LaTeX would read these as an option of the preceding line break
            texts[0] = f"{{{texts[0][0]}}}{texts[0][1:]}"
        return " & ".join(texts) + r" \\"

    head, *rows = map(line, table.lines())
    kinds = "".join("l" if column.text else "r" for column in table.columns)
    begin = rf"\begin{{tabular}}{{{kinds}}}"
    return "\n".join((begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"))


def format_csv(table: Table) -> str:
    """Format a table as CSV (RFC 4180) with keys as header and full precision, safe for spreadsheets."""
    out = io.StringIO(newline="")
    # DictWriter's default dialect, "excel", conforms to RFC 4180.
    writer = csv.DictWriter(out, [column.key for column in table.columns])
    writer.writerow({column.key: escape_csv(column.key) for column in table.columns})
    names = {column.key for column in table.columns if column.text and not column.unit}
    for row in to_json_rows(table):
        writer.writerow({key: escape_csv(str(it)) if key in names and it else it for key, it in row.items()})
    return out.getvalue()


def to_json_rows(table: Table) -> list[dict[str, Plain]]:
    """Return the rows for `json.dumps(..., allow_nan=False)`; every row has every column."""
    return [to_json_row({column.key: row.get(column.key) for column in table.columns}) for row in table.rows]


def to_json_row(row: Row) -> dict[str, Plain]:
    """Convert a row for JSON, see `to_json_value`."""
    return {key: to_json_value(value) for key, value in row.items()}


def to_json_value(value: Value) -> Plain:
    """Convert a value for JSON: NaN to None, infinity to "inf" or "-inf", NumPy numbers to Python's."""
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    return float(value) if math.isfinite(value) else str(float(value))


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
        tables = [
            *(self.sections or self.headline or (self.summary,)),
            *self.studies,
            *self.published.values(),
        ]
        return "\n\n".join(format_text(table, width) for table in tables if table.rows)

    def markdown(self) -> str:
        """Format the terminal tables in Markdown, with the notes."""
        parts = [
            text
            for table in self._get_titled_tables()
            for text in (escape_line(f"## {table.title}"), escape_line(table.note), format_markdown(table))
        ]
        notes = "\n".join(f"- {escape_line(note)}" for note in self.notes)
        return "\n\n".join(filter(None, (*parts, notes))) + "\n"

    def latex(self) -> str:
        """Format the terminal tables as LaTeX tabulars with booktabs rules."""
        parts = [
            f"{escape_line(f'% {table.title}. {table.note}'.rstrip())}\n{format_latex(table)}"
            for table in self._get_titled_tables()
        ]
        return "\n\n".join((r"% \usepackage{booktabs}", *parts)) + "\n"

    def table_csv(self) -> str:
        """Format the first terminal table as CSV with full precision."""
        return format_csv(self._get_titled_tables()[0])

    def _get_titled_tables(self) -> tuple[Table, ...]:
        return self.sections or (replace(self.summary, title=self.title),)


def check_files(settings: Any, *weights: Any) -> None:
    """Check all output files before any work; raise UsageError or OutputError. `weights`: network files."""
    data = [settings.data] if isinstance(settings.data, str) else [*settings.data]
    lists = [path for each in data if (path := parse_data(each).path) is not None and path.is_file()]
    files = [("`per_image`", settings.per_image, [".csv"]), ("`report`", settings.report, [".html"])]
    files += [("`table`", path, [".tex", ".md", ".csv"]) for path in settings.table or ()]
    places: set[str] = set()
    for name, file, suffixes in files:
        if file is None:
            continue
        path = Path(file)
        check_new_file(path, *suffixes, overwrite=settings.overwrite, option=name)
        check_network_files([path], *weights)
        if os.path.realpath(path) in places:
            raise UsageError(f"two options write {quote(path)}", "give each file its own name")
        places.add(os.path.realpath(path))
        check_extra_output(path, lists)
