"""A measurement as one HTML file: everything is inside, nothing is fetched, and it prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template

from pamcli.evaluation.error_map import ERROR_COLORS, ERROR_STEPS
from pamcli.evaluation.report_charts import CurveChart, Histogram, curve_legend, curves_svg, histogram_svg
from pamcli.evaluation.report_pictures import Example, data_uri
from pamcli.evaluation.tables import Column, Table, Value, json_value

_WIDE = 2.0  # from this ratio of width to height on, panels stand two in a row instead of four
_LONG = 40  # from this many characters on, the text of a cell is broken into lines


@dataclass(frozen=True)
class Published:
    """Rows from a paper or a benchmark's page, to stand beside one's own."""

    table: Table
    protocol: str
    """What was measured how, in a sentence; it may differ from this measurement, and from row to row, which a
    column of the table then says."""
    source: str = ""
    """Where the rows stand; empty where a column says so."""


@dataclass(frozen=True)
class ReportData:
    """What a report shows. Every text may hold any character."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """Name and value: network, sha256 of the weights, device, precision, data, date, and so on."""
    summary: Table
    """A row for each data set and way of averaging, which the row names ("pooled", "mean of the pairs")."""
    images: Table
    """A row for each pair."""
    notes: tuple[str, ...] = ()
    """What a reader must know: parts of the data that were missing, options that change the figures."""
    published: tuple[Published, ...] = ()
    charts: tuple[Histogram | CurveChart, ...] = ()
    examples: tuple[Example, ...] = ()
    """The worst pairs, worst first."""
    examples_title: str = "Worst pairs"


def render_report(data: ReportData) -> bytes:
    """The report as an HTML file in UTF-8, without anything outside it."""
    body = "\n".join(
        part
        for part in (
            _head(data),
            _section("Summary", _table(data.summary)),
            *map(_published, data.published),
            _charts(data.charts),
            _examples(data),
            _section("All pairs", _table(data.images, sortable=True)),
            _definitions(data),
        )
        if part
    )
    template = resources.files("pamcli.evaluation").joinpath("report.html").read_text(encoding="utf-8")
    page = Template(template).substitute(title=escape(data.title), body=body)
    # A lone surrogate, from a file name that is no UTF-8, cannot be encoded.
    return page.encode("utf-8", "replace")


def _head(data: ReportData) -> str:
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in data.facts
    )
    items = "".join(f"<li>{escape(note)}</li>" for note in data.notes)
    notes = f'<ul class="notes">{items}</ul>' if items else ""
    return f'<header><h1>{escape(data.title)}</h1><dl class="facts">{facts}</dl>{notes}</header>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{content}</section>"


def _table(table: Table, *, sortable: bool = False) -> str:
    heads = "".join(_heading(column, sortable) for column in table.columns)
    rows = "\n".join(
        f"<tr>{''.join(_cell(table, row, column) for column in table.columns)}</tr>" for row in table.rows
    )
    kind = ' class="sortable"' if sortable else ""
    # What can be scrolled must be reachable by keyboard, hence the tabindex.
    return (
        f'<div class="scroll" tabindex="0"><table{kind}><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _heading(column: Column, sortable: bool) -> str:
    text = ' class="text"' if column.text else ""
    note = f' title="{escape(column.note)}"' if column.note else ""
    heading = escape(column.heading)
    inside = f'<button type="button">{heading}</button>' if sortable else heading
    return f'<th scope="col"{text}{note}>{inside}</th>'


def _cell(table: Table, row: Mapping[str, Value], column: Column) -> str:
    shown = table.shown(row, column)
    long = " long" if len(shown) > _LONG else ""
    text = f' class="text{long}"' if column.text else ""
    value = json_value(row.get(column.key))
    key = "" if value is None else f' data-value="{escape(_for_number(value))}"'
    return f"<td{text}{key}>{escape(shown)}</td>"


def _for_number(value: str | int | float) -> str:
    """As JavaScript's Number() reads it."""
    return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), str(value))


def _published(published: Published) -> str:
    source = f" Source: {escape(published.source)}." if published.source else ""
    text = escape(published.protocol) + source
    return _section("Published, not measured here", f'<p class="quiet">{text}</p>\n{_table(published.table)}')


def _charts(charts: tuple[Histogram | CurveChart, ...]) -> str:
    if not charts:
        return ""
    return f'<section><h2>Errors</h2>\n<div class="charts">{"".join(map(_chart, charts))}</div></section>'


def _chart(chart: Histogram | CurveChart) -> str:
    drawn = histogram_svg(chart) if isinstance(chart, Histogram) else curve_legend(chart) + curves_svg(chart)
    caption = f'<p class="quiet">{escape(chart.caption)}</p>' if chart.caption else ""
    return f"<figure><h3>{escape(chart.title)}</h3>{drawn}<figcaption>{caption}</figcaption></figure>\n"


def _examples(data: ReportData) -> str:
    if not data.examples:
        return ""
    errors = any(panel.kind == "errors" for example in data.examples for panel in example.panels)
    figures = "\n".join(map(_example, data.examples))
    return _section(data.examples_title, (_error_legend() if errors else "") + figures)


def _error_legend() -> str:
    items = "".join(
        f'<li><i style="background: rgb{color}"></i>{f"{3 * step:.2g}" if step else "0"}</li>'
        for step, color in zip(ERROR_STEPS, ERROR_COLORS, strict=True)
    )
    return (
        '<p class="quiet">Errors have the colours of KITTI\'s benchmark. Each begins at the error written '
        "under it, in px; for a truth above 60&nbsp;px, of which 5&nbsp;% are more than 3&nbsp;px, the "
        "limits grow with the truth. Warm colours count as wrong (D1). Half as bright: what the right view "
        f'does not see, where that is known. Black: no truth.</p>\n<ol class="colors">{items}</ol>\n'
    )


def _example(example: Example) -> str:
    images = []
    layout = ""
    for panel in example.panels:
        uri, width, height = data_uri(panel)
        if panel.kind == "crop":
            layout = " crops"
        elif width >= _WIDE * height:
            layout = layout or " wide"
        kind = ' class="crop"' if panel.kind == "crop" else ""
        images.append(
            f'<div><img{kind} src="{uri}" width="{width}" height="{height}" '
            f'alt="{escape(panel.title)}: {escape(example.name)}"><p>{escape(panel.title)}</p></div>'
        )
    return (
        f'<figure class="example"><figcaption><b>{escape(example.name)}</b><span>{escape(example.caption)}'
        f'</span></figcaption><div class="panels{layout}">{"".join(images)}</div></figure>'
    )


def _definitions(data: ReportData) -> str:
    notes = {
        column.heading: column.note
        for table in (data.summary, data.images)
        for column in table.columns
        if column.note
    }
    if not notes:
        return ""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(note)}</dd>" for name, note in notes.items())
    return _section("How the figures are defined", f'<dl class="definitions">{items}</dl>')
