"""Measure methods in one loop (each pair, each method, each protocol), and put the metrics into tables."""

import datetime
import logging
import platform
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pamcli import __version__
from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.report_images import DrawnPair
from pamcli.evaluation.results import Evaluation
from pamcli.evaluation.tables import (
    Column,
    Fact,
    Figures,
    Row,
    Table,
    Value,
    flatten,
    format_value,
    make_text_columns,
)
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

    @cached_property
    def remarks(self) -> dict[str, None]:
        """Remarks on the pairs since the last call of `take_notes`, each once."""
        return {}

    def take_notes(self) -> list[str]:
        """Return notes on the measurements since the last call."""
        notes = [join_names(self.remarks, "; ", most=2)] if self.remarks else []
        self.remarks.clear()
        return notes

    def facts(self) -> list[Fact]:
        """Return facts about the method as (name, value), the method itself first; [] if the name says it."""
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
    key_figures: Sequence[str]  # the metrics to show first
    average = ""  # name of the average of the key metrics, if there are several
    row_columns: Sequence[Column]  # leading columns of summary rows after data set and method
    headline: Sequence[Sequence[str]]  # metrics of the terminal tables, most important first
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
        """Return an empty meter of a data set for each protocol; "" is the one that rules all tables."""

    @abstractmethod
    def make_rows(self, total: Measures) -> list[dict[str, Value]]:
        """Return the rows of the summary of a meter."""

    @abstractmethod
    def rank(self, images: Sequence[ImageFigures]) -> float | None:
        """Return the sort key of a pair in the report, lowest first, given its metrics per method."""

    @abstractmethod
    def draw(self, case: Case, answers: Mapping[str, Answer], images: Sequence[ImageFigures]) -> DrawnPair:
        """Render a pair for the report; `answers` are results by method, `images` figures in that order."""


@dataclass
class MeasuredSet(Generic[Measures]):
    """The results of all methods on one data set."""

    source: Source
    label: str
    meters: Mapping[str, Mapping[str, Measures]]  # by method (the one under test last) and by protocol
    variants: Mapping[float, Measures]  # meters of modified runs of the method under test, for a study
    notes: list[str]  # on the data set
    remarks: list[str]  # on the methods
    worst: list[DrawnPair]  # the worst pairs, worst first

    @property
    def methods(self) -> dict[str, Measures]:
        """The meter of each method by the protocol that rules all tables."""
        return {name: meters[""] for name, meters in self.meters.items()}

    @property
    def meter(self) -> Measures:
        """The meter of the method under test."""
        return [*self.meters.values()][-1][""]


def measure(
    task: Task[Case, Answer, Measures],
    source: Source,
    methods: Mapping[str, Callable[[Case], Answer | None]],
    *,
    variants: Mapping[float, Callable[[Case], Answer]] = {},
    worst: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> MeasuredSet[Measures]:
    """Measure methods, given as functions from a case to its result, on every pair that has ground truth.

    The last method is under test; `variants` are modified runs of it for a study. `worst` pairs are drawn for
    a report. `advance` is called after each pair. Raises InputError if no pair has ground truth, or if a
    result does not fit it.
    """
    meters = {name: task.make_meters(source) for name in methods}
    varied = {value: task.make_meters(source)[""] for value in variants}
    bad: list[tuple[float, Callable[[], DrawnPair]]] = []
    without_truth, without_answer = [], []
    for index, name in enumerate(source.names):
        case, answers = task.make_case(source.load(index)), {}
        if case is None:
            without_truth.append(name)
            advance()
            continue
        for method, run in methods.items():
            if (answer := run(case)) is None:
                without_answer.append(name)
                break
            answers[method] = answer
        else:
            images = []
            for method, answer in answers.items():
                measured = [meter.add(case, answer) for meter in meters[method].values()]
                images.append(measured[0])
            for value, vary in variants.items():
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
    found = MeasuredSet(source, source.label, meters, varied, [], [], [draw() for _, draw in bad])
    found.notes += [line for line in source.absent if not line.startswith("no ground truth (")]  # see below
    found.notes += [*source.unpaired, *found.meter.notes]
    if without_truth:
        count = f"{len(without_truth)} of {pluralize(len(source), 'pair')}"
        found.notes.append(f"{count} without ground truth skipped: {join_names(without_truth)}")
    if without_answer:
        pairs = pluralize(len(without_answer), "pair")
        found.remarks.append(f"{pairs} without a prediction skipped: {join_names(without_answer)}")
    return found


def measure_sets(
    task: Task[Case, Answer, Measures],
    sets: Sequence[Source],
    methods: Sequence[Method[Case, Answer]],
    *,
    variants: Mapping[float, Callable[[Case], Answer]] = {},
    worst: int = 0,
    listener: Reporter = SILENT,
) -> tuple[list[MeasuredSet[Measures]], Evaluation]:
    """Measure methods on several data sets as `measure` does, and make the tables, facts and notes.

    Raises UsageError if a method does not fit the data sets, or if two have one name.
    """
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
    measured = []
    with listener.progress("pairs", sum(map(len, sets))) as bar:
        for source in sets:
            LOG.debug(f"{source.spec.text if source.spec else source.label}: {len(source)} pairs")
            for each in methods:
                each.open_set(source)
            runs = {each.name: partial(each.run, watch=bar.watch) for each in methods}
            found = measure(task, source, runs, variants=variants, worst=worst, advance=bar.advance)
            if source.spec and labels.count(source.label) > 1:
                found.label = source.spec.text
            for each in methods:
                found.remarks += each.take_notes()
            measured.append(found)
    return measured, _make_evaluation(task, measured, methods)


def _make_evaluation(
    task: Task[Any, Any, Any], sets: Sequence[MeasuredSet[Any]], methods: Sequence[Method[Any, Any]]
) -> Evaluation:
    """Make the tables, facts and notes that both tasks have; the last of the methods is under test."""
    named = len(methods) > 1 or task.names_single_method
    images: list[Row] = []
    summary: list[Row] = []
    key_figures = []
    for one in sets:
        about = {name: {"data": one.label} | ({"method": name} if named else {}) for name in one.methods}
        for name, total in one.methods.items():
            summary += [{**about[name], **row} for row in task.make_rows(total)]
            figures = flatten(total.headline)
            columns = [task.columns[key] for key in task.key_figures]
            values = [(each.heading, format_value(figures[each.key], each.decimals)) for each in columns]
            key_figures.append((", ".join(filter(None, [*about[name].values(), task.average])), values))
        for measured in zip(*(total.images for total in one.methods.values()), strict=True):
            for first, image in zip(about.values(), measured, strict=True):
                row = {**first, "name": image.name, "seconds": image.seconds}
                images.append({**row, **flatten(image.figures)})
    title, facts, numbers = _describe_methods(task, sets, methods)
    page = Evaluation(
        title=f"{task.title}{f' x{task.scale}' if task.scale else ''} of {title}",
        facts=facts,
        summary=_make_table(task, summary, task.row_columns, (*task.headline[0], *task.columns)),
        images=_make_table(task, images, [Column("seconds", "time", "s", 3)], task.columns),
        notes=[remark for one in sets for remark in one.remarks],
        key_figures=key_figures,
        worst_pairs=[pair for one in sets for pair in one.worst],
        numbers=numbers,
    )
    for keys in task.headline:
        if rows := [row for row in summary if not row.keys().isdisjoint(keys)]:
            page.headline.append(_make_table(task, rows, task.row_columns, keys))
    data = []
    for one in sets:
        spec, pairs = one.source.spec, len([image for image in one.meter.images if image.figures])
        data.append(f"{quote(spec.text if spec else one.label)} ({pluralize(pairs, 'pair')})")
        page.notes += [f"{one.label}: {line}" for line in one.notes]
        if spec and spec.info.unverified:
            page.notes.append(f"{one.label}: unverified layout, {spec.info.unverified}")
        if spec and spec.weight != 1:
            page.notes.append(
                f"{one.label}: weight={spec.weight:g} affects training only and is ignored here"
            )
    page.facts.append(("data", ", ".join(data)))
    return page


def _make_table(
    task: Task[Any, Any, Any], rows: Sequence[Row], first: Iterable[Column], keys: Iterable[str]
) -> Table:
    present = {key for row in rows for key in row}
    names = make_text_columns(*filter(rows[0].__contains__, ("data", "name", "method")))
    metrics = (task.columns[key] for key in dict.fromkeys(keys) if key in present)
    return Table((*names, *first, *metrics), rows)


def _describe_methods(
    task: Task[Any, Any, Any], sets: Sequence[MeasuredSet[Any]], methods: Sequence[Method[Any, Any]]
) -> tuple[str, list[Fact], dict[str, Any]]:
    """Return the methods' name in titles; facts about them; and, of a single network, time and memory."""
    described = {each.name: [*facts, *task.facts] for each in methods if (facts := each.facts())}
    method = methods[-1]
    cost: list[Fact] = []
    numbers: dict[str, Any] = {"seconds_per_pair": None, "peak_memory_bytes": None}
    if len(described) > 1:
        numbers, about = {}, []
        title = f"{', '.join(each.name for each in methods[:-1])} and {method.name}"
        plain = ("method", "weights", "device")
        for name, facts in described.items():
            texts = [value if key in plain else f"{key} {value}" for key, value in facts if key != "network"]
            about.append((name, "; ".join(texts)))
    else:
        about = next(iter(described.values()), [("method", f"{method.name} alone")])
        title = about[0][1]
        images = [image for one in sets for image in one.meter.images]
        seconds = [image.seconds for image in images if image.seconds is not None]
        if seconds and method.network is not None:
            mean, compute = sum(seconds) / len(seconds), method.network.compute
            memory = compute.peak_memory()
            where = "on the GPU" if compute.device.type == "cuda" else "in total"
            cost.append(("time", f"{mean:.3f} s per pair, {task.timed}"))
            cost.append(("peak memory", f"{memory / 1e9:.2f} GB {where}"))
            numbers = {"seconds_per_pair": mean, "peak_memory_bytes": memory}
    about.append(("pam", f"{__version__}, Python {platform.python_version()}"))
    about.append(("date", datetime.date.today().isoformat()))
    return title, about + cost, numbers
