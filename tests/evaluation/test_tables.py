"""Tables as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from pamcli.evaluation.results import Evaluation
from pamcli.evaluation.tables import (
    Column,
    Table,
    format_csv,
    format_latex,
    format_markdown,
    format_text,
    format_value,
    to_json_rows,
)
from pamcli.files.paths import escape_csv

COLUMNS = (
    Column("name", "Pair", text=True),
    Column("pixels", "Pixels", decimals=0),
    Column("d1", "D1", unit="%"),
    Column("psnr", "PSNR", unit="dB", decimals=1),
)
TABLE = Table(
    COLUMNS,
    (
        {"name": "000000_10", "pixels": 91234, "d1": np.float32(8.125), "psnr": math.inf},
        {"name": 'a "b", c', "pixels": np.int64(7), "d1": math.nan},
    ),
)


def test_text_is_aligned_and_a_missing_figure_is_a_dash() -> None:
    assert format_text(TABLE).splitlines() == [
        "Pair       Pixels  D1 (%)  PSNR (dB)",
        "000000_10   91234    8.12        inf",
        'a "b", c        7       -          -',
    ]
    assert format_text(Table(COLUMNS, ())) == "Pair  Pixels  D1 (%)  PSNR (dB)"


@pytest.mark.parametrize(
    ("value", "decimals", "shown"),
    [
        (1.005, 1, "1.0"),
        (-0.001, 2, "0.00"),
        (3, 0, "3"),
        (None, 2, "-"),
        (np.float32("nan"), 2, "-"),
        (-math.inf, 2, "-inf"),
        ("pooled", 2, "pooled"),
        ("two\nlines", 2, "'two\\nlines'"),
    ],
)
def test_figures_are_rounded_for_reading(value: float | str | None, decimals: int, shown: str) -> None:
    assert format_value(value, decimals) == shown


def test_csv_is_rfc_4180_with_exact_figures() -> None:
    text = format_csv(TABLE)
    assert text == 'name,pixels,d1,psnr\r\n000000_10,91234,8.125,inf\r\n"a ""b"", c",7,,\r\n'
    value = 0.1 + 0.2
    assert float(format_csv(Table((Column("x", "X"),), ({"x": value},))).splitlines()[1]) == value


def test_json_has_every_column_and_no_nan() -> None:
    rows = json.loads(json.dumps(to_json_rows(TABLE), allow_nan=False))
    assert rows == [
        {"name": "000000_10", "pixels": 91234, "d1": 8.125, "psnr": "inf"},
        {"name": 'a "b", c', "pixels": 7, "d1": None, "psnr": None},
    ]


NAMED = Table(
    (Column("name", "Pair\n%", text=True), Column("gain", "Gain", unit="px", text=True), Column("x", "=x")),
    (
        {"name": "=1+1", "gain": "+0.50 [+0.40, +0.60]", "x": -1.5},
        {"name": "\t@SUM(1)", "gain": None, "x": None},
        {"name": "[2cm]\n\\input{secret}<b>|", "gain": "-1", "x": 0},
    ),
)


def test_names_are_no_formulas_in_a_spreadsheet() -> None:
    _, *lines = csv.reader(io.StringIO(format_csv(NAMED), newline=""))
    assert [line[0][:2] for line in lines] == ["'=", "'\t", "[2"]
    assert [line[1:] for line in lines] == [["+0.50 [+0.40, +0.60]", "-1.5"], ["", ""], ["-1", "0"]]
    names = ["+1", "-1", " =1", "\uff1d1", "a=1", "", "0001"]
    assert [escape_csv(name) == name for name in names] == [False] * 4 + [True] * 3


def test_names_are_no_commands_in_latex_and_no_lines_or_tags_in_markdown() -> None:
    table = format_latex(NAMED)
    assert len(table.splitlines()) == 9
    assert r"Pair\textbackslash{}n\%" in table
    rows = [{**row, "name": "[2cm]"} for row in NAMED.rows[:2]]
    assert "\\input" not in table
    assert format_latex(Table(NAMED.columns, tuple(rows))).count("\n{[}2cm]") == 2
    markdown = format_markdown(NAMED)
    assert len(markdown.splitlines()) == 5
    assert "<b>" not in markdown


def test_titles_and_notes_of_tables_are_one_line() -> None:
    named = replace(NAMED, title="a\n\\input{x}", note="b\r\u2028\\input{x}")
    found = Evaluation("", (), TABLE, TABLE, notes=("n\n# head",), sections=(named,))
    assert not [line for line in found.latex().splitlines() if line.startswith("\\input")]
    assert not [line for line in found.markdown().splitlines() if line.startswith(("\\input", "# "))]
