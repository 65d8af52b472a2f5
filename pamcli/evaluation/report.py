"""Write the files of an evaluation: tables, and a self-contained, printable HTML report."""

from typing import Any

import jinja2
from markupsafe import Markup

from pamcli.evaluation.report_charts import Chart
from pamcli.evaluation.report_images import ERROR_COLORS, ERROR_STEPS, DrawnPair, encode_data_uri
from pamcli.evaluation.results import Column, Evaluation, Row, Table, format_value, to_json
from pamcli.files.atomic import write_atomically
from pamcli.settings.evaluation import EvaluateSettings

_WIDE = 2.0  # aspect ratio from which two instead of four panels share a row
_LONG = 40  # number of characters from which cell text is wrapped


def write_files(evaluation: Evaluation, settings: EvaluateSettings) -> Evaluation:
    """Write the requested files, each atomically; raise OutputError if one cannot be written."""
    forms = {".tex": evaluation.latex, ".md": evaluation.markdown, ".csv": evaluation.table_csv}
    tables = [] if settings.per_image is None else [(settings.per_image, evaluation.csv)]
    tables += [(path, forms[path.suffix.lower()]) for path in settings.table or ()]
    for path, text in tables:
        write_atomically(path, text().encode("utf-8", "surrogateescape"))
    if settings.report is not None:
        write_atomically(settings.report, render_report(evaluation))
    return evaluation


def render_report(evaluation: Evaluation) -> bytes:
    """Render an `Evaluation` as a self-contained HTML file in UTF-8."""
    pairs = {(row.get("data"), row.get("name")) for row in evaluation.images.rows}
    several = len(pairs) > len({data for data, _ in pairs})
    tables = [evaluation.summary, *([evaluation.images] if several else ())]
    kinds = {panel.kind for pair in evaluation.worst_pairs for panel in pair.panels}
    starts = [f"{3 * step:.2g}" if step else "0" for step in ERROR_STEPS]
    page = _PAGES.get_template("report.html").render(
        evaluation=evaluation,
        several=several,
        worst_title=(
            "Where the methods differ most" if "comparison" in evaluation.numbers else "Worst pairs"
        ),
        error_legend=[*zip(map("rgb{}".format, ERROR_COLORS), starts, strict=True)],
        has_errors="errors" in kinds,
        definitions={each.heading: each.note for table in tables for each in table.columns if each.note},
    )
    # File names that are not UTF-8 contain lone surrogates, which cannot be encoded.
    return page.encode("utf-8", "replace")


def render_chart(chart: Chart) -> Markup:
    """Render the chart as inline SVG with its legend."""
    return Markup(_PAGES.get_template("chart.html").render(vars(chart)))


def _make_cells(row: Row, table: Table) -> list[tuple[Column, str, str | None, bool]]:
    """Return a row's cells: column, text, value for JavaScript's Number(), and whether the text is long."""
    found = []
    for column in table.columns:
        value = to_json(row.get(column.key))
        shown = format_value(row.get(column.key), column.decimals)
        number = {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), str(value))
        found.append((column, shown, None if value is None else number, len(shown) > _LONG))
    return found


def _make_panels(pair: DrawnPair) -> dict[str, Any]:
    drawn = [(panel, *encode_data_uri(panel)) for panel in pair.panels]
    wide = any(width >= _WIDE * height for _, _, width, height in drawn)
    crops = any(panel.kind == "crop" for panel in pair.panels)
    return {"layout": "crops" if crops else "wide" if wide else "", "drawn": drawn}


_PAGES = jinja2.Environment(
    loader=jinja2.PackageLoader("pamcli.evaluation"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_PAGES.filters |= {"cells": _make_cells, "svg": render_chart, "panels": _make_panels}
