"""Tables as text, CSV and JSON, and charts as SVG: what is drawn where."""

from __future__ import annotations

import csv
import io
import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from pamcli.evaluation.report import render_chart
from pamcli.evaluation.report_charts import Chart, make_curves, make_histogram
from pamcli.evaluation.results import (
    Column,
    Evaluation,
    Table,
    format_csv,
    format_latex,
    format_markdown,
    format_text,
    format_value,
    to_json,
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
    rows = json.loads(json.dumps(to_json(TABLE), allow_nan=False))
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


def parse_svg(chart: Chart) -> ET.Element:
    return ET.fromstring(f"<figure>{render_chart(chart)}</figure>").findall("svg")[-1]


def texts(svg: ET.Element) -> list[str]:
    return [element.text or "" for element in svg.iter("text")]


def test_bars_are_shares_of_the_pixels() -> None:
    svg = parse_svg(make_histogram("Errors", (0, 1, 3, math.inf), (50, 30, 20), wrong_from=3))
    bars = list(svg.iter("rect"))
    assert [bar.get("class") for bar in bars] == ["right", "right", "wrong"]
    heights = [float(bar.get("height", "")) for bar in bars]
    assert heights[1] / heights[0] == pytest.approx(0.6, abs=0.01)
    assert heights[2] / heights[0] == pytest.approx(0.4, abs=0.01)
    bottoms = {round(float(bar.get("y", "")) + float(bar.get("height", "")), 1) for bar in bars}
    assert len(bottoms) == 1
    tips = [element.text for element in svg.iter("title")]
    assert tips == ["0 to 1 px: 50.00 %", "1 to 3 px: 30.00 %", "3 px and more: 20.00 %"]
    assert {"50.0", "30.0", "20.0", "error (px)"} <= set(texts(svg))


def test_pixels_without_an_estimate_count_and_no_pixels_are_empty() -> None:
    svg = parse_svg(make_histogram("Errors", (0, 3, math.inf), (60, 20), wrong_from=3, without=20))
    assert [bar.get("class") for bar in svg.iter("rect")] == ["right", "wrong", "wrong"]
    tips = [element.text for element in svg.iter("title")]
    assert tips == ["0 to 3 px: 60.00 %", "3 px and more: 20.00 %", "no estimate: 20.00 %"]
    assert texts(svg)[-2] == "none"
    svg = parse_svg(make_histogram("Errors", (0, 1, 2), (0, 0)))
    assert [bar.get("height") for bar in svg.iter("rect")] == ["0.0", "0.0"]


def test_curves_go_from_the_first_x_to_the_last_and_leave_out_what_is_not_known() -> None:
    curves = {"measured": (4, 2, math.nan), "oracle": (4, 1, 0)}
    svg = parse_svg(make_curves("Confidence", (0, 50, 100), curves, "left out (%)", "error (px)"))
    oracle, measured = (
        [[float(number) for number in point.split(",")] for point in (line.get("points") or "").split()]
        for line in svg.iter("polyline")
    )
    assert [line.get("class") for line in svg.iter("polyline")] == ["curve c1", "curve c0"]
    assert len(measured) == 2
    assert measured[0] == oracle[0]
    assert measured[1][1] < oracle[1][1]  # y grows downwards: the oracle has less error left
    (left, top), (middle, _), (right, bottom) = oracle
    assert middle == pytest.approx((left + right) / 2, abs=0.1)
    assert (bottom - oracle[1][1]) / (bottom - top) == pytest.approx(0.25, abs=0.01)
    assert svg.get("aria-label") == "Confidence: error (px) over left out (%), measured and oracle"
    assert "measured, at 50: 2" in [element.text for element in svg.iter("title")]
