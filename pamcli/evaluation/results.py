"""What did an evaluation find? Facts, figures in tables, notes; as text, JSON, CSV, Markdown, LaTeX."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pamcli.evaluation.report_charts import CurveChart, Histogram
from pamcli.evaluation.report_pictures import ShownPair
from pamcli.files.finding import csv_text, one_line, shown

Value = str | int | float | np.integer | np.floating | None
"""What a cell can hold."""

Plain = str | int | float | None
"""What a cell becomes in JSON."""


@dataclass(frozen=True)
class Column:
    """One column, and how its figures are shown."""

    key: str
    """Its name in the rows, in CSV and in JSON: stable, for programs."""
    title: str
    """Its name for people."""
    unit: str = ""
    """"px", "%", "dB", "s"; empty for plain numbers and text."""
    decimals: int = 2
    """Digits behind the point, where a person reads; files for programs hold all of them."""
    text: bool = False
    """Holds words, to be set flush left."""
    note: str = ""
    """How the figure is defined, in a sentence."""

    @property
    def heading(self) -> str:
        """The title with its unit: "D1 (%)"."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def text_columns(*names: str) -> list[Column]:
    """Columns of words, which are called as their keys are."""
    return [Column(name, name, text=True) for name in names]


@dataclass(frozen=True)
class Table:
    """Rows of figures. A row may lack some of the columns."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Value], ...]
    title: str = ""
    note: str = ""
    """A sentence on what stands in it."""

    def shown(self, row: Mapping[str, Value], column: Column) -> str:
        """Write one cell as a person reads it."""
        return shown_value(row.get(column.key), column.decimals)

    def texts(self, columns: Sequence[Column]) -> list[list[str]]:
        """Write the headings of some columns, and below them every cell."""
        head = [one_line(column.heading) for column in columns]
        return [head, *([self.shown(row, column) for column in columns] for row in self.rows)]


def shown_value(value: Value, decimals: int) -> str:
    """Write a figure with so many digits behind the point; "-" where it could not be computed."""
    if isinstance(value, str):
        return shown(value)
    if value is None or math.isnan(value):
        return "-"
    text = f"{float(value):.{decimals}f}"
    # -0.001 rounds to -0.00, which looks like a figure below zero.
    return text.lstrip("-") if float(text) == 0 else text


def text_table(table: Table, width: int | None = None) -> str:
    """Set a table in columns, numbers to the right, two blanks between; without a line break at the end.

    width: characters that a line may have. Where it does not suffice, words and counts that are the same in
    every row stand in a line above, and then columns are left out, the last ones first; two always stay.
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
    """Write a table in Markdown, numbers to the right."""
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
    r"""Write a table as a LaTeX tabular with the rules of booktabs (\usepackage{booktabs})."""

    def line(cells: Sequence[str]) -> str:
        texts = ["".join(_LATEX.get(sign, sign) for sign in cell) for cell in cells]
        if texts[0][:1] in ("[", "*", "("):  # which the end of the line before would take for its option
            texts[0] = f"{{{texts[0][0]}}}{texts[0][1:]}"
        return " & ".join(texts) + r" \\"

    head, *rows = map(line, table.texts(table.columns))
    kinds = "".join("l" if column.text else "r" for column in table.columns)
    begin = rf"\begin{{tabular}}{{{kinds}}}"
    return "\n".join((begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"))


def csv_table(table: Table) -> str:
    """Write a table as CSV (RFC 4180: commas, CR LF, quotes where they must be) below the columns' keys.

    Numbers are written with all the digits that are needed to read the same number back. Words that a
    spreadsheet would compute stand behind an apostrophe.
    """
    out = io.StringIO(newline="")
    # The dialect that DictWriter takes by itself, "excel", is RFC 4180's.
    writer = csv.DictWriter(out, [column.key for column in table.columns])
    writer.writerow({column.key: csv_text(column.key) for column in table.columns})
    names = {column.key for column in table.columns if column.text and not column.unit}
    for row in json_rows(table):
        writer.writerow({key: csv_text(str(it)) if key in names and it else it for key, it in row.items()})
    return out.getvalue()


def json_rows(table: Table) -> list[dict[str, Plain]]:
    """Make the rows for `json.dumps(..., allow_nan=False)`: every row has every column."""
    return [json_row({column.key: row.get(column.key) for column in table.columns}) for row in table.rows]


def json_row(row: Mapping[str, Value]) -> dict[str, Plain]:
    """Make a row for JSON, see `json_value`."""
    return {key: json_value(value) for key, value in row.items()}


def json_value(value: Value) -> Plain:
    """Make a value for JSON: NaN becomes None, infinity "inf" or "-inf", NumPy's numbers become Python's."""
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
"""Pairs that a report shows."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found. Every text may hold any character."""

    title: str
    facts: tuple[Fact, ...]
    """Names and values: network, sha256 of the weights, device, precision, data, date, and so on."""
    summary: Table
    """A row for each data set, part of the picture or method, and way of averaging: all figures."""
    images: Table
    """A row for each pair."""
    notes: tuple[str, ...] = ()
    """What a reader must know: parts of the data that were missing, options that change the figures."""
    key_figures: tuple[tuple[str, tuple[Fact, ...]], ...] = ()
    """The few figures to see first of each data set, name and value as people read them."""
    headline: tuple[Table, ...] = ()
    """What a terminal shows of the summary; empty: all of it."""
    sections: tuple[Table, ...] = ()
    """What was asked for: figures by named protocols, methods side by side. A terminal shows these alone."""
    studies: tuple[Table, ...] = ()
    published: Mapping[str, Table] = field(default_factory=dict)
    """Rows from papers and benchmarks' pages by data set, below one of this evaluation."""
    charts: tuple[Histogram | CurveChart, ...] = ()
    worst_pairs: tuple[ShownPair, ...] = ()
    """The worst pairs, worst first."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """What stands in JSON beside facts and notes."""

    def json(self) -> dict[str, Any]:
        """Make an object for `json.dumps(..., allow_nan=False)`."""
        return {"facts": dict(self.facts), "notes": list(self.notes), **self.numbers}

    def csv(self) -> str:
        """Write the figures of every picture as CSV."""
        return csv_table(self.images)

    def text(self, width: int | None = 80) -> str:
        """Set tables of columns that fit into `width` characters, the most telling ones."""
        asked = self.sections or self.headline or (self.summary,)
        tables = [*asked, *self.studies, *self.published.values()]
        return "\n\n".join(text_table(table, width) for table in tables if table.rows)

    def markdown(self) -> str:
        """Write the tables that a terminal shows in Markdown, with the notes."""
        parts = [
            (one_line(f"## {one.title}"), one_line(one.note), markdown_table(one)) for one in self._titled()
        ]
        notes = "\n".join(f"- {one_line(note)}" for note in self.notes)
        return "\n\n".join(filter(None, (text for part in (*parts, (notes,)) for text in part))) + "\n"

    def latex(self) -> str:
        """Write the tables that a terminal shows as LaTeX tabulars, with the rules of booktabs."""
        heads = [one_line(f"% {one.title}. {one.note}".rstrip()) for one in self._titled()]
        parts = map("\n".join, zip(heads, map(latex_table, self._titled()), strict=True))
        return "\n\n".join((r"% \usepackage{booktabs}", *parts)) + "\n"

    def table_csv(self) -> str:
        """Write the first of the tables that a terminal shows as CSV, with all their digits."""
        return csv_table(self._titled()[0])

    def _titled(self) -> tuple[Table, ...]:
        return self.sections or (replace(self.summary, title=self.title),)
