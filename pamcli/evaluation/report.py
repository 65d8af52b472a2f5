"""Render an evaluation as one self-contained, printable HTML file."""

from typing import Any

import jinja2
from markupsafe import Markup

from pamcli.evaluation.report_charts import CurveChart, Histogram
from pamcli.evaluation.report_images import ERROR_COLORS, ERROR_STEPS, DrawnPair, encode_data_uri
from pamcli.evaluation.results import Evaluation
from pamcli.evaluation.tables import Column, Row, Table, format_value, to_json_value

_WIDE = 2.0  # aspect ratio from which two instead of four panels share a row
_LONG = 40  # number of characters from which cell text is wrapped


def _make_environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pamcli.evaluation"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"cells": _make_cells, "svg": render_chart, "panels": _make_panels}
    return environment


def render_report(evaluation: Evaluation) -> bytes:
    """Render an `Evaluation` as a self-contained HTML file in UTF-8."""
    pairs = {(row.get("data"), row.get("name")) for row in evaluation.images.rows}
    several = len(pairs) > len({data for data, _ in pairs})
    differing = "comparison" in evaluation.numbers
    page = (
        _make_environment()
        .get_template("report.html")
        .render(
            evaluation=evaluation,
            notes=evaluation.notes,
            several=several,
            worst_title="Where the methods differ most" if differing else "Worst pairs",
            error_legend=[
                (f"rgb{color}", f"{3 * step:.2g}" if step else "0")
                for step, color in zip(ERROR_STEPS, ERROR_COLORS, strict=True)
            ],
            has_errors=any(
                panel.kind == "errors" for pair in evaluation.worst_pairs for panel in pair.panels
            ),
            definitions={
                column.heading: column.note
                for table in (evaluation.summary, *([evaluation.images] if several else ()))
                for column in table.columns
                if column.note
            },
        )
    )
    # File names that are not UTF-8 contain lone surrogates, which cannot be encoded.
    return page.encode("utf-8", "replace")


def _make_cells(row: Row, table: Table) -> list[tuple[Column, str, str | None, bool]]:
    """Return a row's cells: column, text, value for JavaScript's Number(), and whether the text is long."""
    found = []
    for column in table.columns:
        value = to_json_value(row.get(column.key))
        shown = format_value(row.get(column.key), column.decimals)
        number = (
            None if value is None else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), str(value))
        )
        found.append((column, shown, number, len(shown) > _LONG))
    return found


def render_chart(chart: Histogram | CurveChart) -> Markup:
    """Render the chart as inline SVG with its legend."""
    drawn = {"bars": (), "lines": {}, "y_title": "", **chart.lay_out()}
    return Markup(_make_environment().get_template("chart.html").render(drawn))


def _make_panels(pair: DrawnPair) -> dict[str, Any]:
    drawn = [(panel, *encode_data_uri(panel)) for panel in pair.panels]
    wide = any(width >= _WIDE * height for _, _, width, height in drawn)
    crops = any(panel.kind == "crop" for panel in pair.panels)
    return {"layout": "crops" if crops else "wide" if wide else "", "drawn": drawn}
