"""Measuring disparity over data sets, of a network or in files."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation import disparity_tables as tables
from pamcli.evaluation import studies
from pamcli.evaluation.disparity_metrics import MIDDLEBURY_WEIGHTS, DisparityMeter, ImageFigures
from pamcli.evaluation.disparity_tables import MeasuredSet
from pamcli.evaluation.methods import Estimate, Method, NetworkMethod
from pamcli.evaluation.report_pictures import Panel, ShownPair, consistency_panels, shown_disparity
from pamcli.evaluation.results import WORST, Evaluation, cost_of, facts_of, opened, set_notes, with_published
from pamcli.evaluation.tables import Table, json_rows
from pamcli.files.finding import listed
from pamcli.imaging.resize import imresize_to, nearest


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
    clip: bool = False
    """Estimates are clipped to [0, ndisp] where the calibration tells ndisp, as Middlebury does."""
    ranges: tuple[float, ...] = ()
    """Edges of ranges of the truth, px, that are measured one by one, too."""

    @classmethod
    def of(cls, data: str, **asked: Any) -> "DisparityProtocol":
        """That of a data set, by the name of its source. asked: its other fields."""
        middlebury = data == "middlebury"
        weights = MIDDLEBURY_WEIGHTS if middlebury else {}
        return cls(kitti=data in ("kitti2012", "kitti2015"), weights=weights, clip=middlebury, **asked)

    def notes(self) -> Iterator[str]:
        """What of it changes the figures, a clause each."""
        if self.kitti:
            yield "holes are filled as in KITTI's development kit before measuring; density is from before"
        if self.max_gt is not None:
            yield f"only truth below {self.max_gt:g} px is counted"
        if self.resize is not None:
            yield f"pictures and truth are brought to {self.resize[0]} x {self.resize[1]} pixels first"


def evaluate_disparity(
    data: Iterable[str | Source],
    method: Method,
    *,
    max_gt: float | None = None,
    resize: tuple[int, int] | None = None,
    study: str | None = None,
    compare: bool = False,
    worst: int = WORST,
    advance: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Figures, notes and report of a method on data sets with ground truth.

    >>> matcher = StereoMatcher.load("pasmnet2")
    >>> found = evaluate_disparity(["kitti2015:kitti"], NetworkMethod(matcher))
    >>> Path("report.html").write_bytes(found.report())

    max_gt: count only truth below this, px. resize: width and height to bring pictures and truth to first.
    study: one of `studies.STUDIES`, measured beside. compare: with published rows. worst: how many of the
    worst pairs of each set the report shows. advance: called after each sample.
    Raises UsageError, InputError: data that is none, without truth, or without what the method needs.
    """
    if study is not None and study not in studies.STUDIES:
        raise UsageError(f"no study is called {study!r}", f"known: {', '.join(studies.STUDIES)}")
    sets = opened(data)
    measured, notes, studied = [], [], []
    worst_pairs: list[ShownPair] = []
    for source in sets:
        name = source.spec.info.name if source.spec else ""
        protocol = DisparityProtocol.of(
            name, max_gt=max_gt, resize=resize, ranges=studies.RANGES if study == "range" else ()
        )
        estimate, lines = method.disparities(source)
        notes += lines
        one = measure_disparity(source.label, source, estimate, protocol, advance=advance)
        measured.append(one)
        worst_pairs += _worst_pairs(one.images, worst, source, method, protocol)
        if study is not None:
            again = partial(measure_disparity, source.label, source, protocol=protocol)
            studied.append(studies.study(study, one, method, again))
    network = method.network if isinstance(method, NetworkMethod) else None
    run, cost_numbers = cost_of(
        [image.seconds for one in measured for image in one.images],
        network,
        "network with confidence (and visibility, where it is measured)",
    )
    if network is not None:
        limit = network.max_disparity
        run.insert(0, ("maximum disparity", "none" if limit is None else f"{limit} px"))
    facts = facts_of(method.facts(), run, sets, [one.summary.images for one in measured])
    warnings = tuple(f"{one.label}: {line}" for one in measured for line in one.warnings)
    notes += [*set_notes(sets, [one.notes for one in measured]), *warnings]
    numbers = {"sets": [tables.numbers(one) for one in measured], **cost_numbers}
    study_tables: tuple[Table, ...] = ()
    if study is not None:
        study_tables = (studies.table(study, [row for rows, _ in studied for row in rows]),)
        numbers["study"] = {"kind": study, "rows": json_rows(study_tables[0])}
    found = Evaluation(
        title=f"Disparity of {facts[0][1]}",
        facts=tuple(facts),
        summary=tables.summary_table(measured),
        images=tables.images_table(measured),
        notes=tuple(notes),
        warnings=warnings,
        key_figures=tables.key_figures(measured),
        headline=tables.headline(measured),
        studies=study_tables,
        charts=(*(chart for _, chart in studied), *tables.charts(measured)),
        worst_pairs=tuple(worst_pairs),
        numbers=numbers,
    )
    own = [one.summary.pooled for one in measured]
    return with_published(found, sets, own, method.name) if compare else found


def measure_disparity(
    label: str,
    source: Source,
    estimate: Callable[[Sample], Estimate | None],
    protocol: DisparityProtocol,
    *,
    advance: Callable[[], None] = lambda: None,
) -> MeasuredSet:
    """Measure a method on every sample of a source that has a truth.

    estimate: the method; None = it has nothing for this sample, which is then left out. advance: called after
    each sample. Raises InputError as the meter does, and where no sample has a truth, before the method runs.
    """
    meter = DisparityMeter(kitti=protocol.kitti, max_gt=protocol.max_gt, ranges=protocol.ranges)
    images: list[ImageFigures] = []
    without_truth: list[str] = []
    ratios: list[float] = []
    clipped = 0
    for index in range(len(source)):
        sample = protocol_sample(source, index, protocol)
        found = None if sample.disparity is None else estimate(sample)
        if sample.disparity is None:
            without_truth.append(sample.name)
        elif found is not None:
            disparity, bounded = found.disparity, sample.calibration and sample.calibration.ndisp
            if protocol.clip and bounded:
                disparity = np.where(np.isfinite(disparity), np.clip(disparity, 0, bounded), disparity)
                clipped += 1
            figures = meter.add(sample, disparity, visible=found.visible, confidence=found.confidence)
            images.append(replace(figures, seconds=found.seconds))
            ratios.append(_ratio(found.disparity, sample.disparity))
        advance()
    if len(without_truth) == len(source):
        raise InputError(
            f"{without_truth[0]} has no true disparity, nor has any other pair of {label or 'the data'}",
            "measure on a split that comes with ground truth",
        )
    notes = [*source.missing, *protocol.notes()]
    if without_truth:
        notes.append(
            f"{len(without_truth)} of {len(source)} pairs have no truth, left out: {listed(without_truth)}"
        )
    if clipped:
        notes.append(
            f"estimates of {clipped} pairs are clipped to [0, ndisp], as Middlebury's evaluation does"
        )
    return MeasuredSet(
        label,
        meter.summary(protocol.weights),
        tuple(images),
        tuple(notes),
        tuple(_unit_warnings(ratios)),
        3.0 if protocol.kitti else 2.0,
    )


def protocol_sample(source: Source, index: int, protocol: DisparityProtocol) -> Sample:
    """A sample, brought to the size at which it is measured."""
    sample = source.load(index)
    return sample if protocol.resize is None else resize_sample(sample, *protocol.resize)


def _ratio(disparity: NDArray[np.float32], truth: NDArray[np.float32]) -> float:
    """The typical ratio of estimate and truth; NaN where nothing is known of both."""
    with np.errstate(invalid="ignore"):
        both = (truth > 0) & np.isfinite(truth) & np.isfinite(disparity)
    return float(np.median(disparity[both] / truth[both])) if both.any() else math.nan


def _unit_warnings(ratios: list[float]) -> Iterator[str]:
    """Of estimates in another unit, or with another sign; no method is so bad in half of the pictures."""
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    typical = float(np.median(known)) if known else 1.0
    if typical < 0:
        yield "most estimates are negative: disparities of the left view are positive"
    elif not 1 / 3 < typical < 3:
        times = (
            f"{typical:.3g} times" if typical >= 0.01 else f"1/{1 / typical:.0f} of" if typical else "0 times"
        )
        yield f"the estimates are typically {times} the truth: are they in pixels, not multiplied or divided?"


def _worst_pairs(
    images: Iterable[ImageFigures], count: int, source: Source, method: Method, protocol: DisparityProtocol
) -> Iterator[ShownPair]:
    """The pictures with the highest D1, worst first.

    Of a network with maps of how far it contradicts itself: left-right, and in its cycle.
    """
    counted = [(image.regions["all"], image.name) for image in images if image.regions]
    for figures, name in sorted(counted, key=lambda one: -one[0]["d1"])[:count]:
        sample = protocol_sample(source, source.names.index(name), protocol)
        panels: tuple[Panel, ...] = ()
        if isinstance(method, NetworkMethod):
            found = method.network(sample.left, sample.right, extras={"right_disparity", "confidence"})
            panels = consistency_panels(found.disparity, found.right_disparity, found.confidence)
        else:
            found = method.disparities(source)[0](sample)
        assert sample.disparity is not None
        caption = f"D1 {figures['d1']:.1f} %, end-point error {figures['epe']:.2f} px"
        views = sample.left, found.disparity, sample.disparity
        pair = shown_disparity(name, caption, *views, visible=sample.visible)
        yield replace(pair, panels=(*pair.panels, *panels))


def resize_sample(sample: Sample, width: int, height: int) -> Sample:
    """The sample with pictures of `width` x `height` pixels.

    Pictures by MATLAB's antialiased bicubic; disparities by the nearest pixel, never by a mean across an
    edge, and times the ratio of the widths; masks by the nearest pixel; the calibration (focal length and
    offset) by the ratio of the widths. Raises ValueError: a side below 1.
    """
    ratio = width / sample.left.shape[1]

    def truth(disparity: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
        return None if disparity is None else nearest(disparity, width, height).astype(np.float32) * ratio

    def mask(values: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        return None if values is None else nearest(values, width, height).astype(np.bool_)

    calibration = sample.calibration
    if calibration is not None:
        calibration = replace(
            calibration,
            focal_length=calibration.focal_length * ratio,
            offset=calibration.offset * ratio,
            ndisp=None if calibration.ndisp is None else calibration.ndisp * ratio,
            principal=None,  # of another aspect, perhaps
            size=None,
            focal_length_y=None,
        )
    return replace(
        sample,
        left=imresize_to(sample.left, width, height),
        right=imresize_to(sample.right, width, height),
        disparity=truth(sample.disparity),
        right_disparity=truth(sample.right_disparity),
        visible=mask(sample.visible),
        foreground=mask(sample.foreground),
        calibration=calibration,
    )
