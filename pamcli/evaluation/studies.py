"""Run studies that need no training: accuracy by image resolution and by disparity range.

The paper's Tables 6 and 7 compare attention, which has no maximum disparity, with cost volumes of a fixed
one. Here the same network also runs with fixed maxima.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pamcli.data.source import Sample
from pamcli.errors import UsageError
from pamcli.evaluation.disparity_metrics import DisparitySummary, Estimate
from pamcli.evaluation.methods import Method, NetworkMethod
from pamcli.evaluation.regions import range_regions
from pamcli.evaluation.report_charts import CurveChart
from pamcli.evaluation.results import Column, Table, Value, text_columns
from pamcli.evaluation.run import MeasuredSet
from pamcli.imaging.resize import imresize_to, resize_nearest

STUDIES = ("resolution", "range")
"""resolution: accuracy and time at 0.25 to 2 times the image size. range: accuracy by ground-truth range and
with fixed maximum disparities."""

RESOLUTIONS = (0.25, 0.5, 1.0, 1.5, 2.0)
"""Scale factors of the input images."""

RANGES = (0.0, 16.0, 32.0, 64.0, 96.0, 128.0, 192.0, math.inf)
"""Edges, px, of the ground-truth ranges."""

LIMITS = (192, 96)
"""Maximum disparities, px, of the additional runs."""

FIGURES = ("d1", "epe", "bad-2", "bad-3")

Measured = MeasuredSet[DisparitySummary]
Rows = list[dict[str, Value]]


def variants(kind: str, method: Method | None) -> Mapping[float, Callable[[Sample], Estimate]]:
    """Return modified runs of a network, by resolution factor or by maximum disparity, px.

    Result files have no variants, nor has the range study of a network with a fixed search range. Raises
    UsageError: result files with the resolution study.
    """
    if isinstance(method, NetworkMethod):
        if kind == "range":
            if method.network.model.has_fixed_search:
                return {}
            return {limit: _limited(method, limit) for limit in LIMITS}
        return {factor: _at_resolution(method, factor) for factor in RESOLUTIONS if factor != 1}
    if kind == "range":
        return {}
    raise UsageError("a study of the resolution runs a network", "files have one resolution")


def told(
    kind: str, sets: Sequence[Measured], figures: Mapping[str, Column]
) -> tuple[Table, list[CurveChart]]:
    """Return a table of all data sets and a chart for each. `figures`: the columns of the metrics."""
    words = text_columns("data")
    if kind == "resolution":
        words += [Column("resolution", "resolution", "x"), Column("seconds", "time", "s", 3)]
    else:
        words += [*text_columns("maximum"), Column("truth", "truth (px)", text=True)]
        words += [Column("pixels", "pixels", decimals=0)]
    found = [(_over_range if kind == "range" else _over_resolution)(one) for one in sets]
    columns = (*words, *(figures[key] for key in FIGURES))
    return Table(columns, tuple(row for rows, _ in found for row in rows)), [chart for _, chart in found]


def _over_resolution(one: Measured) -> tuple[Rows, CurveChart]:
    rows: Rows = []
    for factor in RESOLUTIONS:
        each = one.last if factor == 1 else one.variants[factor]
        times = [image.seconds for image in each.images if image.seconds is not None]
        seconds = sum(times) / len(times) if times else None
        figures = {key: each.pooled["all"][key] for key in FIGURES}
        rows.append({"data": one.label, "resolution": factor, "seconds": seconds, **figures})
    curves = {"D1": _numbers(rows, "d1"), "bad-2": _numbers(rows, "bad-2")}
    caption = "Pictures are resized for the network alone; errors are of the full size."
    title = f"{one.label}: resolution"
    return rows, CurveChart(title, RESOLUTIONS, curves, "times the size", "wrong (%)", caption)


def _at_resolution(method: NetworkMethod, factor: float) -> Callable[[Sample], Estimate]:
    def estimate(sample: Sample) -> Estimate:
        height, width = sample.left.shape[:2]
        sides = [max(16, round(side * factor)) for side in (width, height)]
        left, right = (imresize_to(view, *sides) for view in (sample.left, sample.right))
        found = method.disparity(left, right)
        back = resize_nearest(found.disparity, width, height).astype(np.float32) * np.float32(
            width / sides[0]
        )
        return Estimate(back, seconds=found.seconds, of_network=True)

    return estimate


def _over_range(one: Measured) -> tuple[Rows, CurveChart]:
    runs: dict[str, DisparitySummary] = {"as measured": one.last}
    runs |= {f"{limit:g} px": each for limit, each in one.variants.items()}
    regions = range_regions(RANGES)
    parts = [region for region in (*regions, "all") if region in one.last.pooled]
    rows: Rows = []
    curves = {}
    for name, each in runs.items():
        found: Rows = [
            {"data": one.label, "maximum": name, "truth": region}
            | {key: each.pooled[region][key] for key in ("pixels", *FIGURES)}
            for region in parts
        ]
        rows += found
        curves[f"maximum {name}" if len(runs) > 1 else "D1"] = _numbers(found[:-1], "d1")
    caption = "Each point stands at the lower edge of its range of the truth."
    title, edges = f"{one.label}: range of disparity", [regions[region] for region in parts[:-1]]
    return rows, CurveChart(title, edges, curves, "truth (px)", "D1 (%)", caption)


def _limited(method: NetworkMethod, limit: int) -> Callable[[Sample], Estimate]:
    limited = copy.copy(method.network)
    limited.max_disparity = limit
    other = replace(method, network=limited)
    return lambda sample: other.disparity(sample.left, sample.right)


def _numbers(rows: Rows, key: str) -> list[float]:
    return [float(row[key]) for row in rows]  # type: ignore[arg-type]  # all are numbers
