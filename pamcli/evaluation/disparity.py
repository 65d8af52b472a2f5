"""Measure disparity by the protocol of each data set's benchmark, and build its tables and charts."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pamcli.data.listing import resized
from pamcli.data.source import Sample, Source
from pamcli.errors import UsageError
from pamcli.evaluation import comparison, studies
from pamcli.evaluation.disparity_metrics import METRICS, DisparityMeter, DisparitySummary, Estimate
from pamcli.evaluation.figures import FRACTIONS, ImageFigures, flat
from pamcli.evaluation.methods import Estimates, Method, NetworkMethod
from pamcli.evaluation.protocols import (
    MEANS,
    POOLED,
    PROTOCOLS,
    check_protocol,
    named_protocol,
    usual_protocol,
)
from pamcli.evaluation.regions import RANGES, REGIONS
from pamcli.evaluation.report_charts import ERROR_EDGES, CurveChart, Histogram
from pamcli.evaluation.report_pictures import ShownPair, consistency_panels, shown_disparity, shown_methods
from pamcli.evaluation.results import (
    Column,
    Evaluation,
    Fact,
    Table,
    Value,
    json_row,
    json_rows,
    json_value,
    text_columns,
)
from pamcli.evaluation.run import MeasuredSet, Task
from pamcli.imaging.resize import imresize_to

HEADLINE = ("pixels", "density", "epe", "d1", "bad-2", "bad-3", "bad-1", "rms", "bad-4", "bad-0.5")
SPREAD = ("a50", "a90", "a95", "a99")
TRUST = (
    *("ause-epe", "ause-bad-2"),
    *(f"{seen}-{share}" for seen in ("visible", "occluded") for share in ("precision", "recall")),
)
"""Metrics of the three terminal tables, most important first; every other output has all metrics."""

UNITS = {
    "pixels": ("", 0),
    **dict.fromkeys(("epe", "rms", *SPREAD), ("px", 2)),
    **dict.fromkeys(("ause-epe", "ause-bad-2"), ("", 3)),
}
"""Units and decimals of metrics; the others are in percent with two decimals."""
CAPITALS = {"epe", "d1", *SPREAD}
"""Metrics whose titles are written in capitals."""


def _column(key: str) -> Column:
    """Return the column of a `METRICS` key, optionally after a region, as in "noc d1"."""
    region, _, metric = key.rpartition(" ")
    title = metric.upper() if metric in CAPITALS else metric
    return Column(key, f"{region} {title}".strip(), *UNITS.get(metric, ("%", 2)), note=METRICS[metric])


COLUMNS = {
    key: _column(key) for key in flat({region: dict.fromkeys(METRICS, math.nan) for region in REGIONS})
}


@dataclass(frozen=True)
class Disparity(Task[Sample, Estimate, DisparitySummary]):
    """The disparity task, measured by each data set's own protocol or by named protocols.

    Raises UsageError: unknown study, unknown or repeated protocol, or `max_gt` below 1 px or with a protocol.
    """

    max_gt: float | None = None
    """Count only pixels with ground truth below this, px."""
    resize: tuple[int, int] | None = None
    """Width and height to resize images and ground truth to before matching."""
    study: str | None = None
    """One of `studies.STUDIES`, measured in addition."""
    comparing: bool = False
    """Compare several methods: paired differences with intervals, and more image regions."""
    protocols: tuple[str, ...] = ()
    """Keys of `PROTOCOLS`; the first one rules all tables. () = the protocol of each data set's benchmark."""

    title = "Disparity"
    columns = COLUMNS
    key_figures = ("d1", "bad-2", "epe", "density")
    average = POOLED
    words = (
        Column("region", "region", text=True, note="; ".join(f"{k}: {v}" for k, v in REGIONS.items())),
        Column("average", "average", text=True, note=f"{POOLED}: over all pixels of the set"),
        Column("pictures", "pictures", decimals=0, note="that have the region"),
    )
    headline = HEADLINE, SPREAD, TRUST
    timed = "network with confidence (and visibility, where it is measured)"

    def __post_init__(self) -> None:
        if self.study is not None and self.study not in studies.STUDIES:
            raise UsageError(f"no study is called {self.study!r}", f"known: {', '.join(studies.STUDIES)}")
        for name in self.protocols:
            check_protocol(name)
            if self.protocols.count(name) > 1:
                raise UsageError(f"`protocol` {name} is given twice", "give each name once")
        if self.max_gt is not None and not (math.isfinite(self.max_gt) and self.max_gt >= 1):
            raise UsageError(f"`max_gt` {self.max_gt:g} is no number of pixels from 1 up")
        if self.protocols and self.max_gt is not None:
            hint = "a protocol says which truth counts"
            raise UsageError("`max_gt` and `protocol` contradict each other", hint)

    def case(self, sample: Sample) -> Sample | None:
        if sample.disparity is None:
            return None
        return sample if self.resize is None else resized(sample, *self.resize, imresize_to)

    def meter(self, source: Source) -> DisparityMeter:
        name = source.spec.info.name if source.spec else ""
        asked: dict[str, Any] = {"resize": self.resize}
        if self.study == "range":
            asked["ranges"] = studies.RANGES
        if self.comparing:
            asked |= {"parts": True, "ranges": comparison.DISTANCES}
        full_size = source.full_size and self.resize is None
        if not self.protocols:
            usual = usual_protocol(name, max_gt=self.max_gt, **asked)
            return DisparityMeter(usual, full_size=full_size)
        rules = {each: named_protocol(each, name, resize=self.resize) for each in self.protocols}
        if (own := rules[self.protocols[0]].ranges) and self.study != "range":
            asked["ranges"] = own
        first = named_protocol(self.protocols[0], name, **asked)
        return DisparityMeter(first, rules, full_size=full_size)

    def ready(self, method: Method | None, source: Source) -> Estimates:
        assert method is not None
        return method.disparities(source, extras=not self.comparing)

    def variants(self, method: Method | None) -> Mapping[float, Callable[[Sample], Estimate]]:
        return {} if self.study is None else studies.variants(self.study, method)

    def rank(self, images: Sequence[ImageFigures]) -> float | None:
        """Rank by D1; rank several methods by their largest D1 difference, ties by the end-point error."""
        if not all(image.figures for image in images):
            return None
        shares, errors = ([image.figures["all"][key] for image in images] for key in ("d1", "epe"))
        if len(images) == 1:
            return -shares[0]
        gap = np.nan_to_num(max(errors) - min(errors), nan=0.0)
        return float(min(shares) - max(shares) - 1e-6 * gap)

    def shown(
        self, case: Sample, answers: Mapping[str, Estimate], images: Sequence[ImageFigures]
    ) -> ShownPair:
        """Draw a pair for the report; for a single network also its left-right difference and doubt."""
        assert case.disparity is not None
        said = [
            f"D1 {image.figures['all']['d1']:.1f} %, end-point error {image.figures['all']['epe']:.2f} px"
            for image in images
        ]
        if len(answers) > 1:
            caption = "; ".join(f"{each}: {line}" for each, line in zip(answers, said, strict=True))
            found = {each: one.disparity for each, one in answers.items()}
            return shown_methods(case.name, caption, case.left, found, case.disparity, visible=case.visible)
        (answer,) = answers.values()
        views = case.left, answer.disparity, case.disparity
        shown = shown_disparity(case.name, said[0], *views, visible=case.visible)
        if answer.again is None:
            return shown
        again = answer.again(extras={"right_disparity", "confidence"})
        panels = consistency_panels(again.disparity, again.right_disparity, again.confidence)
        return replace(shown, panels=(*shown.panels, *panels))

    def facts(self, method: Method | None) -> list[Fact]:
        if not isinstance(method, NetworkMethod):
            return []
        limit = method.network.max_disparity
        return [("maximum disparity", "none" if limit is None else f"{limit} px")]

    def rows(self, total: DisparitySummary) -> Iterator[dict[str, Value]]:
        """Yield one row per region and average; skip rows that would repeat another one."""
        for average, figures in ((POOLED, total.pooled), (MEANS, total.image_means)):
            for region in filter(figures.__contains__, REGIONS):
                pictures = total.having(region)
                if average == MEANS and pictures == 1:
                    continue
                if region in RANGES and total.pooled[region]["pixels"] == total.pooled["all"]["pixels"]:
                    continue
                yield {"region": region, "average": average, "pictures": pictures, **figures[region]}

    def told(self, page: Evaluation, sets: Sequence[MeasuredSet[DisparitySummary]]) -> Evaluation:
        numbers = {"sets": [each for one in sets for each in _numbers(one)], **page.numbers}
        charts = [] if self.comparing else [chart for one in sets for chart in _charts(one)]
        studied: tuple[Table, ...] = ()
        if self.study is not None:
            rows, drawn = studies.told(self.study, sets, COLUMNS)
            numbers["study"] = {"kind": self.study, "rows": json_rows(rows)}
            charts, studied = [*drawn, *charts], (rows,)
        regions = dict.fromkeys(str(row["region"]) for row in page.summary.rows)
        said = f"region: {'; '.join(f'{each}: {REGIONS[each]}' for each in regions if each in REGIONS)}"
        notes = (said, *page.notes)
        page = replace(page, studies=studied, charts=tuple(charts), numbers=numbers, notes=notes)
        if self.protocols:
            page = _by_rules(page, self.protocols, sets)
        if not self.comparing:
            return page
        tables, drawn, compared = comparison.compared(sets, COLUMNS)
        return replace(
            page,
            sections=(*tables, *page.sections),
            charts=(*drawn, *page.charts),
            notes=(*comparison.notes(sets), "time and memory are of the disparity alone", *page.notes),
            numbers={**page.numbers, "comparison": compared},
        )


def _numbers(one: MeasuredSet[DisparitySummary]) -> Iterator[dict[str, Any]]:
    """Yield the metrics of each method for JSON, with its name if there are several."""
    for name, total in one.methods.items():
        averages = (total.pooled, total.image_means)
        pooled, means = ({part: json_row(each) for part, each in figures.items()} for figures in averages)
        yield {
            "data": one.label,
            **({"method": name} if len(one.methods) > 1 else {}),
            "pictures": total.having("all"),
            "pooled": pooled,
            "image_means": means,
            "region_pictures": {region: total.having(region) for region in pooled},
            "notes": list(one.notes),
        }


def _charts(one: MeasuredSet[DisparitySummary]) -> Iterator[Histogram | CurveChart]:
    """Yield the histogram of errors and, if there is confidence, the sparsification curve."""
    summary = one.last
    counts = tuple(summary.errors.between(list(ERROR_EDGES)))
    without = max(round(summary.pooled["all"]["pixels"]) - int(summary.errors.counts.sum()), 0)
    yield Histogram(f"{one.label}: errors", ERROR_EDGES, counts, summary.protocol.wrong_from, without)
    if (curve := summary.curve) is not None:
        removed = tuple(100 * fraction for fraction in FRACTIONS)
        yield CurveChart(
            f"{one.label}: error of what stays when the least confident go",
            removed,
            {"by confidence": curve.epe, "oracle": curve.epe_oracle},
            "pixels removed (%)",
            "end-point error (px)",
            f"AUSE {curve.ause_epe:.3f}: the area between both, relative to the error of all.",
        )


def _by_rules(
    page: Evaluation, protocols: Sequence[str], sets: Sequence[MeasuredSet[DisparitySummary]]
) -> Evaluation:
    """Add the table of stated metrics, one column per protocol, and describe the protocols."""
    several = any(len(one.methods) > 1 for one in sets)
    rows = [row for one in sets for name, total in one.methods.items() for row in _stated(one, name, total)]
    words = text_columns("data", "method", "region", "figure")
    columns = [column for column in words if several or column.key != "method"]
    notes = {name: f"{PROTOCOLS[name].about} ({PROTOCOLS[name].source})" for name in protocols}
    columns_of_rules = (Column(name, name, note=notes[name]) for name in protocols)
    table = Table((*columns, *columns_of_rules), tuple(rows), "By the rules")
    told = {
        name: {
            "about": PROTOCOLS[name].about,
            "source": PROTOCOLS[name].source,
            "figures": [
                {**{each.key: row[each.key] for each in columns}, "value": json_value(row[name])}
                for row in rows
                if name in row
            ],
        }
        for name in protocols
    }
    return replace(
        page,
        sections=(table,),
        notes=(*(f"{name}: {note}" for name, note in notes.items()), *page.notes),
        numbers={**page.numbers, "protocols": told},
    )


def _stated(
    one: MeasuredSet[DisparitySummary], method: str, total: DisparitySummary
) -> list[dict[str, Value]]:
    """Return a row for each stated metric and each region that has pixels."""
    found: dict[tuple[str, str], dict[str, Value]] = {}
    for name, summary in total.rules.items():
        for each in summary.protocol.stated:
            figures = summary.pooled if each.average == POOLED else summary.image_means
            if each.region in figures:
                unit = COLUMNS[each.metric].unit
                called = f"{each.called} ({unit})" if unit else each.called
                row = {"data": one.label, "method": method, "region": each.region, "figure": called}
                value = figures[each.region][each.metric]
                found.setdefault((each.region, called), {**row})[name] = value
    return [*found.values()]
