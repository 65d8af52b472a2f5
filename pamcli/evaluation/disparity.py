"""Measure disparity by the protocol of each data set's benchmark: `pam eval disparity`."""

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pamcli.data.listing import resize_sample
from pamcli.data.open import open_data_sets
from pamcli.data.source import Sample, Source
from pamcli.errors import UsageError
from pamcli.evaluation import disparity_tables
from pamcli.evaluation.comparison import add_comparison
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.evaluation.loop import ImageFigures, MeasuredSet, Method, Task, measure_sets
from pamcli.evaluation.methods import DisparityFiles, MatcherMethod, list_built
from pamcli.evaluation.pixels import RANGES, REGIONS
from pamcli.evaluation.protocols import MEANS, POOLED, PROTOCOLS, USUAL, DisparityProtocol, check_protocol
from pamcli.evaluation.published import add_published
from pamcli.evaluation.report import write_files
from pamcli.evaluation.report_images import DrawnPair, draw_consistency, draw_disparities
from pamcli.evaluation.results import WORST, Column, Evaluation, Value, check_files
from pamcli.imaging.degradation import Degradation, parse_cameras
from pamcli.imaging.images import to_uint8
from pamcli.imaging.resize import imresize_to
from pamcli.reporting import SILENT, Reporter
from pamcli.settings.evaluation import DisparityMaps, EvaluateDisparitySettings
from pamcli.settings.options import takes

COMPARED = ("d1", "epe", "bad-2")  # metrics to compare after those that the protocol states
LIMITS = (192, 96)  # maximum disparities, px, of the additional runs of the study "range"

DisparityMethod = Method[Sample, Estimate]


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
    if settings.camera:
        cameras = parse_cameras(settings.camera, "`camera`")
        sets = [
            ChangedSource(each, partial(_degrade, kind, camera), kind)
            for each in sets
            for kind, camera in cameras.items()
        ]
    built = list_built(pairs, settings.network_from) if pairs else []
    methods = [_make_method(*pair, settings, built, listener) for pair in pairs]
    methods = methods or [load_method(settings, listener, allow_missing=settings.allow_missing)]
    worst = WORST if settings.report else 0
    page = evaluate(task, sets, methods, compare=settings.compare, worst=worst, listener=listener)
    if settings.camera and not task.comparing:
        disparity_tables.add_means(page)
    return page


def load_method(
    settings: DisparityMaps,
    listener: Reporter,
    name: str = "",
    *,
    extras: bool = True,
    allow_missing: bool = False,
    seconds: float | None = None,
) -> DisparityMethod:
    """Load the network, or take the `predictions`. The keywords are fields of the methods."""
    if settings.predictions is not None:
        folder, scale = settings.predictions, settings.scale
        return DisparityFiles(folder, allow_missing, name, scale=scale, seconds=seconds)
    with listener.starting(str(settings.name)):
        from pamcli.inference.loading import load_matcher

        matcher, path = load_matcher(settings)
    return MatcherMethod(matcher, name or str(settings.name), path, extras=extras)


def _make_method(
    name: str, what: str, settings: EvaluateDisparitySettings, built: list[str], listener: Reporter
) -> DisparityMethod:
    """Return the method for `files:FOLDER`, `opencv`, `opencv-wls` or weights; raise UsageError."""
    if what.startswith("files:"):
        folder = Path(what.removeprefix("files:"))
        return DisparityFiles(folder, settings.allow_missing, name, scale=settings.scale)
    if what in ("opencv", "opencv-wls"):
        from pamcli.evaluation.opencv_methods import SemiGlobalMethod

        most = settings.max_disparity if isinstance(settings.max_disparity, int) else None
        return SemiGlobalMethod(name, what == "opencv-wls", most)
    source = settings.network_from if str(Path(what)) in built else None
    network = replace(
        settings, method=None, allow_missing=False, scale=None, weights=what, network_from=source
    )
    return load_method(network, listener, name, extras=len(settings.method or ()) < 2)


def evaluate(
    task: "Disparity",
    data: Iterable[str | Source],
    methods: Sequence[DisparityMethod],
    *,
    compare: bool = False,
    worst: int = WORST,
    listener: Reporter = SILENT,
) -> Evaluation:
    """Measure methods on data sets and return metrics, notes and report data.

    The last of the methods is under test. `compare` adds published results. `worst` pairs per data set are in
    the report; 0 = no report. Raises UsageError, InputError.
    """
    sets = open_data_sets(data)
    if task.comparing:
        note = f"no ground truth: all figures are differences from {methods[0].name}"
        for index, source in enumerate(sets):
            if not source.has_truth():
                methods[0].open_set(source)
                sets[index] = ChangedSource(source, partial(_take_as_truth, methods[0]), note=note)
    variants = task.make_variants(methods[-1]) if task.study else {}
    measured, page = measure_sets(task, sets, methods, variants=variants, worst=worst, listener=listener)
    regions = {}
    for row in page.summary.rows:
        regions[row["region"]] = f"{row['region']}: {REGIONS[str(row['region'])]}"
    page.notes.insert(0, f"region: {'; '.join(regions.values())}")
    page.numbers = {"sets": _list_figures(measured), **page.numbers}
    if task.protocols:
        disparity_tables.add_protocols(page, measured, task.protocols)
    if task.study is not None:
        disparity_tables.add_study(page, task.study, measured)
    if task.comparing:
        stated = [each.metric for each in measured[0].meter.protocol.stated if each.region == "all"]
        metrics = [*dict.fromkeys((*stated, *COMPARED))][:3]
        disparity_tables.add_regions(page, measured, disparity_tables.COLUMNS[metrics[0]])
        add_comparison(page, measured, disparity_tables.COLUMNS, metrics, "density", timed="disparity")
    elif worst:
        page.charts += [chart for one in measured for chart in disparity_tables.make_charts(one)]
    if compare:
        add_published(page, measured, methods[-1].name)
    return page


def _list_figures(sets: Sequence[MeasuredSet[DisparityMeter]]) -> list[dict[str, Any]]:
    """Return the metrics of each data set and method for JSON."""
    found = []
    for one in sets:
        for name, total in one.methods.items():
            pooled, means, counters = total.pooled_metrics, total.image_means, total.counters
            about = {"data": one.label, "method": name} if len(one.methods) > 1 else {"data": one.label}
            figures = {
                "images": counters["all"]["images"],
                "pooled": pooled,
                "image_means": {region: means[region] for region in pooled},
                "region_images": {region: counters[region]["images"] for region in pooled},
                "notes": one.notes,
            }
            found.append(about | figures)
    return found


class ChangedSource(Source):
    """A data set whose samples are changed after they are loaded."""

    def __init__(self, source: Source, change: Callable[[Sample], Sample], kind: str = "", note: str = ""):
        """Change the samples. `kind` is added to the name; `note` replaces those on missing ground truth."""
        self.source, self.change, self.note = source, change, note
        self.names, self.unpaired, self.full_size = source.names, source.unpaired, source.full_size
        self.spec = spec = source.spec
        if kind and spec:
            self.spec = spec._replace(text=f"{spec.text}, {kind}", label=f"{spec.label}, {kind}")

    @property
    def absent(self) -> tuple[str, ...]:
        if not self.note:
            return self.source.absent
        return (*(line for line in self.source.absent if not line.startswith("no ground truth")), self.note)

    def load(self, index: int) -> Sample:
        return self.change(self.source.load(index))


def _degrade(kind: str, degradation: Degradation, sample: Sample) -> Sample:
    """Return the images as a camera of a kind of `CAMERAS` would have taken them; the same on every run."""
    if kind == "clean":
        return sample
    views = []
    for side, view in (("left", sample.left), ("right", sample.right)):
        rng = np.random.default_rng(zlib.crc32(f"{sample.name} {side}".encode()))
        views.append(degradation(to_uint8(view), rng))
    return replace(sample, left=views[0], right=views[1])


def _take_as_truth(method: DisparityMethod, sample: Sample) -> Sample:
    answer = method.run(sample)
    return sample if answer is None else replace(sample, disparity=answer.disparity)


@dataclass(frozen=True)
class Disparity(Task[Sample, Estimate, DisparityMeter]):
    """The disparity task, measured by each data set's own protocol or by named protocols."""

    max_gt: float | None = None  # count only pixels with ground truth below this, px
    resize: tuple[int, int] | None = None  # width, height to resize to before
    study: Literal["resolution", "range"] | None = None  # measured in addition, see `add_study`
    comparing: bool = False  # compare several methods by paired differences and more image regions
    protocols: tuple[str, ...] = ()
    """Keys of `PROTOCOLS`; the first one rules all tables. () = the protocol of each data set's benchmark."""

    title = "Disparity"
    facts = ()
    columns = disparity_tables.COLUMNS
    key_figures = ("d1", "bad-2", "epe", "density")
    average = POOLED
    row_columns = (
        Column("region", "region", text=True, note="; ".join(f"{k}: {v}" for k, v in REGIONS.items())),
        Column("average", "average", text=True, note=f"{POOLED}: over all pixels of the data set"),
        Column("images", "images", decimals=0, note="number of left images with pixels of the region"),
    )
    headline = disparity_tables.HEADLINES
    timed = "network with confidence (and visibility, where it is measured)"

    def __post_init__(self) -> None:
        for name in self.protocols:
            check_protocol(name)
            if self.protocols.count(name) > 1:
                raise UsageError(f"`protocol` {name} is given twice", "give each name once")
        if self.max_gt is not None and not (math.isfinite(self.max_gt) and self.max_gt >= 1):
            raise UsageError(f"`max_gt` must be at least 1 px, got {self.max_gt:g}")
        if self.protocols and self.max_gt is not None:
            hint = "a protocol defines which ground truth counts"
            raise UsageError("cannot use both `max_gt` and `protocol`", hint)

    def make_variants(self, method: DisparityMethod) -> Mapping[float, Callable[[Sample], Estimate]]:
        """Return the modified runs of a network for the study, by scale factor or maximum disparity, px."""
        matcher: Any = method
        if self.study == "resolution":
            if method.network is None:
                raise UsageError("`study` resolution requires a network", "result files have one resolution")
            return {
                factor: partial(matcher.match_at, factor)
                for factor in disparity_tables.RESOLUTIONS
                if factor != 1
            }
        if method.network is None or method.network.model.has_fixed_search:
            return {}
        return {limit: matcher.with_limit(limit).run for limit in LIMITS}

    def make_case(self, sample: Sample) -> Sample | None:
        if sample.disparity is None:
            return None
        return sample if self.resize is None else resize_sample(sample, *self.resize, imresize_to)

    def make_meter(self, source: Source) -> DisparityMeter:
        name = source.spec.info.name if source.spec else ""
        full_size = source.full_size and self.resize is None
        rules = {}
        for each in self.protocols:
            rules[each] = replace(PROTOCOLS[each].get_rules(name), resize=self.resize)
        usual = replace(USUAL.get(name, DisparityProtocol()), max_gt=self.max_gt)
        first = next(iter(rules.values()), usual)
        if self.study == "range":
            first = replace(first, ranges=disparity_tables.STUDY_RANGES)
        elif self.comparing and not first.ranges:
            first = replace(first, ranges=disparity_tables.DISTANCES)
        first = replace(first, parts=self.comparing, resize=self.resize)
        return DisparityMeter(first, full_size=full_size, protocols=rules)

    def make_rows(self, total: DisparityMeter) -> list[dict[str, Value]]:
        """Return one row per region and average; skip rows that would repeat another one."""
        rows: list[dict[str, Value]] = []
        for average, figures in ((POOLED, total.pooled_metrics), (MEANS, total.image_means)):
            for region in REGIONS:
                if region not in figures:
                    continue
                counters = total.counters[region]
                everything = region in RANGES and counters["pixels"] == total.counters["all"]["pixels"]
                if not everything and not (average == MEANS and counters["images"] == 1):
                    row: dict[str, Value] = {"region": region, "average": average}
                    rows.append({**row, "images": counters["images"], **figures[region]})
        return rows

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
        captions = []
        for name, image in zip(answers, images, strict=True):
            figures = image.figures["all"]
            caption = f"D1 {figures['d1']:.1f} %, end-point error {figures['epe']:.2f} px"
            captions.append(f"{name}: {caption}" if len(answers) > 1 else caption)
        found = {name: one.disparity for name, one in answers.items()}
        pair = draw_disparities(case, "; ".join(captions), found)
        first = next(iter(answers.values()))
        if len(answers) > 1 or first.again is None:
            return pair
        again = first.again(extras={"right_disparity", "confidence"})
        panels = draw_consistency(again.disparity, again.right_disparity, again.confidence)
        return replace(pair, panels=(*pair.panels, *panels))
