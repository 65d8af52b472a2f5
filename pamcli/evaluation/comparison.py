"""Compare methods: paired differences to the first method, with 95 % intervals, time and memory.

Differences are paired: for each image, a method's metric minus that of the first method. Images of one scene
are correlated, so the bootstrap resamples scenes: the interval is a studentised bootstrap of the (weighted)
mean with the jackknife's spread over scenes (Efron and Tibshirani 1993, Sections 12.5 and 11.5). Plain
percentiles are too narrow for few scenes: with 12 scenes they cover the true mean in 86 to 91 % of draws.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.evaluation.loop import MeasuredSet
from pamcli.evaluation.results import Column, Evaluation, Table, Value, flatten, make_text_columns
from pamcli.files.paths import pluralize

DRAWS = 2000
LEAST_SCENES = 5  # minimum number of scenes for an interval


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


def compare_methods(one: MeasuredSet[Any], method: str, other: str, key: str) -> dict[str, float] | None:
    """Return the mean difference between two methods in a metric of `flatten`, its interval, and the counts.

    The interval is NaN if there are too few scenes. None if no image has the metric for both methods.
    """
    total, reference = one.methods[method], one.methods[other]
    differences = {}
    for image, beside in zip(total.images, reference.images, strict=True):
        value = flatten(image.figures).get(key, math.nan) - flatten(beside.figures).get(key, math.nan)
        if math.isfinite(value):
            differences[image.name] = value
    if not differences:
        return None
    scenes = [one.source.scene(name) for name in differences]
    weights = np.array([total.weights.get(name.rpartition("/")[2], 1.0) for name in differences])
    values = np.array([*differences.values()])
    low, high = compute_interval(values, scenes, weights)
    mean = float(np.average(values, weights=weights))
    return {"mean": mean, "low": low, "high": high, "images": len(scenes), "scenes": len({*scenes})}


def add_comparison(
    page: Evaluation,
    sets: Sequence[MeasuredSet[Any]],
    columns: Mapping[str, Column],
    metrics: Sequence[str],
    *beyond: str,
    timed: str,
) -> None:
    """Add the table of methods, one row per data set and method, and its notes.

    `metrics` are the keys of `columns` to compare, the most important first; `beyond` are only shown. `timed`
    says what time and memory include.
    """
    first = next(iter(sets[0].methods))
    rows: list[dict[str, Value]] = []
    numbers: list[dict[str, Any]] = []
    notes = []
    for one in sets:
        for name, total in one.methods.items():
            seconds = [image.seconds for image in total.images if image.seconds is not None]
            memory = [image.memory for image in total.images if image.memory is not None]
            means = flatten(total.image_means)
            row: dict[str, Value] = {
                "data": one.label,
                "method": name,
                "seconds": sum(seconds) / len(seconds) if seconds else None,
                # The first pair also pays for loading libraries.
                "megabytes": max(memory[1:] or memory) / 1e6 if memory else None,
                **{key: means.get(key) for key in (*metrics, *beyond)},
            }
            numbers.append({**row, "differences": {}})
            for key in metrics if name != first else ():
                found = compare_methods(one, name, first, key)
                numbers[-1]["differences"][key] = found
                if found:
                    mean, low, high = (
                        f"{found[name]:+.{columns[key].decimals}f}" for name in ("mean", "low", "high")
                    )
                    row[f"{key}-first"] = mean if math.isnan(found["low"]) else f"{mean} [{low}, {high}]"
            rows.append(row)
        count = len({one.source.scene(image.name) for image in one.meter.images if image.figures})
        scenes = pluralize(count, "scene")
        note = f"{scenes}; intervals of the differences need {LEAST_SCENES}"
        if count >= LEAST_SCENES:
            note = "the intervals contain the true mean difference in 95 % of cases, "
            note += f"bootstrap of {scenes}, {DRAWS:,} draws"
        notes.append(f"{one.label}: {note}")
    minus_first = [
        Column(f"{key}-first", f"{columns[key].title} minus {first}", columns[key].unit, text=True)
        for key in metrics
    ]
    memory_note = "largest memory used for a pair, beyond what was in use before"
    table_columns = [
        *make_text_columns("data", "method"),
        columns[metrics[0]],
        minus_first[0],
        *(columns[key] for key in metrics[1:]),
        Column("seconds", "time", "s", 3),
        Column("megabytes", "memory", "MB", 0, note=memory_note),
        *minus_first[1:],
        *(columns[key] for key in beyond),
    ]
    note = (
        f"Means over the images. Differences to {first} are paired by image, with 95 % intervals by scenes."
    )
    page.sections.insert(0, Table(table_columns, rows, "Method comparison", note))
    page.notes[:0] = [*notes, f"time and memory are those of the {timed} alone"]
    parts = page.numbers.get("comparison", {})
    page.numbers["comparison"] = {"reference": first, "methods": numbers} | parts
