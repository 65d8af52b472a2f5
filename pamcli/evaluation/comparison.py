"""Methods side by side: their figures, paired differences with 95 % intervals, errors by part of the picture.

Differences are paired: of each picture, a method's figure minus that of the first method. Pictures of one
scene are alike, so scenes are drawn, not pictures: the interval is a studentised bootstrap of the (weighted)
mean, whose spread is the jackknife's over scenes (Efron and Tibshirani 1993, Sections 12.5 and 11.5). Plain
percentiles of few scenes are too narrow: of 12 scenes they hold the truth in 86 to 91 of 100 draws.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.evaluation.disparity_metrics import BAD_THRESHOLDS, DisparitySummary
from pamcli.evaluation.protocols import POOLED
from pamcli.evaluation.regions import FOUND, range_regions
from pamcli.evaluation.report_charts import Curve, CurveChart
from pamcli.evaluation.run import MeasuredSet
from pamcli.evaluation.tables import Column, Table, TitledTable, Value, json_value

Measured = MeasuredSet[DisparitySummary]

FIGURES = ("d1", "epe", "bad-2")
"""What is compared, behind what the protocol states: three figures."""

DISTANCES = (0.0, 16.0, 32.0, 64.0, 128.0, math.inf)
"""Edges of the ranges of the truth, px, in which errors are given: far to near."""

DRAWS = 2000
LEAST_SCENES = 5
"""Fewer scenes give no interval."""


@dataclass(frozen=True)
class Difference:
    """How much a figure of one method exceeds that of another, in the mean of the pictures."""

    mean: float
    low: float
    """Lower end of the 95 % interval; NaN: there are too few scenes."""
    high: float
    pictures: int
    scenes: int

    def text(self, decimals: int) -> str:
        """Write it as people read it: "+1.20 [+0.80, +1.70]"."""
        mean, low, high = (f"{value:+.{decimals}f}" for value in (self.mean, self.low, self.high))
        return mean if math.isnan(self.low) else f"{mean} [{low}, {high}]"


def mean_interval(
    values: NDArray[np.floating],
    scenes: Sequence[object],
    weights: NDArray[np.floating] | None = None,
    *,
    draws: int = DRAWS,
) -> tuple[float, float]:
    """Find the 95 % interval of a weighted mean, drawing scenes.

    values: (N,); scenes: which scene each belongs to, N of them; weights: (N,), by default 1. Returns both
    ends; NaN where there are fewer than `LEAST_SCENES` scenes.
    """
    places, which = np.unique(np.asarray([str(scene) for scene in scenes]), return_inverse=True)
    count = len(places)
    if count < LEAST_SCENES:
        return math.nan, math.nan
    given = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    sums = np.bincount(which, given * values, minlength=count)
    sizes = np.bincount(which, given, minlength=count)
    mean = sums.sum() / sizes.sum()
    without = (sums.sum() - sums) / (sizes.sum() - sizes)
    spread = math.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    if spread == 0:
        return float(mean), float(mean)
    drawn = np.random.default_rng(0).integers(0, count, (draws, count))
    sums, sizes = sums[drawn], sizes[drawn]
    means = sums.sum(axis=1) / sizes.sum(axis=1)
    spreads = np.sqrt(((sums - means[:, None] * sizes) ** 2).sum(axis=1)) / sizes.sum(axis=1)
    # Draws of scenes that hardly differ have no spread of their own; a quarter of all scenes' is the least.
    ratios = (means - mean) / np.maximum(spreads, spread / 4)
    low, high = np.quantile(ratios, [0.025, 0.975], method="inverted_cdf")
    return float(mean - high * spread), float(mean - low * spread)


def difference(one: Measured, method: str, other: str, metric: str) -> Difference | None:
    """Compare a method with another one by a figure of all pixels; None: no picture has it of both."""
    pairs = zip(one.methods[method].images, one.methods[other].images, strict=True)
    found = [
        (image.name, image.figures["all"][metric] - of_other.figures["all"][metric])
        for image, of_other in pairs
        if "all" in image.figures and "all" in of_other.figures
    ]
    found = [(name, value) for name, value in found if math.isfinite(value)]
    if not found:
        return None
    names = [name for name, _ in found]
    scenes = [one.source.scene(name) for name in names]
    by_name = one.methods[method].protocol.weights
    weights = np.array([by_name.get(name.rpartition("/")[2], 1.0) for name in names])
    values = np.array([value for _, value in found])
    interval = mean_interval(values, scenes, weights)
    return Difference(float(np.average(values, weights=weights)), *interval, len(names), len({*scenes}))


def compared(
    sets: Sequence[Measured], columns: Mapping[str, Column]
) -> tuple[tuple[TitledTable, ...], list[CurveChart], dict[str, Any]]:
    """Make the table of methods, that of the parts of the pictures, charts, and all of it for JSON.

    columns: those of the figures.
    """
    first, *_ = names = [*sets[0].methods]
    rows: list[dict[str, Value]] = []
    numbers = []
    metrics = _metrics(sets[0])
    for one in sets:
        for name, total in one.methods.items():
            row = {"data": one.label, "method": name} | _costs(total)
            row |= {metric: total.image_means["all"].get(metric) for metric in (*metrics, "density")}
            differences = {} if name == first else {m: difference(one, name, first, m) for m in metrics}
            for metric, each in differences.items():
                row[f"{metric}-first"] = None if each is None else each.text(columns[metric].decimals)
            rows.append(row)
            numbers.append(
                {key: json_value(value) for key, value in row.items() if not key.endswith("-first")}
                | {
                    "differences": {
                        m: None if each is None else _plain(each) for m, each in differences.items()
                    }
                }
            )
    head = metrics[0]
    table = Table(
        (
            Column("data", "data", text=True),
            Column("method", "method", text=True),
            columns[head],
            _beyond(columns[head], first),
            *(columns[metric] for metric in metrics[1:]),
            Column("seconds", "time", "s", 3),
            Column(
                "megabytes", "memory", "MB", 0, note="most that was taken for a pair beyond what was held"
            ),
            *(_beyond(columns[metric], first) for metric in metrics[1:]),
            columns["density"],
        ),
        tuple(rows),
    )
    parts = _by_part(sets, names, columns[head])
    said = (
        f"Means of the pictures. Differences to {first} are paired by picture, with 95 % intervals by scenes."
    )
    where = f"{columns[head].heading}, {POOLED} over all pixels of each part."
    return (
        (TitledTable("Methods side by side", table, said), TitledTable("Errors by part", parts, where)),
        [_chart(one) for one in sets],
        {"reference": first, "methods": numbers, "parts": [_cells(parts, row) for row in parts.rows]},
    )


def notes(sets: Sequence[Measured]) -> list[str]:
    """Say how the intervals were found, of each set."""
    said = []
    for one in sets:
        scenes = {one.source.scene(image.name) for image in one.last.images if image.figures}
        if len(scenes) < LEAST_SCENES:
            said.append(f"{one.label}: {len(scenes)} scenes are too few for intervals of the differences")
        else:
            drawn = f"bootstrap of {len(scenes)} scenes, {DRAWS:,} draws"
            said.append(f"{one.label}: intervals hold the true mean difference in 95 % of cases, {drawn}")
    return said


def _metrics(one: Measured) -> list[str]:
    stated = [each.metric for each in one.last.protocol.stated if each.region == "all"]
    return [*dict.fromkeys((*stated, *FIGURES))][:3]


def _costs(total: DisparitySummary) -> dict[str, Value]:
    seconds = [image.seconds for image in total.images if image.seconds is not None]
    memory = [image.memory for image in total.images if image.memory is not None]
    return {
        "seconds": sum(seconds) / len(seconds) if seconds else None,
        # With the first pair libraries are loaded, too.
        "megabytes": max(memory[1:] or memory) / 1e6 if memory else None,
    }


def _beyond(column: Column, first: str) -> Column:
    return Column(f"{column.key}-first", f"{column.title} beyond {first}", column.unit, text=True)


def _by_part(sets: Sequence[Measured], names: Sequence[str], figure: Column) -> Table:
    rows: list[dict[str, Value]] = []
    for one in sets:
        totals = [total.pooled for total in one.methods.values()]
        ranges = [*range_regions(one.last.protocol.ranges)]
        for part in ("all", "noc", "occluded", "bg", "fg", *FOUND, *_told(totals[0]), *ranges):
            if part in totals[0]:
                row: dict[str, Value] = {"data": one.label, "part": f"{part} px" if part in ranges else part}
                row["pixels"] = totals[0][part]["pixels"]
                rows.append(row | {n: each[part][figure.key] for n, each in zip(names, totals, strict=True)})
    words = (Column("data", "data", text=True), Column("part", "part", text=True))
    each = (Column(name, name, figure.unit, figure.decimals) for name in names)
    return Table((*words, Column("pixels", "pixels", decimals=0), *each), tuple(rows))


def _told(figures: Mapping[str, object]) -> list[str]:
    """Parts that only some data tell: Spring's and Booster's."""
    return [name for name in figures if name.startswith(("class-", "low-", "high-", "sky", "not-sky"))]


def _chart(one: Measured) -> CurveChart:
    x = tuple(map(float, BAD_THRESHOLDS))
    curves = [
        Curve(name, x, tuple(total.pooled["all"][f"bad-{t:g}"] for t in BAD_THRESHOLDS))
        for name, total in one.methods.items()
    ]
    caption = "" if len(curves) <= 3 else "The first three methods are drawn."
    title = f"{one.label}: pixels with a larger error"
    return CurveChart(title, tuple(curves[:3]), "error (px)", "pixels above it (%)", caption)


def _plain(each: Difference) -> dict[str, Any]:
    return {key: json_value(value) for key, value in vars(each).items()}


def _cells(table: Table, row: Mapping[str, Value]) -> dict[str, Any]:
    return {column.key: json_value(row.get(column.key)) for column in table.columns}
