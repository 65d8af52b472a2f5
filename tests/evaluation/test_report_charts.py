"""Charts as SVG: what is drawn where."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from pamcli.evaluation.report import render_chart
from pamcli.evaluation.report_charts import Chart, make_curves, make_histogram


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


def test_the_legend_names_every_curve_in_order() -> None:
    chart = make_curves("T", (0,), {"a < b": (1,), "c": (1,)}, "x", "y")
    legend = str(render_chart(chart)).partition("</p>")[0]
    assert re.findall(r"curve (c\d)", legend) == ["c0", "c1"]
    assert "a &lt; b" in legend
    assert len(list(parse_svg(chart).iter("circle"))) == 2


@pytest.mark.parametrize("highest", [1e-9, 0.99, 4.5, 123456.0])
def test_an_axis_has_a_few_round_steps(highest: float) -> None:
    chart = make_curves("T", (0, 1), {"a": (0, highest)}, "x", "y")
    svg = parse_svg(chart)
    assert 4 <= len(list(svg.iter("line"))) <= 6
    highest_point = min(float(circle.get("cy") or "") for circle in svg.iter("circle"))
    assert highest_point >= min(float(line.get("y1") or "") for line in svg.iter("line"))
