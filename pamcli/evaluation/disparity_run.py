"""Measuring disparity over a data set, whoever made the disparity, and the tables of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pamcli.data.sample import Sample
from pamcli.data.source import Source
from pamcli.errors import InputError
from pamcli.evaluation.confidence_curve import FRACTIONS
from pamcli.evaluation.disparity_metrics import (
    METRICS,
    MIDDLEBURY_WEIGHTS,
    REGIONS,
    DisparityMeter,
    DisparitySummary,
    ImageFigures,
)
from pamcli.evaluation.report_charts import ERROR_EDGES, Curve, CurveChart, Histogram
from pamcli.evaluation.report_pictures import Example, disparity_example
from pamcli.evaluation.resized import resize_sample
from pamcli.evaluation.tables import Column, Table, Value

POOLED, MEANS = "pooled", "mean of pictures"
"""The two ways of averaging, as every table names them; pooled over all pixels is the headline."""

SHORT = {"bad-0.5": "bad-0.5", "epe": "EPE", "d1": "D1", "rms": "rms", "density": "density"}
UNITS = {"epe": "px", "rms": "px", "a50": "px", "a90": "px", "a95": "px", "a99": "px", "pixels": ""}
PLAIN = {"ause-epe", "ause-bad-2"}
"""Figures without a unit."""


@dataclass(frozen=True)
class Estimate:
    """What a method says of a sample."""

    disparity: NDArray[np.float32]
    """(H, W) pixels, NaN = no estimate."""
    visible: NDArray[np.bool_] | None = None
    confidence: NDArray[np.float32] | None = None
    seconds: float | None = None
    """What the network took."""


@dataclass(frozen=True)
class DisparityProtocol:
    """How a set is measured."""

    kitti: bool = False
    """Holes are filled as KITTI does."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of pictures in the means; absent = 1."""
    max_gt: float | None = None
    """Count only truth below this, px."""
    resize: tuple[int, int] | None = None
    """Width and height to which pictures and truth are brought first."""

    @classmethod
    def of(cls, data: str, *, max_gt: float | None, resize: tuple[int, int] | None) -> DisparityProtocol:
        """That of a data set, by the name of its source."""
        return cls(
            kitti=data in ("kitti2012", "kitti2015"),
            weights=MIDDLEBURY_WEIGHTS if data == "middlebury" else {},
            max_gt=max_gt,
            resize=resize,
        )

    def notes(self) -> Iterator[str]:
        """What of it changes the figures, a clause each."""
        if self.kitti:
            yield "holes are filled as in KITTI's development kit before measuring; density is from before"
        if self.max_gt is not None:
            yield f"only truth below {self.max_gt:g} px is counted"
        if self.resize is not None:
            yield f"pictures and truth are brought to {self.resize[0]} x {self.resize[1]} pixels first"


@dataclass(frozen=True)
class MeasuredImage:
    """One picture's figures, and what the network took."""

    figures: ImageFigures
    seconds: float | None


@dataclass(frozen=True)
class MeasuredSet:
    """What a method reaches on a data set."""

    label: str
    summary: DisparitySummary
    images: tuple[MeasuredImage, ...]
    examples: tuple[Example, ...]
    """The pictures with the highest D1, worst first."""
    notes: tuple[str, ...]


def measure_disparity(
    label: str,
    source: Source,
    estimate: Callable[[Sample], Estimate | None],
    protocol: DisparityProtocol,
    *,
    worst: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> MeasuredSet:
    """Measure a method on every sample of a source.

    estimate: the method; None = it has nothing for this sample, which is then left out. worst: how many of
    the worst pictures to keep. advance: called after each sample. Raises InputError as the meter does.
    """
    meter = DisparityMeter(kitti=protocol.kitti, max_gt=protocol.max_gt)
    images: list[MeasuredImage] = []
    examples: list[tuple[float, Example]] = []
    for index in range(len(source)):
        sample = source.load(index)
        if protocol.resize is not None:
            sample = resize_sample(sample, *protocol.resize)
        if sample.disparity is None:  # said before the network has run
            raise InputError(
                f"{sample.name} has no true disparity", "measure on a split that comes with ground truth"
            )
        found = estimate(sample)
        if found is not None:
            figures = meter.add(sample, found.disparity, visible=found.visible, confidence=found.confidence)
            images.append(MeasuredImage(figures, found.seconds))
            if worst and figures.regions:
                examples.append(_example(sample, found, figures))
                examples.sort(key=lambda pair: -pair[0])
                del examples[worst:]
        advance()
    return MeasuredSet(
        label,
        meter.summary(protocol.weights),
        tuple(images),
        tuple(example for _, example in examples),
        (*source.missing, *protocol.notes()),
    )


def _example(sample: Sample, found: Estimate, figures: ImageFigures) -> tuple[float, Example]:
    assert sample.disparity is not None
    one = figures.regions["all"]
    caption = f"D1 {one['d1']:.1f} %, end-point error {one['epe']:.2f} px"
    picture = disparity_example(
        sample.name, caption, sample.left, found.disparity, sample.disparity, visible=sample.visible
    )
    return one["d1"], picture


def summary_table(sets: list[MeasuredSet], metrics: tuple[str, ...] | None = None) -> Table:
    """A row for each set, region and way of averaging. metrics: which columns; None = all with a value."""
    rows: list[dict[str, Value]] = [
        {
            "data": one.label,
            "region": region,
            "average": name,
            "pictures": one.summary.region_images[region],
            **_chosen(figures[region], metrics),
        }
        for one in sets
        for name, figures in ((POOLED, one.summary.pooled), (MEANS, one.summary.image_means))
        for region in REGIONS
        if region in figures and (metrics is None or set(metrics) & set(figures[region]))
    ]
    keys = [key for key in METRICS if any(key in row for row in rows)]
    words = (
        Column("data", "data", text=True),
        Column("region", "region", text=True, note="; ".join(f"{k}: {v}" for k, v in REGIONS.items())),
        Column("average", "average", text=True, note=f"{POOLED}: over all pixels of the set"),
        Column("pictures", "pictures", decimals=0, note="that have the region"),
    )
    return Table((*words, *map(_column, keys)), tuple(rows))


def images_table(sets: list[MeasuredSet]) -> Table:
    """A row for each picture: the figures of all its pixels, those of other regions as "noc d1"."""
    rows: list[dict[str, Value]] = []
    for one in sets:
        for image in one.images:
            row: dict[str, Value] = {"data": one.label, "name": image.figures.name, "seconds": image.seconds}
            for region, figures in image.figures.regions.items():
                prefix = "" if region == "all" else f"{region} "
                row |= {f"{prefix}{key}": value for key, value in figures.items()}
            rows.append(row)
    regions = ["", *(f"{region} " for region in REGIONS if region != "all")]
    keys = [f"{region}{key}" for region in regions for key in METRICS]
    used = [key for key in keys if any(key in row for row in rows)]
    words = (Column("data", "data", text=True), Column("name", "name", text=True))
    return Table((*words, Column("seconds", "time", "s", 3), *map(_column, used)), tuple(rows))


def charts(sets: list[MeasuredSet]) -> tuple[Histogram | CurveChart, ...]:
    """Of each set the errors' histogram and, where confidence was given, its sparsification curve."""
    drawn: list[Histogram | CurveChart] = []
    for one in sets:
        figures = one.summary.pooled["all"]
        counts = one.summary.errors.between(list(ERROR_EDGES))
        without = max(round(figures["pixels"]) - int(one.summary.errors.counts.sum()), 0)
        drawn.append(
            Histogram(f"{one.label}: errors", ERROR_EDGES, tuple(counts), wrong_from=2.0, without=without)
        )
        curve = one.summary.curve
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


def _chosen(figures: Mapping[str, float], metrics: tuple[str, ...] | None) -> Mapping[str, float]:
    return {key: value for key, value in figures.items() if metrics is None or key in metrics}


def _column(key: str) -> Column:
    region, _, metric = key.rpartition(" ")
    unit = "" if metric in PLAIN else UNITS.get(metric, "%")
    decimals = 0 if metric == "pixels" else 3 if metric in PLAIN else 2
    title = SHORT.get(metric, metric.upper() if metric in UNITS and metric != "pixels" else metric)
    return Column(key, f"{region} {title}".strip(), unit, decimals, note=METRICS[metric])
