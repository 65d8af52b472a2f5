"""Hold the results of an evaluation and format them as text, JSON, CSV, Markdown and LaTeX."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pamcli.evaluation.report_charts import CurveChart, Histogram
from pamcli.evaluation.report_pictures import ShownPair
from pamcli.files.paths import escape_csv, escape_line, quote

Value = str | int | float | np.integer | np.floating | None
"""The values that a cell can hold."""

Plain = str | int | float | None
"""The value of a cell in JSON."""


@dataclass(frozen=True)
class Column:
    """A table column and the format of its values."""

    key: str
    """Key in rows, CSV and JSON: stable, for programs."""
    title: str
    """Heading for people."""
    unit: str = ""
    """"px", "%", "dB" or "s"; empty for plain numbers and text."""
    decimals: int = 2
    """Decimals shown to people; files for programs have full precision."""
    text: bool = False
    """Contains words, aligned left."""
    note: str = ""
    """Definition of the metric, one sentence."""

    @property
    def heading(self) -> str:
        """Title with unit: "D1 (%)"."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def text_columns(*names: str) -> list[Column]:
    """Return text columns titled like their keys."""
    return [Column(name, name, text=True) for name in names]


@dataclass(frozen=True)
class Table:
    """A table of metrics; rows may lack some of the columns."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Value], ...]
    title: str = ""
    note: str = ""
    """Description of the contents, one sentence."""

    def shown(self, row: Mapping[str, Value], column: Column) -> str:
        """Format one cell for people."""
        return shown_value(row.get(column.key), column.decimals)

    def texts(self, columns: Sequence[Column]) -> list[list[str]]:
        """Return the headings of the given columns, followed by every cell."""
        head = [escape_line(column.heading) for column in columns]
        return [head, *([self.shown(row, column) for column in columns] for row in self.rows)]


def shown_value(value: Value, decimals: int) -> str:
    """Format a value with the given number of decimals; "-" if it could not be computed."""
    if isinstance(value, str):
        return quote(value)
    if value is None or math.isnan(value):
        return "-"
    text = f"{float(value):.{decimals}f}"
    # Avoid "-0.00" for tiny negative values.
    return text.lstrip("-") if float(text) == 0 else text


def text_table(table: Table, width: int | None = None) -> str:
    """Format a table in aligned columns separated by two spaces, without a final line break.

    `width`: maximum line length. Wider tables first move words and counts that all rows share to a line
    above, then drop columns from the right; two columns always stay.
    """
    columns, above = list(table.columns), []
    for column in table.columns:
        values = {row.get(column.key) for row in table.rows}
        countable = (column.text or not column.decimals) and len(values) == 1
        if width and countable and len(_lines(table, columns)[0]) > width:
            columns.remove(column)
            above.append(f"{column.title} {table.shown(table.rows[0], column)}")
    while width and len(columns) > 2 and max(map(len, _lines(table, columns))) > width:
        del columns[-1]
    return "\n".join([", ".join(above)] * bool(above) + _lines(table, columns))


def _lines(table: Table, columns: Sequence[Column]) -> list[str]:
    cells = table.texts(columns)
    widths = [max(map(len, each)) for each in zip(*cells, strict=True)]
    pads = [str.ljust if column.text else str.rjust for column in columns]
    lines = (zip(pads, each, widths, strict=True) for each in cells)
    return ["  ".join(pad(cell, width) for pad, cell, width in line).rstrip() for line in lines]


def markdown_table(table: Table) -> str:
    """Format a table in Markdown with numbers aligned right."""
    texts = table.texts(table.columns)
    head, *rows = [
        "| " + " | ".join(each.replace("|", "\\|").replace("<", "&lt;") for each in line) + " |"
        for line in texts
    ]
    rule = "| " + " | ".join("---" if column.text else "---:" for column in table.columns) + " |"
    return "\n".join((head, rule, *rows))


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"} | {"<": "$<$", ">": "$>$", "|": "$|$"}


def latex_table(table: Table) -> str:
    r"""Format a table as a LaTeX tabular with booktabs rules (\usepackage{booktabs})."""

    def line(cells: Sequence[str]) -> str:
        texts = ["".join(_LATEX.get(sign, sign) for sign in cell) for cell in cells]
        if texts[0][:1] in ("[", "*", "("):  # LaTeX would read these as an option of the preceding line break
            texts[0] = f"{{{texts[0][0]}}}{texts[0][1:]}"
        return " & ".join(texts) + r" \\"

    head, *rows = map(line, table.texts(table.columns))
    kinds = "".join("l" if column.text else "r" for column in table.columns)
    begin = rf"\begin{{tabular}}{{{kinds}}}"
    return "\n".join((begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"))


def csv_table(table: Table) -> str:
    """Format a table as CSV (RFC 4180: commas, CR LF, quotes where needed), with keys as header.

    Numbers have all digits needed to read back the same value. An apostrophe precedes words that a
    spreadsheet would evaluate.
    """
    out = io.StringIO(newline="")
    # DictWriter's default dialect, "excel", conforms to RFC 4180.
    writer = csv.DictWriter(out, [column.key for column in table.columns])
    writer.writerow({column.key: escape_csv(column.key) for column in table.columns})
    names = {column.key for column in table.columns if column.text and not column.unit}
    for row in json_rows(table):
        writer.writerow({key: escape_csv(str(it)) if key in names and it else it for key, it in row.items()})
    return out.getvalue()


def json_rows(table: Table) -> list[dict[str, Plain]]:
    """Return the rows for `json.dumps(..., allow_nan=False)`; every row has every column."""
    return [json_row({column.key: row.get(column.key) for column in table.columns}) for row in table.rows]


def json_row(row: Mapping[str, Value]) -> dict[str, Plain]:
    """Convert a row for JSON, see `json_value`."""
    return {key: json_value(value) for key, value in row.items()}


def json_value(value: Value) -> Plain:
    """Convert a value for JSON: NaN to None, infinity to "inf" or "-inf", NumPy numbers to Python's."""
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    return float(value) if math.isfinite(value) else str(float(value))


Fact = tuple[str, str]
"""Name and value."""

WORST = 5
"""Number of pairs that a report shows."""


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation. Every text may contain any character."""

    title: str
    facts: tuple[Fact, ...]
    """Names and values: network, sha256 of the weights, device, precision, data, date, ..."""
    summary: Table
    """All metrics, one row per data set, region or method, and average."""
    images: Table
    """One row per pair."""
    notes: tuple[str, ...] = ()
    """Caveats: missing parts of the data, options that change the metrics."""
    key_figures: tuple[tuple[str, tuple[Fact, ...]], ...] = ()
    """The most important metrics of each data set, as name and text."""
    headline: tuple[Table, ...] = ()
    """Excerpt of the summary for terminals; empty = the whole summary."""
    sections: tuple[Table, ...] = ()
    """Requested tables: named protocols, method comparison. A terminal shows only these."""
    studies: tuple[Table, ...] = ()
    published: Mapping[str, Table] = field(default_factory=dict)
    """Rows from papers and benchmark pages by data set, below a row of this evaluation."""
    charts: tuple[Histogram | CurveChart, ...] = ()
    worst_pairs: tuple[ShownPair, ...] = ()
    """The pairs with the largest errors, worst first."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """JSON content besides facts and notes."""

    def json(self) -> dict[str, Any]:
        """Return an object for `json.dumps(..., allow_nan=False)`."""
        return {"facts": dict(self.facts), "notes": list(self.notes), **self.numbers}

    def csv(self) -> str:
        """Return the metrics of every image as CSV."""
        return csv_table(self.images)

    def text(self, width: int | None = 80) -> str:
        """Format the tables with the columns that fit into `width` characters, most important first."""
        asked = self.sections or self.headline or (self.summary,)
        tables = [*asked, *self.studies, *self.published.values()]
        return "\n\n".join(text_table(table, width) for table in tables if table.rows)

    def markdown(self) -> str:
        """Format the terminal tables in Markdown, with the notes."""
        parts = [
            (escape_line(f"## {one.title}"), escape_line(one.note), markdown_table(one))
            for one in self._titled()
        ]
        notes = "\n".join(f"- {escape_line(note)}" for note in self.notes)
        return "\n\n".join(filter(None, (text for part in (*parts, (notes,)) for text in part))) + "\n"

    def latex(self) -> str:
        """Format the terminal tables as LaTeX tabulars with booktabs rules."""
        heads = [escape_line(f"% {one.title}. {one.note}".rstrip()) for one in self._titled()]
        parts = map("\n".join, zip(heads, map(latex_table, self._titled()), strict=True))
        return "\n\n".join((r"% \usepackage{booktabs}", *parts)) + "\n"

    def table_csv(self) -> str:
        """Format the first terminal table as CSV with full precision."""
        return csv_table(self._titled()[0])

    def _titled(self) -> tuple[Table, ...]:
        return self.sections or (replace(self.summary, title=self.title),)
