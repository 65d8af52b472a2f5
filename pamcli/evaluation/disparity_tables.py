"""The tables and charts of measured disparity."""

import math
from dataclasses import dataclass
from typing import Any

from pamcli.evaluation.disparity_metrics import METRICS, REGIONS, DisparitySummary, Figures, ImageFigures
from pamcli.evaluation.error_distributions import FRACTIONS
from pamcli.evaluation.report_charts import ERROR_EDGES, Curve, CurveChart, Histogram
from pamcli.evaluation.tables import Column, Table, Value, flat, json_row, shown_value

POOLED, MEANS = "pooled", "mean of pictures"
"""The two ways of averaging, as every table names them; pooled over all pixels is the headline."""

HEADLINE = ("epe", "d1", "bad-2", "bad-3", "density", "bad-1", "rms", "bad-4", "bad-0.5")
SPREAD = ("a50", "a90", "a95", "a99")
TRUST = (
    "ause-epe",
    "ause-bad-2",
    "visible-precision",
    "visible-recall",
    "occluded-precision",
    "occluded-recall",
)
"""The figures of the three tables on the terminal, the most telling first; all others have all of them."""

UNITS = {"epe": "px", "rms": "px", "a50": "px", "a90": "px", "a95": "px", "a99": "px"}
"""Of figures in another unit than percent; the areas and the number of pixels have none."""
UPPER = {"epe", "d1", *SPREAD}
"""Figures whose names are capitals."""


@dataclass(frozen=True)
class MeasuredSet:
    """What a method reaches on a data set."""

    label: str
    summary: DisparitySummary
    images: tuple[ImageFigures, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    wrong_from: float = 2.0
    """px: what the set's benchmark counts as wrong."""


def key_figures(sets: list[MeasuredSet]) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Of each set the few figures to see first."""
    return tuple(
        (
            f"{one.label}, {POOLED}",
            tuple(
                (figure_column(key).heading, shown_value(one.summary.pooled["all"][key], 2))
                for key in ("d1", "bad-2", "epe", "density")
            ),
        )
        for one in sets
    )


def headline(sets: list[MeasuredSet]) -> tuple[Table, ...]:
    """What a terminal shows."""
    return tuple(table for part in (HEADLINE, SPREAD, TRUST) if (table := summary_table(sets, part)).rows)


def numbers(one: MeasuredSet) -> dict[str, Any]:
    """A set's figures for JSON."""
    summary = one.summary

    def plain(figures: Figures) -> dict[str, Any]:
        return {region: json_row(values) for region, values in figures.items()}

    return {
        "data": one.label,
        "pictures": summary.images,
        "pooled": plain(summary.pooled),
        "image_means": plain(summary.image_means),
        "region_pictures": dict(summary.region_images),
        "notes": list(one.notes),
    }


def summary_table(sets: list[MeasuredSet], metrics: tuple[str, ...] | None = None) -> Table:
    """A row for each set, region and way of averaging. metrics: which columns; None = all with a value."""
    rows: list[dict[str, Value]] = [
        {
            "data": one.label,
            "region": region,
            "average": name,
            "pictures": one.summary.region_images[region],
            **{key: value for key, value in figures[region].items() if key in (metrics or METRICS)},
        }
        for one in sets
        for name, figures in ((POOLED, one.summary.pooled), (MEANS, one.summary.image_means))
        for region in REGIONS
        if region in figures and (metrics is None or set(metrics) & set(figures[region]))
    ]
    keys = [key for key in metrics or METRICS if any(key in row for row in rows)]
    words = (
        Column("data", "data", text=True),
        Column("region", "region", text=True, note="; ".join(f"{k}: {v}" for k, v in REGIONS.items())),
        Column("average", "average", text=True, note=f"{POOLED}: over all pixels of the set"),
        Column("pictures", "pictures", decimals=0, note="that have the region"),
    )
    return Table((*words, *map(figure_column, keys)), tuple(rows))


def images_table(sets: list[MeasuredSet]) -> Table:
    """A row for each picture: the figures of all its pixels, those of other regions as "noc d1"."""
    rows: list[dict[str, Value]] = []
    for one in sets:
        for image in one.images:
            figures = flat({region: image.regions[region] for region in REGIONS if region in image.regions})
            rows.append({"data": one.label, "name": image.name, "seconds": image.seconds, **figures})
    keys = flat({region: dict.fromkeys(METRICS, math.nan) for region in REGIONS})
    used = [key for key in keys if any(key in row for row in rows)]
    words = (Column("data", "data", text=True), Column("name", "name", text=True))
    return Table((*words, Column("seconds", "time", "s", 3), *map(figure_column, used)), tuple(rows))


def charts(sets: list[MeasuredSet]) -> tuple[Histogram | CurveChart, ...]:
    """Of each set the errors' histogram and, where confidence was given, its sparsification curve."""
    drawn: list[Histogram | CurveChart] = []
    for one in sets:
        errors, curve = one.summary.errors, one.summary.curve
        counts = tuple(errors.between(list(ERROR_EDGES)))
        without = max(round(one.summary.pooled["all"]["pixels"]) - int(errors.counts.sum()), 0)
        drawn.append(Histogram(f"{one.label}: errors", ERROR_EDGES, counts, one.wrong_from, without))
        if curve is not None:
            removed = tuple(100 * fraction for fraction in FRACTIONS)
            drawn.append(
                CurveChart(
                    f"{one.label}: error of what stays when the least confident go",
                    (Curve("by confidence", removed, curve.epe), Curve("oracle", removed, curve.epe_oracle)),
                    "pixels removed (%)",
                    "end-point error (px)",
                    f"AUSE {curve.ause_epe:.3f}: the area between both, relative to the error of all.",
                )
            )
    return tuple(drawn)


def figure_column(key: str) -> Column:
    """Of a figure of `METRICS`, or that of another region, as "noc d1"."""
    region, _, metric = key.rpartition(" ")
    unit, decimals = UNITS.get(metric, "%"), 2
    if metric == "pixels":
        unit, decimals = "", 0
    elif metric.startswith("ause"):
        unit, decimals = "", 3
    title = metric.upper() if metric in UPPER else metric
    return Column(key, f"{region} {title}".strip(), unit, decimals, note=METRICS[metric])
