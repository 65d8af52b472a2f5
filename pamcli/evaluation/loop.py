"""Measure methods on data sets, in one loop: each pair, each method, each protocol."""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.report_images import DrawnPair
from pamcli.evaluation.tables import Column, Fact, Figures, Value
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.reporting import SILENT, Reporter

LOG = logging.getLogger("pamcli")

RESERVED = {"data", "part", "pixels", "pam", "date"}  # other keys beside the names of methods in JSON

Case = TypeVar("Case")  # what is measured: a `Sample`, or a `SuperresPair`
Answer = TypeVar("Answer")  # the result of a method for a case
Measures = TypeVar("Measures", bound="Meter[Any, Any]")

Watch = Callable[[int], Callable[[float], None]]  # rows of a pair -> callback for the completed fraction


class ImageFigures(NamedTuple):
    """The metrics of one pair; empty if none of its pixels was counted."""

    name: str
    figures: Figures
    seconds: float | None = None  # run time of the method, s, if known
    memory: int | None = None  # peak memory of the method beyond what was in use before, bytes, if known


class Meter(ABC, Generic[Case, Answer]):
    """The metrics of a method on a data set, measured one pair after the other."""

    weights: Mapping[str, float] = {}
    """Weights of pairs in the means, by the last component of their names; 1 for all others."""

    def __init__(self) -> None:
        self.images: list[ImageFigures] = []

    @abstractmethod
    def add(self, case: Case, answer: Answer) -> ImageFigures:
        """Measure one answer; raise InputError that names the sample."""

    @cached_property
    def image_means(self) -> Figures:
        """Mean of each metric over the pairs that have it; NaN if any of its values is NaN."""
        values: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for image in self.images:
            weight = self.weights.get(image.name.rpartition("/")[2], 1.0)
            for region, figures in image.figures.items():
                for metric, value in figures.items():
                    values.setdefault((region, metric), []).append((value, weight))
        if not values:
            raise InputError("no pair was measured", "check that the data set has ground truth")
        means: dict[str, dict[str, float]] = {}
        for (region, metric), found in values.items():
            numbers, weights = np.array(found).T
            means.setdefault(region, {})[metric] = float(np.average(numbers, weights=weights))
        return means

    @property
    def headline(self) -> Figures:
        """The average that is reported first."""
        return self.image_means

    @property
    def notes(self) -> list[str]:
        """Circumstances that change the metrics, one clause each."""
        return []

    @cached_property
    def image_counts(self) -> Counter[str]:
        """Number of pairs that have a region: "all", "noc", "left", ..."""
        return Counter(region for image in self.images for region in image.figures)


class Method(ABC, Generic[Case, Answer]):
    """A method to measure."""

    name: str  # in tables
    network: Any = None  # the loaded network, if it is one
    fits_one_set = False  # True for result files, which belong to one data set

    def facts(self) -> list[Fact]:
        """Return facts about the method as (name, value), the method itself first; [] if the name says it."""
        return []

    def take_notes(self) -> list[str]:
        """Return notes on the measurements since the last call."""
        return []

    def open_set(self, source: Source) -> None:
        """Prepare to measure a data set; raise UsageError or InputError if the method does not fit it."""

    @abstractmethod
    def run(self, case: Case, watch: Watch | None = None) -> Answer | None:
        """Return the answer for a pair of the data set, or None if there is none."""


class Task(ABC, Generic[Case, Answer, Measures]):
    """A task to measure: its cases and metrics, and how tables and reports show them."""

    title: str
    scale: int | None = None  # upscaling factor
    columns: Mapping[str, Column]  # columns of all metrics by name, in table order
    key_figures: tuple[str, ...]  # the metrics to show first
    average = ""  # name of the average of the key metrics, if there are several
    row_columns: tuple[Column, ...]  # leading columns of summary rows after data set and method
    headline: tuple[Sequence[str], ...]  # metrics of the terminal tables, most important first
    names_single_method = False  # True if tables name the method even if there is only one
    timed: str  # scope of the measured run time of a network

    @property
    def facts(self) -> list[Fact]:
        """Facts on the cases."""
        return []

    @abstractmethod
    def make_case(self, sample: Sample) -> Case | None:
        """Return the case to measure, or None without ground truth; raise InputError if it is unsuitable."""

    @abstractmethod
    def make_meters(self, source: Source) -> dict[str, Measures]:
        """Return an empty meter of a data set for each protocol, the one that rules all tables first."""

    @abstractmethod
    def make_rows(self, total: Measures) -> list[dict[str, Value]]:
        """Return the rows of the summary of a meter."""

    @abstractmethod
    def rank(self, images: Sequence[ImageFigures]) -> float | None:
        """Return the sort key of a pair in the report, lowest first, given its metrics per method."""

    @abstractmethod
    def draw(self, case: Case, answers: Mapping[str, Answer], images: Sequence[ImageFigures]) -> DrawnPair:
        """Render a pair for the report; `answers` are results by method, `images` figures in that order."""


@dataclass(frozen=True)
class MeasuredSet(Generic[Measures]):
    """The results of all methods on one data set."""

    source: Source
    label: str
    meters: Mapping[str, Mapping[str, Measures]]  # by method (the one under test last) and by protocol
    variants: Mapping[float, Measures]  # meters of modified runs of the method under test, for a study
    notes: tuple[str, ...]
    left_out: tuple[str, ...]  # samples without a result of one method; they are measured for no method
    worst: tuple[DrawnPair, ...]  # the worst pairs, worst first

    @property
    def methods(self) -> dict[str, Measures]:
        """The meter of each method by the first protocol."""
        return {name: next(iter(meters.values())) for name, meters in self.meters.items()}

    @property
    def meter(self) -> Measures:
        """The meter of the method under test."""
        return [*self.methods.values()][-1]


def measure(
    task: Task[Case, Answer, Measures],
    source: Source,
    methods: Mapping[str, Callable[[Case], Answer | None]],
    *,
    variants: Mapping[float, Callable[[Case], Answer]] | None = None,
    worst: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> MeasuredSet[Measures]:
    """Measure methods on every pair that has ground truth.

    Args:
        task: What is measured, and how.
        source: The data set.
        methods: Functions from a case to its result, by name; the method under test last.
        variants: Modified runs of the method under test, for a study.
        worst: Number of pairs to draw for a report.
        advance: Called after each pair.

    Raises:
        InputError: No pair has ground truth, or a result does not fit it.
    """
    meters = {name: task.make_meters(source) for name in methods}
    varied = {value: next(iter(task.make_meters(source).values())) for value in variants or {}}
    bad: list[tuple[float, Callable[[], DrawnPair]]] = []
    without_truth: list[str] = []
    left_out: list[str] = []
    for index, name in enumerate(source.names):
        case, answers = task.make_case(source.load(index)), {}
        if case is None:
            without_truth.append(name)
            advance()
            continue
        for method, run in methods.items():
            if (answer := run(case)) is None:
                left_out.append(name)
                break
            answers[method] = answer
        else:
            images = []
            for method, answer in answers.items():
                by_protocol = [meter.add(case, answer) for meter in meters[method].values()]
                images.append(by_protocol[0])
            for value, vary in (variants or {}).items():
                varied[value].add(case, vary(case))
            if worst and (rank := task.rank(images)) is not None:
                bad.append((rank, partial(task.draw, case, answers, images)))
                bad = sorted(bad, key=lambda pair: pair[0])[:worst]
        advance()
    if without_truth and len(without_truth) == len(source):
        raise InputError(
            f"{source.label or 'the data'}: no pair has ground truth, for example {without_truth[0]}",
            "`pam dataset list` NAME shows its splits and formats; to compare without it, give two `method`",
        )
    absent = [line for line in source.absent if not line.startswith("no ground truth (")]  # see below
    notes = [*absent, *source.unpaired, *next(iter([*meters.values()][-1].values())).notes]
    if without_truth:
        count = f"{len(without_truth)} of {pluralize(len(source), 'pair')}"
        notes.append(f"{count} without ground truth skipped: {join_names(without_truth)}")
    drawn = tuple(draw() for _, draw in bad)
    return MeasuredSet(source, source.label, meters, varied, tuple(notes), tuple(left_out), drawn)


def measure_sets(
    task: Task[Case, Answer, Measures],
    sets: Sequence[Source],
    methods: Sequence[Method[Case, Answer]],
    *,
    variants: Mapping[float, Callable[[Case], Answer]] | None = None,
    worst: int = 0,
    listener: Reporter = SILENT,
) -> tuple[list[MeasuredSet[Measures]], list[str]]:
    """Measure methods on several data sets as `measure` does; return the results and notes on them.

    Raises:
        UsageError: A method does not fit the data sets, or two have one name.
    """
    if not methods:
        raise UsageError("a method is required", "give a network or a folder of files")
    names = [each.name for each in methods]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two methods have the name {quote(name)}", "give them different names")
        if len(names) > 1 and name in RESERVED:
            raise UsageError(f"a method cannot have the name {name}", f"give it another name: new={name}")
    if len(sets) > 1 and (files := [each.name for each in methods if each.fits_one_set]):
        message = f"the files of {quote(files[0])} belong to one data set, but {len(sets)} are given"
        raise UsageError(message, "measure each data set by itself")
    labels = [source.label for source in sets]
    measured, notes = [], []
    with listener.progress("pairs", sum(map(len, sets))) as bar:
        for source in sets:
            LOG.debug(f"{source.spec.text if source.spec else source.label}: {len(source)} pairs")
            for each in methods:
                each.open_set(source)
            runs = {each.name: partial(each.run, watch=bar.watch) for each in methods}
            found = measure(task, source, runs, variants=variants, worst=worst, advance=bar.advance)
            if source.spec and labels.count(source.label) > 1:
                found = replace(found, label=source.spec.text)
            if found.left_out:
                pairs = pluralize(len(found.left_out), "pair")
                notes.append(f"{pairs} without a prediction skipped: {join_names(found.left_out)}")
            for each in methods:
                notes += each.take_notes()
            measured.append(found)
    return measured, notes
