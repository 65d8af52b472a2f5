"""Hold tables of metrics, and format them as text, Markdown, LaTeX, CSV and JSON."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pamcli.files.paths import escape_csv, escape_line, quote

Figures = Mapping[str, Mapping[str, float]]
"""Metrics: region ("noc", "both") -> metric ("d1", "psnr") -> value. Regions without pixels are absent; NaN
marks a value that could not be computed."""

Value = str | int | float | np.integer | np.floating | None  # the values that a cell can hold
Row = Mapping[str, Value]
Plain = str | int | float | None  # the value of a cell in JSON
Fact = tuple[str, str]  # name and value


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
    for row in to_json_rows(table):
        cells = zip(row.values(), is_name, strict=True)
        writer.writerow([escape_csv(str(it)) if named and it else it for it, named in cells])
    return out.getvalue()


def to_json_rows(table: Table) -> list[dict[str, Plain]]:
    """Return the rows for `json.dumps(..., allow_nan=False)`; every row has every column."""
    return [to_json_row({column.key: row.get(column.key) for column in table.columns}) for row in table.rows]


def to_json_row(row: Row) -> dict[str, Plain]:
    """Convert a row for JSON, see `to_json_value`."""
    return {key: to_json_value(value) for key, value in row.items()}


def to_json_value(value: Value) -> Plain:
    """Convert a value for JSON: NaN to None, infinity to "inf" or "-inf", NumPy numbers to Python's."""
    if value is None or isinstance(value, str):
        return value
    if math.isnan(value):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    return float(value) if math.isfinite(value) else str(float(value))
