"""Measure disparity by the protocol of each data set's benchmark: `pam eval disparity` and its tables."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.data.listing import resize_sample
from pamcli.data.open import open_data_sets
from pamcli.data.source import Sample, Source
from pamcli.errors import UsageError
from pamcli.evaluation import comparison, studies
from pamcli.evaluation.disparity_metrics import METRICS, DisparityMeter, Estimate
from pamcli.evaluation.methods import FilesMethod, Matching, Method, NetworkMethod, Watch
from pamcli.evaluation.pixels import FRACTIONS, RANGES, REGIONS, count_between
from pamcli.evaluation.protocols import (
    MEANS,
    POOLED,
    PROTOCOLS,
    USUAL,
    DisparityProtocol,
    check_protocol,
)
from pamcli.evaluation.report_charts import ERROR_EDGES, CurveChart, Histogram
from pamcli.evaluation.report_images import DrawnPair, draw_consistency, draw_disparities
from pamcli.evaluation.results import (
    WORST,
    Column,
    Evaluation,
    Fact,
    ImageFigures,
    Table,
    Value,
    check_files,
    flatten,
    make_text_columns,
    to_json_row,
    to_json_rows,
    to_json_value,
)
from pamcli.evaluation.run import MeasuredSet, Task, evaluate, write_files
from pamcli.imaging.resize import imresize_to
from pamcli.registry.description import SUFFIX, read_description
from pamcli.reporting import SILENT, Reporter
from pamcli.settings.evaluation import DisparityMaps, EvaluateDisparitySettings
from pamcli.settings.options import takes

HEADLINE = ("epe", "d1", "bad-2", "density", "pixels", "bad-3", "bad-1", "rms", "bad-4", "bad-0.5")
SPREAD = ("a50", "a90", "a95", "a99")
TRUST = (
    *("ause-epe", "ause-bad-2"),
    *(f"{kind}-{share}" for kind in ("visible", "occluded") for share in ("precision", "recall")),
)
"""Metrics of the three terminal tables, most important first; every other output has all metrics."""

UNITS = {
    "pixels": ("", 0),
    **dict.fromkeys(("epe", "rms", *SPREAD), ("px", 2)),
    **dict.fromkeys(("ause-epe", "ause-bad-2"), ("", 3)),
}
"""Units and decimals of metrics; the others are in percent with two decimals."""
CAPITALS = {"epe", "d1", *SPREAD}  # metrics whose titles are written in capitals


def _column(key: str) -> Column:
    """Return the column of a `METRICS` key, optionally after a region, as in "noc d1"."""
    region, _, metric = key.rpartition(" ")
    title = metric.upper() if metric in CAPITALS else metric
    return Column(key, f"{region} {title}".strip(), *UNITS.get(metric, ("%", 2)), note=METRICS[metric])


COLUMNS = {
    key: _column(key) for key in flatten({region: dict.fromkeys(METRICS, math.nan) for region in REGIONS})
}


@takes(EvaluateDisparitySettings)
def evaluate_disparity(settings: EvaluateDisparitySettings) -> Evaluation:
    """Measure disparity on data sets with ground truth, as `pam eval disparity` does.

    >>> found = pamcli.evaluate_disparity("pairs:labelled", device="cpu", report="report.html")
    >>> print(found.text())

    Args:
        settings: Data sets as `NAME:PATH`; then an `EvaluateDisparitySettings`, or its fields as keywords.

    Raises:
        PamError: A UsageError, InputError, ModelError, DeviceError or OutputError.
    """
    return write_files(measure_disparity(settings, SILENT), settings)


def measure_disparity(settings: EvaluateDisparitySettings, listener: Reporter) -> Evaluation:
    """Measure disparity and report progress to a listener; raise as `evaluate_disparity`."""
    pairs = settings.method or ()
    check_files(settings, settings.weights, *(what for _, what in pairs))
    rules = tuple(settings.protocol or ())
    task = Disparity(settings.max_gt, settings.resize, settings.study, len(pairs) > 1, rules)
    sets = open_data_sets(settings.data)
    if pairs:
        described = [Path(what) for _, what in pairs if what.endswith(SUFFIX) and settings.network_from]
        built = [str(path) for path in described if not read_description(path).network]
        if settings.network_from and not built:
            problem = "`network_from` requires a `method` whose description (.toml) names no network file"
            raise UsageError(problem)
        methods = [_make_method(name, what, settings, built, listener) for name, what in pairs]
    else:
        methods = [load_method(settings, listener, allow_missing=settings.allow_missing)]
    if len(methods) > 1:
        sets = [each if each.has_truth() else _Referenced(each, methods[0]) for each in sets]
    worst = WORST if settings.report else 0
    return evaluate(task, sets, methods, compare=settings.compare, worst=worst, listener=listener)


class _Referenced(Source):
    """A data set without ground truth, with the results of a method in its place."""

    def __init__(self, source: Source, method: Method) -> None:
        self.source, self.names, self.unpaired, self.spec = source, source.names, source.unpaired, source.spec
        self.method, self.run = method, method.prepare_matching(source, extras=False)

    @property
    def absent(self) -> tuple[str, ...]:
        others = [line for line in self.source.absent if not line.startswith("no ground truth")]
        return (*others, f"no ground truth: all figures are differences from {self.method.name}")

    def load(self, index: int) -> Sample:
        sample = self.source.load(index)
        answer = self.run(sample)
        return sample if answer is None else replace(sample, disparity=answer.disparity)


def load_method(settings: DisparityMaps, listener: Reporter, name: str = "", **files: Any) -> Method:
    """Load the network, or the `predictions` as a `FilesMethod` with the fields `files`."""
    if settings.predictions is not None:
        return FilesMethod(Path(settings.predictions), settings.scale, **files)
    with listener.starting(str(settings.name)):
        from pamcli.inference.loading import load_matcher

        matcher, path = load_matcher(settings)
    return NetworkMethod(matcher, name or str(settings.name), path)


def _make_method(
    name: str, what: str, settings: EvaluateDisparitySettings, built: list[str], listener: Reporter
) -> Method:
    """Return the method for `files:FOLDER`, `opencv`, `opencv-wls` or weights; raise UsageError."""
    if what.startswith("files:"):
        folder = Path(what.removeprefix("files:"))
        return FilesMethod(folder, settings.scale, settings.allow_missing, name=name)
    if what in ("opencv", "opencv-wls"):
        from pamcli.evaluation.opencv_methods import SemiGlobalMethod

        most = settings.max_disparity if isinstance(settings.max_disparity, int) else None
        return SemiGlobalMethod(name, what == "opencv-wls", most)
    source = settings.network_from if str(Path(what)) in built else None
    network = replace(
        settings, method=None, allow_missing=False, scale=None, weights=what, network_from=source
    )
    return load_method(network, listener, name)


@dataclass(frozen=True)
class Disparity(Task):
    """The disparity task, measured by each data set's own protocol or by named protocols."""

    max_gt: float | None = None  # count only pixels with ground truth below this, px
    resize: tuple[int, int] | None = None  # width, height to resize to before
    study: str | None = None  # one of `studies.STUDIES`, measured in addition
    comparing: bool = False  # compare several methods by paired differences and more image regions
    protocols: tuple[str, ...] = ()
    """Keys of `PROTOCOLS`; the first one rules all tables. () = the protocol of each data set's benchmark."""

    title = "Disparity"
    columns = COLUMNS
    key_figures = ("d1", "bad-2", "epe", "density")
    average = POOLED
    row_columns = (
        Column("region", "region", text=True, note="; ".join(f"{k}: {v}" for k, v in REGIONS.items())),
        Column("average", "average", text=True, note=f"{POOLED}: over all pixels of the data set"),
        Column("images", "images", decimals=0, note="number of left images with pixels of the region"),
    )
    headline = HEADLINE, SPREAD, TRUST
    timed = "network with confidence (and visibility, where it is measured)"

    def __post_init__(self) -> None:
        if self.study is not None and self.study not in studies.STUDIES:
            known = ", ".join(studies.STUDIES)
            raise UsageError(f"unknown study {self.study!r}, expected one of {known}")
        for name in self.protocols:
            check_protocol(name)
            if self.protocols.count(name) > 1:
                raise UsageError(f"`protocol` {name} is given twice", "give each name once")
        if self.max_gt is not None and not (math.isfinite(self.max_gt) and self.max_gt >= 1):
            raise UsageError(f"`max_gt` must be at least 1 px, got {self.max_gt:g}")
        if self.protocols and self.max_gt is not None:
            hint = "a protocol defines which ground truth counts"
            raise UsageError("cannot use both `max_gt` and `protocol`", hint)

    def make_case(self, sample: Sample) -> Sample | None:
        if sample.disparity is None:
            return None
        return sample if self.resize is None else resize_sample(sample, *self.resize, imresize_to)

    def make_meter(self, source: Source) -> DisparityMeter:
        name = source.spec.info.name if source.spec else ""
        full_size = source.full_size and self.resize is None
        beside = {}
        for each in self.protocols:
            rules = replace(PROTOCOLS[each].get_rules(name), resize=self.resize)
            beside[each] = DisparityMeter(rules, full_size=full_size)
        usual = replace(USUAL.get(name, DisparityProtocol()), max_gt=self.max_gt, resize=self.resize)
        first = beside[self.protocols[0]].protocol if beside else usual
        if self.study == "range" or not first.ranges:
            ranges = studies.RANGES if self.study == "range" else ()
            first = replace(first, ranges=comparison.DISTANCES if self.comparing else ranges)
        return DisparityMeter(replace(first, parts=self.comparing), beside, full_size=full_size)

    def prepare(self, method: Method | None, source: Source, watch: Watch | None) -> Matching:
        assert method is not None
        return method.prepare_matching(source, watch, extras=not self.comparing)

    def make_variants(self, method: Method | None) -> Mapping[float, Callable[[Sample], Estimate]]:
        return {} if self.study is None else studies.make_variants(self.study, method)

    def rank(self, images: Sequence[ImageFigures]) -> float | None:
        """Rank by D1; rank several methods by their largest D1 difference, ties by the end-point error."""
        if not all(image.figures for image in images):
            return None
        shares, errors = ([image.figures["all"][key] for image in images] for key in ("d1", "epe"))
        if len(images) == 1:
            return -shares[0]
        gap = np.nan_to_num(max(errors) - min(errors), nan=0.0)
        return float(min(shares) - max(shares) - 1e-6 * gap)

    def draw(
        self, case: Sample, answers: Mapping[str, Estimate], images: Sequence[ImageFigures]
    ) -> DrawnPair:
        """Draw a pair for the report; for a single network also its left-right difference and uncertainty."""
        captions = [
            f"{f'{name}: ' if len(answers) > 1 else ''}D1 {image.figures['all']['d1']:.1f} %, "
            f"end-point error {image.figures['all']['epe']:.2f} px"
            for name, image in zip(answers, images, strict=True)
        ]
        found = {name: one.disparity for name, one in answers.items()}
        pair = draw_disparities(case, "; ".join(captions), found)
        first = next(iter(answers.values()))
        if len(answers) > 1 or first.again is None:
            return pair
        again = first.again(extras={"right_disparity", "confidence"})
        panels = draw_consistency(again.disparity, again.right_disparity, again.confidence)
        return replace(pair, panels=(*pair.panels, *panels))

    def describe(self, method: Method | None) -> list[Fact]:
        if not isinstance(method, NetworkMethod):
            return []
        limit = method.network.max_disparity
        return [("maximum disparity", "none" if limit is None else f"{limit} px")]

    def make_rows(self, total: DisparityMeter) -> Iterator[dict[str, Value]]:
        """Yield one row per region and average; skip rows that would repeat another one."""
        for average, figures in ((POOLED, total.pooled_metrics), (MEANS, total.image_means)):
            for region in filter(figures.__contains__, REGIONS):
                images = total.image_counts[region]
                if average == MEANS and images == 1:
                    continue
                if (
                    region in RANGES
                    and total.pooled_metrics[region]["pixels"] == total.pooled_metrics["all"]["pixels"]
                ):
                    continue
                yield {"region": region, "average": average, "images": images, **figures[region]}

    def extend(self, page: Evaluation, sets: Sequence[MeasuredSet], *, report: bool) -> Evaluation:
        numbers = {"sets": [each for one in sets for each in _list_numbers(one)], **page.numbers}
        charts: list[Histogram | CurveChart] = []
        studied: tuple[Table, ...] = ()
        if self.study is not None:
            rows, charts = studies.summarize(self.study, sets, COLUMNS)
            numbers["study"] = {"kind": self.study, "rows": to_json_rows(rows)}
            studied = (rows,)
        if report and not self.comparing:
            charts += [chart for one in sets for chart in _make_charts(one)]
        named = filter(REGIONS.__contains__, dict.fromkeys(str(row["region"]) for row in page.summary.rows))
        note = f"region: {'; '.join(f'{each}: {REGIONS[each]}' for each in named)}"
        notes = (note, *page.notes)
        page = replace(page, studies=studied, charts=tuple(charts), numbers=numbers, notes=notes)
        if self.protocols:
            page = _add_protocols(page, self.protocols, sets)
        return comparison.add_comparison(page, sets, COLUMNS) if self.comparing else page


def _list_numbers(one: MeasuredSet) -> Iterator[dict[str, Any]]:
    """Yield the metrics of each method for JSON, with its name if there are several."""
    for name, total in one.methods.items():
        pooled, means, counts = {}, {}, {}
        for region, figures in total.pooled_metrics.items():
            pooled[region] = to_json_row(figures)
            means[region] = to_json_row(total.image_means[region])
            counts[region] = total.image_counts[region]
        yield {
            "data": one.label,
            **({"method": name} if len(one.methods) > 1 else {}),
            "images": total.image_counts["all"],
            "pooled": pooled,
            "image_means": means,
            "region_images": counts,
            "notes": list(one.notes),
        }


def _make_charts(one: MeasuredSet) -> Iterator[Histogram | CurveChart]:
    """Yield the histogram of errors and, if there is confidence, the sparsification curve."""
    meter: DisparityMeter = one.meter
    histogram = meter.histograms["all"]
    without = max(round(meter.pooled_metrics["all"]["pixels"] - histogram[0].sum()), 0)
    counts = count_between(histogram, ERROR_EDGES)
    yield Histogram(f"{one.label}: errors", ERROR_EDGES, counts, meter.protocol.wrong_from, without)
    if (curve := meter.curve()) is not None:
        yield CurveChart(
            f"{one.label}: error of the remaining pixels after removing the least confident",
            tuple(100 * fraction for fraction in FRACTIONS),
            {"by confidence": curve.epe.tolist(), "oracle": curve.epe_oracle.tolist()},
            "pixels removed (%)",
            "end-point error (px)",
            f"AUSE {curve.areas()['ause-epe']:.3f}: area between the curves, relative to the overall error.",
        )


def _add_protocols(page: Evaluation, protocols: Sequence[str], sets: Sequence[MeasuredSet]) -> Evaluation:
    """Add the table of stated metrics, one column per protocol, and describe the protocols."""
    several = any(len(one.methods) > 1 for one in sets)
    rows = [
        row for one in sets for name, total in one.methods.items() for row in _stated_rows(one, name, total)
    ]
    columns = make_text_columns("data", *(["method"] if several else []), "region", "figure")
    protocol_columns, notes, described = [], [], {}
    for name in protocols:
        about, source, figures = PROTOCOLS[name].about, PROTOCOLS[name].source, []
        for row in rows:
            if name in row:
                texts = {each.key: row[each.key] for each in columns}
                figures.append({**texts, "value": to_json_value(row[name])})
        described[name] = {"about": about, "source": source, "figures": figures}
        notes.append(f"{name}: {about} ({source})")
        protocol_columns.append(Column(name, name, note=f"{about} ({source})"))
    table = Table((*columns, *protocol_columns), tuple(rows), "By protocol")
    numbers = {**page.numbers, "protocols": described}
    return replace(page, sections=(table,), notes=(*notes, *page.notes), numbers=numbers)


def _stated_rows(one: MeasuredSet, method: str, total: DisparityMeter) -> list[dict[str, Value]]:
    """Return a row for each stated metric and each region that has pixels."""
    found: dict[tuple[str, str], dict[str, Value]] = {}
    for name, meter in total.beside.items():
        for each in meter.protocol.stated:
            figures = meter.pooled_metrics if each.average == POOLED else meter.image_means
            if each.region in figures:
                unit = COLUMNS[each.metric].unit
                title = f"{each.called} ({unit})" if unit else each.called
                row = {"data": one.label, "method": method, "region": each.region, "figure": title}
                found.setdefault((each.region, title), {**row})[name] = figures[each.region][each.metric]
    return [*found.values()]
