"""The tables and charts of measured disparity."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pamcli.evaluation.disparity_metrics import METRICS, REGIONS, DisparitySummary
from pamcli.evaluation.error_distributions import FRACTIONS
from pamcli.evaluation.figures import Figures, flat
from pamcli.evaluation.report_charts import ERROR_EDGES, Curve, CurveChart, Histogram
from pamcli.evaluation.run import MeasuredSet
from pamcli.evaluation.tables import Column, Value, json_row

Measured = MeasuredSet[DisparitySummary]

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


WORDS = (
    Column("region", "region", text=True, note="; ".join(f"{k}: {v}" for k, v in REGIONS.items())),
    Column("average", "average", text=True, note=f"{POOLED}: over all pixels of the set"),
    Column("pictures", "pictures", decimals=0, note="that have the region"),
)


def rows(total: DisparitySummary) -> Iterator[dict[str, Value]]:
    """Yield a row of the summary for each way of averaging and region."""
    for average, figures in ((POOLED, total.pooled), (MEANS, total.image_means)):
        for region in filter(figures.__contains__, REGIONS):
            pictures = total.region_images[region]
            yield {"region": region, "average": average, "pictures": pictures, **figures[region]}


def numbers(sets: Sequence[Measured]) -> list[dict[str, Any]]:
    """Give each set's figures for JSON; the method is named where there are several."""

    def plain(figures: Figures) -> Mapping[str, Any]:
        return {region: json_row(values) for region, values in figures.items()}

    return [
        {
            "data": one.label,
            **({"method": name} if len(one.methods) > 1 else {}),
            "pictures": found.counted,
            "pooled": plain(found.pooled),
            "image_means": plain(found.image_means),
            "region_pictures": dict(found.region_images),
            "notes": list(one.notes),
        }
        for one in sets
        for name, found in one.methods.items()
    ]


def charts(sets: Sequence[Measured]) -> Iterator[Histogram | CurveChart]:
    """Draw each set's histogram of errors and, where confidence was given, its sparsification curve."""
    for one in sets:
        summary = one.last
        counts = tuple(summary.errors.between(list(ERROR_EDGES)))
        without = max(round(summary.pooled["all"]["pixels"]) - int(summary.errors.counts.sum()), 0)
        yield Histogram(f"{one.label}: errors", ERROR_EDGES, counts, summary.wrong_from, without)
        if (curve := summary.curve) is not None:
            removed = tuple(100 * fraction for fraction in FRACTIONS)
            yield CurveChart(
                f"{one.label}: error of what stays when the least confident go",
                (Curve("by confidence", removed, curve.epe), Curve("oracle", removed, curve.epe_oracle)),
                "pixels removed (%)",
                "end-point error (px)",
                f"AUSE {curve.ause_epe:.3f}: the area between both, relative to the error of all.",
            )


def figure_column(key: str) -> Column:
    """Describe a figure of `METRICS`, or that of another region, as "noc d1"."""
    region, _, metric = key.rpartition(" ")
    unit, decimals = UNITS.get(metric, "%"), 2
    if metric == "pixels":
        unit, decimals = "", 0
    elif metric.startswith("ause"):
        unit, decimals = "", 3
    title = metric.upper() if metric in UPPER else metric
    return Column(key, f"{region} {title}".strip(), unit, decimals, note=METRICS[metric])


COLUMNS = {
    key: figure_column(key) for key in flat({region: dict.fromkeys(METRICS, math.nan) for region in REGIONS})
}
