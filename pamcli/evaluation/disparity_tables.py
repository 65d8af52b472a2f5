"""Make the tables and charts that only evaluations of disparity have."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pamcli.evaluation.disparity_metrics import BAD_THRESHOLDS, METRICS, DisparityMeter
from pamcli.evaluation.loop import MeasuredSet
from pamcli.evaluation.pixels import COMPUTED_REGIONS, FRACTIONS, REGIONS, count_between, name_ranges
from pamcli.evaluation.protocols import POOLED, PROTOCOLS
from pamcli.evaluation.report_charts import ERROR_EDGES, CurveChart, Histogram
from pamcli.evaluation.results import Evaluation
from pamcli.evaluation.tables import (
    Column,
    Table,
    Value,
    flatten,
    make_text_columns,
    to_json_row,
    to_json_rows,
    to_json_value,
)

Measured = MeasuredSet[DisparityMeter]

DISTANCES = (0.0, 16.0, 32.0, 64.0, 128.0, math.inf)  # edges of ground-truth ranges, px, far to near

QUANTILES = ("a50", "a90", "a95", "a99")
HEADLINES = (
    ("epe", "d1", "bad-2", "density", "pixels", "bad-3", "bad-1", "rms", "bad-4", "bad-0.5"),
    QUANTILES,
    (
        *("ause-epe", "ause-bad-2"),
        *(f"{kind}-{share}" for kind in ("visible", "occluded") for share in ("precision", "recall")),
    ),
)
"""Metrics of the three terminal tables, most important first; every other output has all metrics."""

UNITS = {
    "pixels": ("", 0),
    **dict.fromkeys(("epe", "rms", *QUANTILES), ("px", 2)),
    **dict.fromkeys(("ause-epe", "ause-bad-2"), ("", 3)),
}
"""Units and decimals of metrics; the others are in percent with two decimals."""
CAPITALS = {"epe", "d1", *QUANTILES}  # metrics whose titles are written in capitals

REGION_COLUMN = Column("region", "region", text=True, note="; ".join(f"{k}: {v}" for k, v in REGIONS.items()))


def _make_column(key: str) -> Column:
    """Return the column of a `METRICS` key, optionally after a region, as in "noc d1"."""
    region, _, metric = key.rpartition(" ")
    title = metric.upper() if metric in CAPITALS else metric
    return Column(key, f"{region} {title}".strip(), *UNITS.get(metric, ("%", 2)), note=METRICS[metric])


COLUMNS = {
    key: _make_column(key)
    for key in flatten({region: dict.fromkeys(METRICS, math.nan) for region in REGIONS})
}
"""The columns of all metrics: "d1" for all pixels, "noc d1"."""


def add_figures(page: Evaluation, sets: Sequence[Measured], protocols: Sequence[str]) -> Evaluation:
    """Add the metrics for JSON, a note on the regions, and the table of the named protocols."""
    named = filter(REGIONS.__contains__, dict.fromkeys(str(row["region"]) for row in page.summary.rows))
    notes = [f"region: {'; '.join(f'{each}: {REGIONS[each]}' for each in named)}", *page.notes]
    numbers = {"sets": [each for one in sets for each in _list_numbers(one)], **page.numbers}
    if not protocols:
        return replace(page, notes=tuple(notes), numbers=numbers)
    several = any(len(one.methods) > 1 for one in sets)
    columns = make_text_columns("data", *(["method"] if several else []), "region", "figure")
    rows = [row for one in sets for method in one.methods for row in _make_stated_rows(one, method)]
    protocol_columns, described = [], {}
    for name in protocols:
        about, source = PROTOCOLS[name].about, PROTOCOLS[name].source
        figures = [
            {**{each.key: row[each.key] for each in columns}, "value": to_json_value(row[name])}
            for row in rows
            if name in row
        ]
        described[name] = {"about": about, "source": source, "figures": figures}
        protocol_columns.append(Column(name, name, note=f"{about} ({source})"))
    return replace(
        page,
        sections=(Table((*columns, *protocol_columns), tuple(rows), "By protocol"),),
        notes=(*(f"{each.key}: {each.note}" for each in protocol_columns), *notes),
        numbers={**numbers, "protocols": described},
    )


def add_means(page: Evaluation) -> Evaluation:
    """Print one row per data set in place of the other tables: means of the images, over all pixels."""
    rows = {row["data"]: row for row in page.summary.rows if row["region"] == "all"}  # the last: image means
    columns = (*make_text_columns("data"), *(COLUMNS[key] for key in ("d1", "bad-2", "epe")))
    note = "Means over the images, all pixels."
    return replace(page, sections=(Table(columns, tuple(rows.values()), "By camera", note), *page.sections))


def _list_numbers(one: Measured) -> Iterator[dict[str, Any]]:
    """Yield the metrics of each method for JSON, with its name if there are several."""
    for name, total in one.methods.items():
        regions = total.pooled_metrics
        yield {
            "data": one.label,
            **({"method": name} if len(one.methods) > 1 else {}),
            "images": total.image_counts["all"],
            "pooled": {region: to_json_row(figures) for region, figures in regions.items()},
            "image_means": {region: to_json_row(total.image_means[region]) for region in regions},
            "region_images": {region: total.image_counts[region] for region in regions},
            "notes": list(one.notes),
        }


def _make_stated_rows(one: Measured, method: str) -> list[dict[str, Value]]:
    """Return a row for each metric that a protocol states, and each region that has pixels."""
    found: dict[tuple[str, str], dict[str, Value]] = {}
    for name, meter in one.meters[method].items():
        for each in meter.protocol.stated if name else ():
            figures = meter.pooled_metrics if each.average == POOLED else meter.image_means
            if each.region in figures:
                unit = COLUMNS[each.metric].unit
                title = f"{each.called} ({unit})" if unit else each.called
                row = {"data": one.label, "method": method, "region": each.region, "figure": title}
                found.setdefault((each.region, title), {**row})[name] = figures[each.region][each.metric]
    return [*found.values()]


def make_charts(one: Measured) -> Iterator[Histogram | CurveChart]:
    """Yield the histogram of errors and, if there is confidence, the sparsification curve."""
    meter = one.meter
    histogram = meter.histograms["all"]
    without = max(round(meter.pooled_metrics["all"]["pixels"] - histogram[0].sum()), 0)
    counts = count_between(histogram, ERROR_EDGES)
    yield Histogram(f"{one.label}: errors", ERROR_EDGES, counts, meter.protocol.wrong_from, without)
    if (curve := meter.curve()) is not None:
        yield CurveChart(
            f"{one.label}: error of the remaining pixels after removing the least confident",
            tuple(100 * fraction for fraction in FRACTIONS),
            {"by confidence": curve.epe.tolist(), "oracle": curve.epe_oracle.tolist()},
            "pixels removed (%)",
            "end-point error (px)",
            f"AUSE {curve.areas()['ause-epe']:.3f}: area between the curves, relative to the overall error.",
        )


def add_regions(page: Evaluation, sets: Sequence[Measured], figure: Column) -> Evaluation:
    """Add a table of a metric by image region, one column per method, and the charts of bad pixels."""
    rows: list[dict[str, Value]] = []
    notes, charts = [], []
    for one in sets:
        pooled = {name: total.pooled_metrics for name, total in one.methods.items()}
        first = next(iter(pooled.values()))
        ranges = [*name_ranges(one.meter.protocol.ranges)]
        # Regions that only some data sets define: those of Spring and Booster.
        others = [name for name in first if name.startswith(("class-", "low-", "high-", "sky", "not-sky"))]
        for part in ("all", "noc", "occluded", "bg", "fg", *COMPUTED_REGIONS, *others, *ranges):
            if part in first:
                row: dict[str, Value] = {"data": one.label, "part": f"{part} px" if part in ranges else part}
                row["pixels"] = first[part]["pixels"]
                rows.append(row | {name: each[part][figure.key] for name, each in pooled.items()})
        for name, total in one.methods.items():
            missing = 100 - total.image_means["all"]["density"]
            if missing > 0 and not total.protocol.fill:
                pixels = f"the {missing:.2g} % of pixels without an estimate"
                notes.append(f"{one.label}: mean errors of {name} ignore {pixels}")
        curves = {
            name: [figures["all"][f"bad-{threshold:g}"] for threshold in BAD_THRESHOLDS]
            for name, figures in itertools.islice(pooled.items(), 3)
        }
        title = f"{one.label}: pixels with a larger error"
        axes = "error (px)", "pixels with a larger error (%)"
        caption = "" if len(pooled) <= 3 else "Only the first three methods are shown."
        charts.append(CurveChart(title, BAD_THRESHOLDS, curves, *axes, caption))
    methods = (Column(name, name, figure.unit, figure.decimals) for name in sets[0].methods)
    columns = (*make_text_columns("data", "part"), Column("pixels", "pixels", decimals=0), *methods)
    note = f"{figure.heading}, {POOLED} over all pixels of each region."
    parts = Table(columns, tuple(rows), "Errors by region", note)
    return replace(
        page,
        sections=(parts, *page.sections),
        charts=(*charts, *page.charts),
        notes=(*notes, *page.notes),
        numbers={**page.numbers, "comparison": {"parts": to_json_rows(parts)}},
    )
