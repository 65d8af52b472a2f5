"""Hold the results of an evaluation, and format them as text, Markdown, LaTeX, CSV and JSON."""

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pamcli.data.open import parse_data
from pamcli.errors import UsageError
from pamcli.evaluation.report_charts import Chart
from pamcli.evaluation.report_images import DrawnPair
from pamcli.files.outputs import check_extra_output, check_new_file
from pamcli.files.paths import escape_csv, escape_line, quote
from pamcli.registry.catalog import check_network_files
from pamcli.settings.evaluation import EvaluateSettings

WORST = 5  # number of pairs that a report shows

Figures = Mapping[str, Mapping[str, float]]
"""Metrics: region ("noc", "both") -> metric ("d1", "psnr") -> value. Regions without pixels are absent; NaN
marks a value that could not be computed."""

Value = str | int | float | np.integer | np.floating | None  # the values that a cell can hold
Row = Mapping[str, Value]
Fact = tuple[str, str]  # name and value


def flatten(figures: Figures) -> dict[str, float]:
    """Flatten metrics to column names: "d1" for all pixels, "noc d1", "both psnr"."""
    found: dict[str, float] = {}
    for part, values in figures.items():
        for metric, value in values.items():
            found[metric if part == "all" else f"{part} {metric}"] = value
    return found


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

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    note: str = ""  # description of the contents, one sentence

    def texts(self) -> list[list[str]]:
        """Return each column as its heading and its cells, for people."""
        found = []
        for column in self.columns:
            cells = [format_value(row.get(column.key), column.decimals) for row in self.rows]
            found.append([escape_line(column.heading), *cells])
        return found


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
    for column, texts in zip(table.columns, table.texts(), strict=True):
        pad, longest = str.ljust if column.text else str.rjust, max(map(len, texts))
        padded[column] = [pad(text, longest) for text in texts]
    above = []
    lines = _join_columns(padded.values())
    for column in table.columns:
        countable = column.text or not column.decimals
        if width and len(lines[0]) > width and countable:
            first, *others = [row.get(column.key) for row in table.rows]
            if others.count(first) == len(others):
                del padded[column]
                above.append(f"{column.title} {format_value(first, column.decimals)}")
                lines = _join_columns(padded.values())
    while width and len(padded) > 2 and max(map(len, lines)) > width:
        padded.popitem()
        lines = _join_columns(padded.values())
    return "\n".join([", ".join(above)] * bool(above) + lines)


def _join_columns(columns: Iterable[Sequence[str]]) -> list[str]:
    return [*map(str.rstrip, map("  ".join, zip(*columns, strict=True)))]


def format_markdown(table: Table) -> str:
    """Format a table in Markdown with numbers aligned right."""
    head, *rows = (
        " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
        for cells in zip(*table.texts(), strict=True)
    )
    rule = " | ".join("---" if column.text else "---:" for column in table.columns)
    return "\n".join(f"| {line} |" for line in (head, rule, *rows))


_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {sign: f"${sign}$" for sign in "<>|"}
)


def format_latex(table: Table) -> str:
    r"""Format a table as a LaTeX tabular with booktabs rules (\usepackage{booktabs})."""
    lines = []
    for cells in zip(*table.texts(), strict=True):
        first, *others = (cell.translate(_LATEX) for cell in cells)
        if first[:1] in ("[", "*", "("):  # LaTeX would read these as an option of the preceding line break
            first = f"{{{first[0]}}}{first[1:]}"
        lines.append(" & ".join((first, *others)) + r" \\")
    kinds = "".join("l" if column.text else "r" for column in table.columns)
    begin = rf"\begin{{tabular}}{{{kinds}}}"
    ruled = (r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule")
    return "\n".join((begin, *ruled, r"\end{tabular}"))


def format_csv(table: Table) -> str:
    """Format a table as CSV (RFC 4180) with keys as header and full precision, safe for spreadsheets."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)  # its default dialect, "excel", conforms to RFC 4180
    writer.writerow([escape_csv(column.key) for column in table.columns])
    is_name = [column.text and not column.unit for column in table.columns]
    for row in to_json(table):
        cells = zip(row.values(), is_name, strict=True)
        writer.writerow([escape_csv(str(it)) if named and it else it for it, named in cells])
    return out.getvalue()


def to_json(value: Any) -> Any:
    """Convert values for `json.dumps(..., allow_nan=False)`; every row of a table gets every column.

    NaN becomes None, infinity "inf" or "-inf", and NumPy numbers become Python's.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Table):
        return [{column.key: to_json(row.get(column.key)) for column in value.columns} for row in value.rows]
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [to_json(each) for each in value]
    if math.isnan(value):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    return float(value) if math.isfinite(value) else str(float(value))


@dataclass
class Evaluation:
    """The results of an evaluation. Every text may contain any character."""

    title: str
    facts: list[Fact]  # network, sha256 of the weights, device, data, date, ...
    summary: Table  # all metrics, one row per data set, region or method, and average
    images: Table  # one row per pair
    notes: list[str] = field(default_factory=list)  # missing data, options that change the metrics, ...
    key_figures: list[tuple[str, list[Fact]]] = field(default_factory=list)
    """The most important metrics of each data set."""
    headline: list[Table] = field(default_factory=list)  # excerpt of the summary for terminals
    sections: list[Table] = field(default_factory=list)  # requested tables; a terminal shows only these
    studies: list[Table] = field(default_factory=list)
    published: dict[str, Table] = field(default_factory=dict)  # published rows by data set
    charts: list[Chart] = field(default_factory=list)
    worst_pairs: list[DrawnPair] = field(default_factory=list)  # those with the largest errors, worst first
    numbers: dict[str, Any] = field(default_factory=dict)  # contents of `json` besides facts and notes

    def json(self) -> dict[str, Any]:
        """Return an object for `json.dumps(..., allow_nan=False)`."""
        found: dict[str, Any] = to_json({"facts": dict(self.facts), "notes": self.notes, **self.numbers})
        return found

    def csv(self) -> str:
        """Return the metrics of every image as CSV."""
        return format_csv(self.images)

    def text(self, width: int | None = 80) -> str:
        """Format the tables with the columns that fit into `width` characters, most important first."""
        shown = self.sections or self.headline or [self.summary]
        tables = [*shown, *self.studies, *self.published.values()]
        return "\n\n".join([format_text(table, width) for table in tables if table.rows])

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
        return format_csv([*self.sections, self.summary][0])

    @property
    def _titled_tables(self) -> Sequence[Table]:
        return self.sections or [replace([*self.headline, self.summary][0], title=self.title)]


def check_files(settings: EvaluateSettings, *weights: Any) -> None:
    """Check all output files before any work; raise UsageError or OutputError. `weights`: network files."""
    files = [("`per_image`", settings.per_image, [".csv"]), ("`report`", settings.report, [".html"])]
    for table in settings.table or ():
        files.append(("`table`", table, [".tex", ".md", ".csv"]))
    places: set[str] = set()
    for name, path, suffixes in files:
        if path is None:
            continue
        check_new_file(path, *suffixes, overwrite=settings.overwrite, option=name)
        check_network_files([path], *weights)
        if os.path.realpath(path) in places:
            raise UsageError(f"two options write {quote(path)}", "give each file its own name")
        places.add(os.path.realpath(path))
        lists = [data for each in settings.data if (data := parse_data(each).path) and data.is_file()]
        check_extra_output(path, lists)
