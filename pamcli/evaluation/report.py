"""Write the files of an evaluation: tables, and a self-contained, printable HTML report."""

import os
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pamcli.data.open import parse_data
from pamcli.errors import UsageError
from pamcli.evaluation.report_charts import CurveChart, Histogram
from pamcli.evaluation.report_images import ERROR_COLORS, ERROR_STEPS, DrawnPair, encode_data_uri
from pamcli.evaluation.results import Evaluation
from pamcli.evaluation.tables import Column, Row, Table, format_value, to_json_value
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import check_extra_output, check_new_file
from pamcli.files.paths import quote
from pamcli.registry.catalog import check_network_files
from pamcli.settings.evaluation import EvaluateSettings

_WIDE = 2.0  # aspect ratio from which two instead of four panels share a row
_LONG = 40  # number of characters from which cell text is wrapped


def check_files(settings: EvaluateSettings, *weights: Any) -> None:
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


def write_files(evaluation: Evaluation, settings: EvaluateSettings) -> Evaluation:
    """Write the requested files, each atomically; raise OutputError if one cannot be written."""
    forms = {".tex": evaluation.latex, ".md": evaluation.markdown, ".csv": evaluation.table_csv}
    tables = [] if settings.per_image is None else [(settings.per_image, evaluation.csv)]
    tables += [(path, forms[Path(path).suffix.lower()]) for path in settings.table or ()]
    for path, text in tables:
        write_atomically(Path(path), text().encode("utf-8", "surrogateescape"))
    if settings.report is not None:
        write_atomically(Path(settings.report), render_report(evaluation))
    return evaluation


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
