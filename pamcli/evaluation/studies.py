"""Run studies that need no training, as Tables 6 and 7 of the paper.

resolution: accuracy and time at 0.25 to 2 times the image size. range: accuracy by range of the ground truth,
and with fixed maximum disparities.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np

from pamcli.data.source import Sample
from pamcli.errors import UsageError
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.evaluation.disparity_tables import COLUMNS
from pamcli.evaluation.loop import MeasuredSet, Method
from pamcli.evaluation.methods import MatcherMethod
from pamcli.evaluation.pixels import name_ranges
from pamcli.evaluation.report_charts import CurveChart
from pamcli.evaluation.results import Evaluation
from pamcli.evaluation.tables import Column, Table, Value, make_text_columns, to_json_rows
from pamcli.imaging.resize import imresize_to, resize_nearest

RESOLUTIONS = (0.25, 0.5, 1.0, 1.5, 2.0)  # scale factors of the input images

RANGES = (0.0, 16.0, 32.0, 64.0, 96.0, 128.0, 192.0, math.inf)  # edges, px, of the ground-truth ranges

LIMITS = (192, 96)  # maximum disparities, px, of the additional runs

FIGURES = ("d1", "epe", "bad-2", "bad-3")

Rows = list[dict[str, Value]]


def make_variants(
    kind: str, method: Method[Sample, Estimate]
) -> Mapping[float, Callable[[Sample], Estimate]]:
    """Return modified runs of a network, by resolution factor or by maximum disparity, px."""
    matcher = cast(MatcherMethod, method)
    if kind == "resolution":
        if method.network is None:
            raise UsageError("`study` resolution requires a network", "result files have one resolution")
        return {factor: partial(_match_at, matcher, factor) for factor in RESOLUTIONS if factor != 1}
    if method.network is None or method.network.model.has_fixed_search:
        return {}
    return {limit: _limit_search(matcher, limit) for limit in LIMITS}


def add_study(page: Evaluation, kind: str, sets: Sequence[MeasuredSet[DisparityMeter]]) -> Evaluation:
    """Add a table of all data sets and a chart for each."""
    columns = make_text_columns("data")
    if kind == "resolution":
        columns += [Column("resolution", "resolution", "x"), Column("seconds", "time", "s", 3)]
    else:
        columns += [*make_text_columns("maximum"), Column("truth", "ground truth (px)", text=True)]
        columns += [Column("pixels", "pixels", decimals=0)]
    rows: Rows = []
    charts = []
    for one in sets:
        found, chart = (_make_range_rows if kind == "range" else _make_resolution_rows)(one)
        rows += found
        charts.append(chart)
    table = Table((*columns, *(COLUMNS[key] for key in FIGURES)), tuple(rows))
    numbers = {**page.numbers, "study": {"kind": kind, "rows": to_json_rows(table)}}
    return replace(page, studies=(table,), charts=(*charts, *page.charts), numbers=numbers)


def _make_resolution_rows(one: MeasuredSet[DisparityMeter]) -> tuple[Rows, CurveChart]:
    rows: Rows = []
    for factor in RESOLUTIONS:
        meter = one.meter if factor == 1 else one.variants[factor]
        times = [image.seconds for image in meter.images if image.seconds is not None]
        seconds = sum(times) / len(times) if times else None
        figures = {key: meter.pooled_metrics["all"][key] for key in FIGURES}
        rows.append({"data": one.label, "resolution": factor, "seconds": seconds, **figures})
    curves = {"D1": _list_numbers(rows, "d1"), "bad-2": _list_numbers(rows, "bad-2")}
    caption = "Images are resized for the network alone; errors are at full size."
    title = f"{one.label}: resolution"
    return rows, CurveChart(title, RESOLUTIONS, curves, "factor of the image size", "bad pixels (%)", caption)


def _match_at(method: MatcherMethod, factor: float, sample: Sample) -> Estimate:
    """Match resized images, and resize the disparity map back."""
    height, width = sample.left.shape[:2]
    sides = [max(16, round(side * factor)) for side in (width, height)]
    left, right = (imresize_to(view, *sides) for view in (sample.left, sample.right))
    found = method.match(left, right)
    back = resize_nearest(found.disparity, width, height) * np.float32(width / sides[0])
    return Estimate(back, seconds=found.seconds, of_network=True)


def _make_range_rows(one: MeasuredSet[DisparityMeter]) -> tuple[Rows, CurveChart]:
    runs: dict[str, DisparityMeter] = {"as measured": one.meter}
    runs |= {f"{limit:g} px": each for limit, each in one.variants.items()}
    regions = name_ranges(RANGES)
    parts = [region for region in (*regions, "all") if region in one.meter.pooled_metrics]
    rows: Rows = []
    curves = {}
    for name, each in runs.items():
        found: Rows = [
            {"data": one.label, "maximum": name, "truth": region}
            | {key: each.pooled_metrics[region][key] for key in ("pixels", *FIGURES)}
            for region in parts
        ]
        rows += found
        curves[f"maximum {name}" if len(runs) > 1 else "D1"] = _list_numbers(found[:-1], "d1")
    caption = "Each point is at the lower edge of its range of ground truth."
    title, edges = f"{one.label}: range of disparity", [regions[region] for region in parts[:-1]]
    return rows, CurveChart(title, edges, curves, "ground truth (px)", "D1 (%)", caption)


def _limit_search(method: MatcherMethod, limit: int) -> Callable[[Sample], Estimate]:
    limited = copy.copy(method.network)
    limited.max_disparity = limit
    other = replace(method, network=limited)
    return lambda sample: other.match(sample.left, sample.right)


def _list_numbers(rows: Rows, key: str) -> list[float]:
    return [float(row[key]) for row in rows]  # type: ignore[arg-type]  # all are numbers
