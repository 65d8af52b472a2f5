"""Compare methods: metrics, paired differences with 95 % intervals, errors by image region.

Differences are paired: for each image, a method's metric minus that of the first method. Images of one scene
are correlated, so the bootstrap resamples scenes: the interval is a studentised bootstrap of the (weighted)
mean with the jackknife's spread over scenes (Efron and Tibshirani 1993, Sections 12.5 and 11.5). Plain
percentiles are too narrow for few scenes: with 12 scenes they cover the true mean in 86 to 91 % of draws.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.evaluation.disparity_metrics import BAD_THRESHOLDS, DisparitySummary
from pamcli.evaluation.protocols import POOLED
from pamcli.evaluation.regions import FOUND, range_regions
from pamcli.evaluation.report_charts import CurveChart
from pamcli.evaluation.results import Column, Table, Value, json_row, json_rows, text_columns
from pamcli.evaluation.run import MeasuredSet

Measured = MeasuredSet[DisparitySummary]

FIGURES = ("d1", "epe", "bad-2")
"""Metrics to compare after those that the protocol states."""

DISTANCES = (0.0, 16.0, 32.0, 64.0, 128.0, math.inf)
"""Edges of the ground-truth ranges, px, for which errors are listed, far to near."""

DRAWS = 2000
LEAST_SCENES = 5
"""Minimum number of scenes for an interval."""


@dataclass(frozen=True)
class Difference:
    """The mean difference over images between the metric of one method and that of another."""

    mean: float
    low: float
    """Lower end of the 95 % interval; NaN if there are too few scenes."""
    high: float
    pictures: int
    scenes: int

    def text(self, decimals: int) -> str:
        """Format the difference for people: "+1.20 [+0.80, +1.70]"."""
        mean, low, high = (f"{value:+.{decimals}f}" for value in (self.mean, self.low, self.high))
        return mean if math.isnan(self.low) else f"{mean} [{low}, {high}]"


def mean_interval(
    values: NDArray[np.floating],
    scenes: Sequence[object],
    weights: NDArray[np.floating] | None = None,
) -> tuple[float, float]:
    """Compute the 95 % interval of a weighted mean by resampling scenes.

    `values`: (N,). `scenes`: the scene of each value, length N. `weights`: (N,), all 1 by default. Returns
    both ends of the interval; NaN with fewer than `LEAST_SCENES` scenes.
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
    drawn = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    sums, sizes = sums[drawn], sizes[drawn]
    means = sums.sum(axis=1) / sizes.sum(axis=1)
    spreads = np.sqrt(((sums - means[:, None] * sizes) ** 2).sum(axis=1)) / sizes.sum(axis=1)
    # Draws of nearly equal scenes have almost no spread: bound it below by a quarter of the overall spread.
    ratios = (means - mean) / np.maximum(spreads, spread / 4)
    low, high = np.quantile(ratios, [0.025, 0.975], method="inverted_cdf")
    return float(mean - high * spread), float(mean - low * spread)


def difference(one: Measured, method: str, other: str, metric: str) -> Difference | None:
    """Compare two methods by a metric over all pixels; return None if no image has it for both."""
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
) -> tuple[tuple[Table, Table], list[CurveChart], dict[str, Any]]:
    """Return the tables of methods and of image regions, the charts, and their data for JSON.

    `columns`: the columns of the metrics, by key.
    """
    first, *_ = names = [*sets[0].methods]
    rows: list[dict[str, Value]] = []
    numbers = []
    stated = [each.metric for each in sets[0].last.protocol.stated if each.region == "all"]
    metrics = [*dict.fromkeys((*stated, *FIGURES))][:3]
    for one in sets:
        for name, total in one.methods.items():
            figures = {"data": one.label, "method": name} | _costs(total)
            figures |= {metric: total.image_means["all"].get(metric) for metric in (*metrics, "density")}
            differences = {} if name == first else {m: difference(one, name, first, m) for m in metrics}
            rows.append({**figures})
            for metric, each in differences.items():
                text = None if each is None else each.text(columns[metric].decimals)
                rows[-1][f"{metric}-first"] = text
            plain = {m: None if each is None else json_row(vars(each)) for m, each in differences.items()}
            numbers.append({**json_row(figures), "differences": plain})
    beyond = [
        Column(f"{key}-first", f"{columns[key].title} beyond {first}", columns[key].unit, text=True)
        for key in metrics
    ]
    said = f"Means of the pictures. Differences to {first} are paired by picture"
    said += ", with 95 % intervals by scenes."
    memory = "most that was taken for a pair beyond what was held"
    table = Table(
        (
            *text_columns("data", "method"),
            columns[metrics[0]],
            beyond[0],
            *(columns[metric] for metric in metrics[1:]),
            Column("seconds", "time", "s", 3),
            Column("megabytes", "memory", "MB", 0, note=memory),
            *beyond[1:],
            columns["density"],
        ),
        tuple(rows),
        "Methods side by side",
        said,
    )
    parts = _by_part(sets, names, columns[metrics[0]])
    told = {"reference": first, "methods": numbers, "parts": json_rows(parts)}
    return (table, parts), [_chart(one) for one in sets], told


def notes(sets: Sequence[Measured]) -> list[str]:
    """Return one note per data set on how its intervals were computed."""
    said = []
    for one in sets:
        scenes = {one.source.scene(image.name) for image in one.last.images if image.figures}
        if len(scenes) < LEAST_SCENES:
            said.append(f"{one.label}: {len(scenes)} scenes are too few for intervals of the differences")
        else:
            drawn = f"bootstrap of {len(scenes)} scenes, {DRAWS:,} draws"
            said.append(f"{one.label}: intervals hold the true mean difference in 95 % of cases, {drawn}")
    return said


def _costs(total: DisparitySummary) -> dict[str, Value]:
    seconds = [image.seconds for image in total.images if image.seconds is not None]
    memory = [image.memory for image in total.images if image.memory is not None]
    return {
        "seconds": sum(seconds) / len(seconds) if seconds else None,
        # The first pair also pays for loading libraries.
        "megabytes": max(memory[1:] or memory) / 1e6 if memory else None,
    }


def _by_part(sets: Sequence[Measured], names: Sequence[str], figure: Column) -> Table:
    rows: list[dict[str, Value]] = []
    for one in sets:
        totals = [total.pooled for total in one.methods.values()]
        ranges = [*range_regions(one.last.protocol.ranges)]
        # Regions that only some data sets define: those of Spring and Booster.
        told = [name for name in totals[0] if name.startswith(("class-", "low-", "high-", "sky", "not-sky"))]
        for part in ("all", "noc", "occluded", "bg", "fg", *FOUND, *told, *ranges):
            if part in totals[0]:
                row: dict[str, Value] = {"data": one.label, "part": f"{part} px" if part in ranges else part}
                row["pixels"] = totals[0][part]["pixels"]
                rows.append(row | {n: each[part][figure.key] for n, each in zip(names, totals, strict=True)})
    each = (Column(name, name, figure.unit, figure.decimals) for name in names)
    columns = (*text_columns("data", "part"), Column("pixels", "pixels", decimals=0), *each)
    where = f"{figure.heading}, {POOLED} over all pixels of each part."
    return Table(columns, tuple(rows), "Errors by part", where)


def _chart(one: Measured) -> CurveChart:
    drawn = itertools.islice(one.methods.items(), 3)
    curves = {name: [total.pooled["all"][f"bad-{t:g}"] for t in BAD_THRESHOLDS] for name, total in drawn}
    caption = "" if len(one.methods) <= 3 else "The first three methods are drawn."
    title = f"{one.label}: pixels with a larger error"
    return CurveChart(title, BAD_THRESHOLDS, curves, "error (px)", "pixels above it (%)", caption)
