"""Make the tables and charts that only evaluations of disparity have."""

import itertools
import math
from collections.abc import Sequence

from pamcli.evaluation.disparity_metrics import BAD, METRICS, QUANTILES, DisparityMeter
from pamcli.evaluation.loop import MeasuredSet
from pamcli.evaluation.pixels import FRACTIONS, REGIONS, compute_sparsification, count_between, name_ranges
from pamcli.evaluation.protocols import POOLED, PROTOCOLS
from pamcli.evaluation.report_charts import ERROR_EDGES, Chart, make_curves, make_histogram
from pamcli.evaluation.results import Column, Evaluation, Table, Value, make_text_columns

Measured = MeasuredSet[DisparityMeter]
Rows = list[dict[str, Value]]

DISTANCES = (0.0, 16.0, 32.0, 64.0, 128.0, math.inf)  # edges of ground-truth ranges, px, far to near
STUDY_RANGES = (0.0, 16.0, 32.0, 64.0, 96.0, 128.0, 192.0, math.inf)  # the same for the study "range"
RESOLUTIONS = (0.25, 0.5, 1.0, 1.5, 2.0)  # scale factors of the images for the study "resolution"
STUDIED = ("d1", "epe", "bad-2", "bad-3")  # metrics of the studies

HEADLINES = (
    ("epe", "d1", "bad-2", "density", "pixels", "bad-3", "bad-1", "rms", "bad-4", "bad-0.5"),
    tuple(QUANTILES),
    (
        *("ause-epe", "ause-bad-2"),
        *(f"{kind}-{share}" for kind in ("visible", "occluded") for share in ("precision", "recall")),
    ),
)
"""Metrics of the three terminal tables, most important first.

LaTeX and Markdown have the first table; CSV, JSON and the report have all metrics.
"""

UNITS = {
    "pixels": ("", 0),
    **dict.fromkeys(("epe", "rms", *QUANTILES), ("px", 2)),
    **dict.fromkeys(("ause-epe", "ause-bad-2"), ("", 3)),
}
"""Units and decimals of metrics; the others are in percent with two decimals."""
CAPITALS = {"epe", "d1", *QUANTILES}  # metrics whose titles are written in capitals

COLUMNS = {
    f"{region} {metric}".removeprefix("all "): Column(
        f"{region} {metric}".removeprefix("all "),
        f"{region} {metric.upper() if metric in CAPITALS else metric}".removeprefix("all "),
        *UNITS.get(metric, ("%", 2)),
        note=note,
    )
    for region in REGIONS
    for metric, note in METRICS.items()
}
"""The columns of all metrics: "d1" for all pixels, "noc d1"."""


def add_protocols(page: Evaluation, sets: Sequence[Measured], protocols: Sequence[str]) -> None:
    """Add a table with a row for each metric that a protocol states, and a column for each protocol."""
    found: dict[tuple[str, ...], dict[str, Value]] = {}
    for one in sets:
        for (method, total), name in itertools.product(one.methods.items(), protocols):
            meter = total.by_protocol[name]
            for each in meter.protocol.stated:
                figures = meter.pooled_metrics if each.average == POOLED else meter.image_means
                if each.region in figures:
                    unit = COLUMNS[each.metric].unit
                    title = f"{each.called} ({unit})" if unit else each.called
                    row = {"data": one.label, "method": method, "region": each.region, "figure": title}
                    found.setdefault(tuple(row.values()), {**row})[name] = figures[each.region][each.metric]
    several = len(sets[0].methods) > 1
    columns = make_text_columns("data", *(["method"] if several else []), "region", "figure")
    protocol_columns = []
    page.numbers["protocols"] = {}
    for name in protocols:
        about, source = PROTOCOLS[name].about, PROTOCOLS[name].source
        stated = [
            {**{each.key: row[each.key] for each in columns}, "value": row[name]}
            for row in found.values()
            if name in row
        ]
        page.numbers["protocols"][name] = {"about": about, "source": source, "figures": stated}
        protocol_columns.append(Column(name, name, note=f"{about} ({source})"))
    page.sections.append(Table([*columns, *protocol_columns], [*found.values()], "By protocol"))
    page.notes[:0] = [f"{each.key}: {each.note}" for each in protocol_columns]


def add_means(page: Evaluation) -> None:
    """Print one row per data set in place of the other tables: means of the images, over all pixels."""
    rows = {row["data"]: row for row in page.summary.rows if row["region"] == "all"}  # the last: image means
    columns = [*make_text_columns("data"), *(COLUMNS[key] for key in ("d1", "bad-2", "epe"))]
    note = "Means over the images, all pixels."
    page.sections.insert(0, Table(columns, [*rows.values()], "By camera", note))


def make_charts(one: Measured) -> list[Chart]:
    """Return the histogram of errors and, if there is confidence, the sparsification curve."""
    meter = one.meter
    histogram = meter.histograms["all"]
    without = max(round(meter.pooled_metrics["all"]["pixels"] - histogram[0].sum()), 0)
    counts = count_between(histogram, ERROR_EDGES)
    wrong_from = meter.protocol.wrong_from
    charts = [make_histogram(f"{one.label}: errors", ERROR_EDGES, counts, wrong_from, without)]
    if curve := compute_sparsification(meter.by_confidence, meter.confidence_errors):
        charts.append(
            make_curves(
                f"{one.label}: error of the remaining pixels after removing the least confident",
                [100 * fraction for fraction in FRACTIONS],
                {"by confidence": curve.epe.tolist(), "oracle": curve.epe_oracle.tolist()},
                "pixels removed (%)",
                "end-point error (px)",
                f"AUSE {curve.areas['ause-epe']:.3f}: "
                "area between the curves, relative to the overall error.",
            )
        )
    return charts


def add_regions(page: Evaluation, sets: Sequence[Measured], figure: Column) -> None:
    """Add a table of a metric by image region, one column per method, and the charts of bad pixels."""
    rows: Rows = []
    notes, charts = [], []
    for one in sets:
        pooled = {name: total.pooled_metrics for name, total in one.methods.items()}
        first = next(iter(pooled.values()))
        ranges = [*name_ranges(one.meter.protocol.ranges)]
        # Regions that only some data sets define: those of Spring and Booster.
        others = [name for name in first if name.startswith(("class-", "low-", "high-", "sky", "not-sky"))]
        for part in ("all", "noc", "occluded", "bg", "fg", "edges", "textureless", *others, *ranges):
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
            name: [figures["all"][metric] for metric in BAD]
            for name, figures in itertools.islice(pooled.items(), 3)
        }
        title = f"{one.label}: pixels with a larger error"
        axes = "error (px)", "pixels with a larger error (%)"
        caption = "" if len(pooled) <= 3 else "Only the first three methods are shown."
        charts.append(make_curves(title, [*BAD.values()], curves, *axes, caption))
    methods = (Column(name, name, figure.unit, figure.decimals) for name in sets[0].methods)
    columns = [*make_text_columns("data", "part"), Column("pixels", "pixels", decimals=0), *methods]
    note = f"{figure.heading}, {POOLED} over all pixels of each region."
    parts = Table(columns, rows, "Errors by region", note)
    page.sections.insert(0, parts)
    page.charts[:0] = charts
    page.notes[:0] = notes
    page.numbers["comparison"] = {"parts": parts}


def add_study(page: Evaluation, kind: str, sets: Sequence[Measured]) -> None:
    """Add a table like Tables 6 and 7 of the paper for all data sets, and a chart for each set.

    resolution: accuracy and time at 0.25 to 2 times the image size. range: accuracy by range of the ground
    truth, and with fixed maximum disparities.
    """
    columns = make_text_columns("data")
    if kind == "resolution":
        columns += [Column("resolution", "resolution", "x"), Column("seconds", "time", "s", 3)]
    else:
        columns += [*make_text_columns("maximum"), Column("truth", "ground truth (px)", text=True)]
        columns += [Column("pixels", "pixels", decimals=0)]
    rows: Rows = []
    charts = []
    for one in sets:
        found, chart = (_study_ranges if kind == "range" else _study_resolutions)(one)
        rows += found
        charts.append(chart)
    table = Table([*columns, *(COLUMNS[key] for key in STUDIED)], rows)
    page.studies.append(table)
    page.charts[:0] = charts
    page.numbers["study"] = {"kind": kind, "rows": table}


def _study_resolutions(one: Measured) -> tuple[Rows, Chart]:
    rows: Rows = []
    curves: dict[str, list[float]] = {"D1": [], "bad-2": []}
    for factor in RESOLUTIONS:
        meter = one.meter if factor == 1 else one.variants[factor]
        times = [image.seconds for image in meter.images if image.seconds is not None]
        seconds = sum(times) / len(times) if times else None
        figures = {key: meter.pooled_metrics["all"][key] for key in STUDIED}
        rows.append({"data": one.label, "resolution": factor, "seconds": seconds, **figures})
        for name, line in curves.items():
            line.append(figures[name.lower()])
    caption = "Images are resized for the network alone; errors are at full size."
    title = f"{one.label}: resolution"
    return rows, make_curves(
        title, RESOLUTIONS, curves, "factor of the image size", "bad pixels (%)", caption
    )


def _study_ranges(one: Measured) -> tuple[Rows, Chart]:
    runs = {"as measured": one.meter, **{f"{limit:g} px": each for limit, each in one.variants.items()}}
    edges = {
        region: low for region, low in name_ranges(STUDY_RANGES).items() if region in one.meter.pooled_metrics
    }
    rows: Rows = []
    curves = {}
    for name, each in runs.items():
        for region in (*edges, "all"):
            figures = {key: each.pooled_metrics[region][key] for key in ("pixels", *STUDIED)}
            rows.append({"data": one.label, "maximum": name, "truth": region, **figures})
        line = [each.pooled_metrics[region]["d1"] for region in edges]
        curves[f"maximum {name}" if len(runs) > 1 else "D1"] = line
    caption = "Each point is at the lower edge of its range of ground truth."
    axes = "ground truth (px)", "D1 (%)"
    return rows, make_curves(f"{one.label}: range of disparity", [*edges.values()], curves, *axes, caption)
