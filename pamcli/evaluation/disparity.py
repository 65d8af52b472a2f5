"""Measure disparity by the protocol of each data set's benchmark: `pam eval disparity`."""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from pamcli.data.listing import resize_sample
from pamcli.data.open import open_data_sets
from pamcli.data.source import Sample, Source
from pamcli.errors import UsageError
from pamcli.evaluation import studies
from pamcli.evaluation.comparison import add_comparison
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.evaluation.disparity_tables import (
    COLUMNS,
    DISTANCES,
    HEADLINES,
    REGION_COLUMN,
    add_figures,
    add_means,
    add_regions,
    make_charts,
)
from pamcli.evaluation.loop import ImageFigures, Method, Task, measure_sets
from pamcli.evaluation.methods import DisparityFiles, MatcherMethod, list_built
from pamcli.evaluation.pixels import RANGES, REGIONS
from pamcli.evaluation.protocols import (
    MEANS,
    POOLED,
    PROTOCOLS,
    USUAL,
    DisparityProtocol,
    check_protocol,
)
from pamcli.evaluation.published import add_published
from pamcli.evaluation.report import check_files, write_files
from pamcli.evaluation.report_images import DrawnPair, draw_consistency, draw_disparities
from pamcli.evaluation.results import WORST, Evaluation, make_page
from pamcli.evaluation.tables import Column, Value
from pamcli.imaging.degradation import Degradation, parse_cameras
from pamcli.imaging.images import to_uint8
from pamcli.imaging.resize import imresize_to
from pamcli.reporting import SILENT, Reporter
from pamcli.settings.evaluation import DisparityMaps, EvaluateDisparitySettings
from pamcli.settings.options import takes

COMPARED = ("d1", "epe", "bad-2")  # metrics to compare after those that the protocol states

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
        sets = [DegradedImages(each, *camera) for each in sets for camera in cameras.items()]
    if pairs:
        built = list_built(pairs, settings.network_from)
        methods = [_make_method(name, what, settings, built, listener) for name, what in pairs]
    else:
        methods = [load_method(settings, listener, allow_missing=settings.allow_missing)]
    worst = WORST if settings.report else 0
    page = evaluate(task, sets, methods, compare=settings.compare, worst=worst, listener=listener)
    return add_means(page) if settings.camera and len(pairs) < 2 else page


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
        folder = Path(settings.predictions)
        return DisparityFiles(folder, allow_missing, name, scale=settings.scale, seconds=seconds)
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

    >>> matcher = StereoMatcher.load("pasmnet2")
    >>> found = evaluate(Disparity(), ["kitti2015:kitti"], [MatcherMethod(matcher, "pasmnet2")])
    >>> Path("report.html").write_bytes(render_report(found))

    The last of the methods is under test. `compare` adds published results. `worst` pairs per data set are in
    the report; 0 = no report. Raises UsageError, InputError.
    """
    sets = open_data_sets(data)
    if task.comparing:
        sets = [each if each.has_truth() else _Referenced(each, methods[0]) for each in sets]
    variants = studies.make_variants(task.study, methods[-1]) if task.study and methods else {}
    measured, notes = measure_sets(task, sets, methods, variants=variants, worst=worst, listener=listener)
    page = add_figures(make_page(task, measured, methods, notes), measured, task.protocols)
    if task.study is not None:
        page = studies.add_study(page, task.study, measured)
    if task.comparing:
        stated = [each.metric for each in measured[0].meter.protocol.stated if each.region == "all"]
        metrics = [*dict.fromkeys((*stated, *COMPARED))][:3]
        page = add_regions(page, measured, COLUMNS[metrics[0]])
        page = add_comparison(page, measured, COLUMNS, metrics, "density", timed="disparity")
    elif worst:
        page = replace(page, charts=(*page.charts, *(each for one in measured for each in make_charts(one))))
    return add_published(page, measured, methods[-1].name, task.scale) if compare else page


class _Changed(Source):
    """A data set whose samples are changed after they are loaded."""

    def __init__(self, source: Source) -> None:
        self.source, self.names, self.unpaired, self.spec = source, source.names, source.unpaired, source.spec
        self.full_size = source.full_size

    @property
    def absent(self) -> tuple[str, ...]:
        return self.source.absent


class DegradedImages(_Changed):
    """A data set as a camera of a kind of `CAMERAS` would have taken it; the same on every run."""

    def __init__(self, source: Source, kind: str, degradation: Degradation) -> None:
        super().__init__(source)
        self.kind, self.degradation = kind, degradation
        if source.spec is not None:
            self.spec = replace(source.spec, text=f"{source.spec.text}, {kind}")

    @property
    def label(self) -> str:
        return f"{self.source.label}, {self.kind}".lstrip(", ")

    def load(self, index: int) -> Sample:
        sample = self.source.load(index)
        if self.kind == "clean":
            return sample
        rngs = (
            np.random.default_rng(zlib.crc32(f"{sample.name} {side}".encode())) for side in ("left", "right")
        )
        views = zip((sample.left, sample.right), rngs, strict=True)
        left, right = (self.degradation(to_uint8(view), rng) for view, rng in views)
        return replace(sample, left=left, right=right)


class _Referenced(_Changed):
    """A data set without ground truth, with the results of a method in its place."""

    def __init__(self, source: Source, method: DisparityMethod) -> None:
        super().__init__(source)
        self.method = method
        method.open_set(source)

    @property
    def label(self) -> str:
        return self.source.label

    @property
    def absent(self) -> tuple[str, ...]:
        others = [line for line in self.source.absent if not line.startswith("no ground truth")]
        return (*others, f"no ground truth: all figures are differences from {self.method.name}")

    def load(self, index: int) -> Sample:
        sample = self.source.load(index)
        answer = self.method.run(sample)
        return sample if answer is None else replace(sample, disparity=answer.disparity)


@dataclass(frozen=True)
class Disparity(Task[Sample, Estimate, DisparityMeter]):
    """The disparity task, measured by each data set's own protocol or by named protocols."""

    max_gt: float | None = None  # count only pixels with ground truth below this, px
    resize: tuple[int, int] | None = None  # width, height to resize to before
    study: Literal["resolution", "range"] | None = None  # measured in addition, see `studies`
    comparing: bool = False  # compare several methods by paired differences and more image regions
    protocols: tuple[str, ...] = ()
    """Keys of `PROTOCOLS`; the first one rules all tables. () = the protocol of each data set's benchmark."""

    title = "Disparity"
    columns = COLUMNS
    key_figures = ("d1", "bad-2", "epe", "density")
    average = POOLED
    row_columns = (
        REGION_COLUMN,
        Column("average", "average", text=True, note=f"{POOLED}: over all pixels of the data set"),
        Column("images", "images", decimals=0, note="number of left images with pixels of the region"),
    )
    headline = HEADLINES
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

    def make_case(self, sample: Sample) -> Sample | None:
        if sample.disparity is None:
            return None
        return sample if self.resize is None else resize_sample(sample, *self.resize, imresize_to)

    def make_meters(self, source: Source) -> dict[str, DisparityMeter]:
        name = source.spec.info.name if source.spec else ""
        full_size = source.full_size and self.resize is None
        usual = replace(USUAL.get(name, DisparityProtocol()), max_gt=self.max_gt)
        rules = {each: PROTOCOLS[each].get_rules(name) for each in self.protocols}
        meters = {
            key: DisparityMeter(replace(each, resize=self.resize), full_size=full_size)
            for key, each in rules.items()
        }
        first = next(iter(rules.values()), usual)
        if self.study == "range" or not first.ranges:
            ranges = studies.RANGES if self.study == "range" else ()
            first = replace(first, ranges=DISTANCES if self.comparing else ranges)
        first = replace(first, resize=self.resize, parts=self.comparing)
        return {"": DisparityMeter(first, full_size=full_size), **meters}

    def make_rows(self, total: DisparityMeter) -> list[dict[str, Value]]:
        """Return one row per region and average; skip rows that would repeat another one."""
        rows: list[dict[str, Value]] = []
        for average, figures in ((POOLED, total.pooled_metrics), (MEANS, total.image_means)):
            for region in filter(figures.__contains__, REGIONS):
                images = total.image_counts[region]
                pixels = total.pooled_metrics[region]["pixels"]
                everything = region in RANGES and pixels == total.pooled_metrics["all"]["pixels"]
                if not everything and not (average == MEANS and images == 1):
                    rows.append({"region": region, "average": average, "images": images, **figures[region]})
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
