"""Compare methods: metrics, paired differences with 95 % intervals, errors by image region.

Differences are paired: for each image, a method's metric minus that of the first method. Images of one scene
are correlated, so the bootstrap resamples scenes: the interval is a studentised bootstrap of the (weighted)
mean with the jackknife's spread over scenes (Efron and Tibshirani 1993, Sections 12.5 and 11.5). Plain
percentiles are too narrow for few scenes: with 12 scenes they cover the true mean in 86 to 91 % of draws.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamcli.evaluation.disparity_metrics import BAD_THRESHOLDS, DisparityMeter
from pamcli.evaluation.pixels import COMPUTED_REGIONS, name_ranges
from pamcli.evaluation.protocols import POOLED
from pamcli.evaluation.report_charts import CurveChart
from pamcli.evaluation.results import (
    Column,
    Evaluation,
    Table,
    Value,
    make_text_columns,
    to_json_row,
    to_json_rows,
)
from pamcli.evaluation.run import MeasuredSet
from pamcli.files.paths import pluralize

FIGURES = ("d1", "epe", "bad-2")  # metrics to compare after those that the protocol states

DISTANCES = (0.0, 16.0, 32.0, 64.0, 128.0, math.inf)  # edges of ground-truth ranges, px, far to near

DRAWS = 2000
LEAST_SCENES = 5  # minimum number of scenes for an interval


class Difference(NamedTuple):
    """The mean difference over images between the metric of one method and that of another."""

    mean: float
    low: float  # lower end of the 95 % interval; NaN if there are too few scenes
    high: float
    images: int
    scenes: int

    def format(self, decimals: int) -> str:
        """Format the difference for people: "+1.20 [+0.80, +1.70]"."""
        mean, low, high = (f"{value:+.{decimals}f}" for value in (self.mean, self.low, self.high))
        return mean if math.isnan(self.low) else f"{mean} [{low}, {high}]"


def compute_interval(
    values: NDArray[np.floating], scenes: Sequence[object], weights: NDArray[np.floating] | None = None
) -> tuple[float, float]:
    """Compute the 95 % interval of a weighted mean of (N,) by resampling scenes; NaN if there are too few."""
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
    draws = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    sums, sizes = sums[draws], sizes[draws]
    means = sums.sum(axis=1) / sizes.sum(axis=1)
    spreads = np.sqrt(((sums - means[:, None] * sizes) ** 2).sum(axis=1)) / sizes.sum(axis=1)
    # Draws of nearly equal scenes have almost no spread: bound it below by a quarter of the overall spread.
    ratios = (means - mean) / np.maximum(spreads, spread / 4)
    low, high = np.quantile(ratios, [0.025, 0.975], method="inverted_cdf")
    return float(mean - high * spread), float(mean - low * spread)


def compare_methods(one: MeasuredSet, method: str, other: str, metric: str) -> Difference | None:
    """Compare two methods by a metric over all pixels; return None if no image has it for both."""
    names, values = [], []
    for image, reference in zip(one.methods[method].images, one.methods[other].images, strict=True):
        if "all" in image.figures and "all" in reference.figures:
            value = image.figures["all"][metric] - reference.figures["all"][metric]
            if math.isfinite(value):
                names.append(image.name)
                values.append(value)
    if not names:
        return None
    scenes = [one.source.scene(name) for name in names]
    by_name = one.methods[method].protocol.weights
    weights = np.array([by_name.get(name.rpartition("/")[2], 1.0) for name in names])
    interval = compute_interval(np.array(values), scenes, weights)
    return Difference(float(np.average(values, weights=weights)), *interval, len(names), len({*scenes}))


def add_comparison(
    page: Evaluation, sets: Sequence[MeasuredSet], columns: Mapping[str, Column]
) -> Evaluation:
    """Add the tables of methods and of image regions, their charts and notes. `columns`: of the metrics."""
    first = next(iter(sets[0].methods))
    rows: list[dict[str, Value]] = []
    numbers = []
    stated = [each.metric for each in sets[0].meter.protocol.stated if each.region == "all"]
    metrics = [*dict.fromkeys((*stated, *FIGURES))][:3]
    for one in sets:
        for name, total in one.methods.items():
            figures = {"data": one.label, "method": name} | _list_costs(total)
            figures |= {metric: total.image_means["all"].get(metric) for metric in (*metrics, "density")}
            row, plain = {**figures}, {}
            for metric in metrics if name != first else ():
                difference = compare_methods(one, name, first, metric)
                row[f"{metric}-first"] = difference and difference.format(columns[metric].decimals)
                plain[metric] = difference and to_json_row(difference._asdict())
            rows.append(row)
            numbers.append({**to_json_row(figures), "differences": plain})
    beyond = [
        Column(f"{key}-first", f"{columns[key].title} minus {first}", columns[key].unit, text=True)
        for key in metrics
    ]
    memory = "largest memory used for a pair, beyond what was in use before"
    table_columns = (
        *make_text_columns("data", "method"),
        columns[metrics[0]],
        beyond[0],
        *(columns[metric] for metric in metrics[1:]),
        Column("seconds", "time", "s", 3),
        Column("megabytes", "memory", "MB", 0, note=memory),
        *beyond[1:],
        columns["density"],
    )
    note = (
        f"Means over the images. Differences to {first} are paired by image, with 95 % intervals by scenes."
    )
    parts = _make_region_table(sets, columns[metrics[0]])
    charts = [_make_chart(one) for one in sets]
    compared = {"reference": first, "methods": numbers, "parts": to_json_rows(parts)}
    return replace(
        page,
        sections=(Table(table_columns, tuple(rows), "Method comparison", note), parts, *page.sections),
        charts=(*charts, *page.charts),
        notes=(*_list_notes(sets), "time and memory are those of the disparity alone", *page.notes),
        numbers={**page.numbers, "comparison": compared},
    )


def _list_notes(sets: Sequence[MeasuredSet]) -> list[str]:
    """Return notes per data set: how its intervals were computed, and which methods have holes."""
    notes = []
    for one in sets:
        count = len({one.source.scene(image.name) for image in one.meter.images if image.figures})
        scenes = pluralize(count, "scene")
        if count < LEAST_SCENES:
            notes.append(f"{one.label}: {scenes}; intervals of the differences need {LEAST_SCENES}")
        else:
            method = f"bootstrap of {scenes}, {DRAWS:,} draws"
            notes.append(
                f"{one.label}: the intervals contain the true mean difference in 95 % of cases, {method}"
            )
        for name, total in one.methods.items():
            missing = 100 - total.image_means["all"]["density"]
            if missing > 0 and not total.protocol.fill:
                pixels = f"the {missing:.2g} % of pixels without an estimate"
                notes.append(f"{one.label}: mean errors of {name} ignore {pixels}")
    return notes


def _list_costs(total: DisparityMeter) -> dict[str, Value]:
    seconds = [image.seconds for image in total.images if image.seconds is not None]
    memory = [image.memory for image in total.images if image.memory is not None]
    return {
        "seconds": sum(seconds) / len(seconds) if seconds else None,
        # The first pair also pays for loading libraries.
        "megabytes": max(memory[1:] or memory) / 1e6 if memory else None,
    }


def _make_region_table(sets: Sequence[MeasuredSet], figure: Column) -> Table:
    rows: list[dict[str, Value]] = []
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
    methods = (Column(name, name, figure.unit, figure.decimals) for name in sets[0].methods)
    columns = (*make_text_columns("data", "part"), Column("pixels", "pixels", decimals=0), *methods)
    note = f"{figure.heading}, {POOLED} over all pixels of each region."
    return Table(columns, tuple(rows), "Errors by region", note)


def _make_chart(one: MeasuredSet) -> CurveChart:
    shown = itertools.islice(one.methods.items(), 3)
    curves = {
        name: [total.pooled_metrics["all"][f"bad-{t:g}"] for t in BAD_THRESHOLDS] for name, total in shown
    }
    caption = "" if len(one.methods) <= 3 else "Only the first three methods are shown."
    title = f"{one.label}: pixels with a larger error"
    return CurveChart(title, BAD_THRESHOLDS, curves, "error (px)", "pixels with a larger error (%)", caption)
