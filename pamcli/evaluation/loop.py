"""Measure methods in one loop (each pair, each method, each protocol), and put the metrics into tables."""

import datetime
import logging
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pamcli import __version__
from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.report_images import DrawnPair
from pamcli.evaluation.results import (
    Column,
    Evaluation,
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
NAMES = make_text_columns("data", "name", "method")  # leading columns of all tables
SECONDS = Column("seconds", "time", "s", 3)

Case = TypeVar("Case")  # what is measured: a `Sample`, or a `SuperresPair`
Answer = TypeVar("Answer", bound="MethodResult")  # the result of a method for a case
Measures = TypeVar("Measures", bound="Meter[Any, Any]")

Watch = Callable[[int], Callable[[float], None]]  # rows of a pair -> callback for the completed fraction


class ImageFigures(NamedTuple):
    """The metrics of one pair; empty if none of its pixels was counted."""

    name: str
    figures: Figures
    seconds: float | None = None  # run time of the method, s, if known
    memory: int | None = None  # peak memory of the method beyond what was in use before, bytes, if known


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """The run time, memory and remarks of a method on one pair."""

    seconds: float | None = None  # run time of the method, s
    memory: int | None = None  # peak memory of the method beyond what was in use before, bytes
    remarks: Sequence[str] = ()  # on this result


class Meter(ABC, Generic[Case, Answer]):
    """The metrics of a method on a data set, measured one pair after the other."""

    images: list[ImageFigures]
    weights: Mapping[str, float] = {}
    """Weights of pairs in the means, by the last component of their names; 1 for all others."""

    @property
    @abstractmethod
    def notes(self) -> Sequence[str]:
        """Circumstances that change the metrics, one clause each."""

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


class Method(ABC, Generic[Case, Answer]):
    """A method to measure."""

    name: str  # in tables
    network: Any = None  # the loaded network, if it is one
    fits_one_set = False  # True for result files, which belong to one data set
    notes: Sequence[str] = ()

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
    key_figures: Sequence[str]  # the metrics of the first row to show first
    average = ""  # name of the average of the key metrics, if there are several
    row_columns: Sequence[Column]  # leading columns of summary rows after data set and method
    headline: Sequence[Sequence[str]]  # metrics of the terminal tables, most important first
    names_single_method = False  # True if tables name the method even if there is only one
    timed: str  # scope of the measured run time of a network

    @property
    @abstractmethod
    def facts(self) -> Sequence[Fact]:
        """Facts on the cases."""

    @abstractmethod
    def make_case(self, sample: Sample) -> Case | None:
        """Return the case to measure, or None without ground truth; raise InputError if it is unsuitable."""

    @abstractmethod
    def make_meter(self, source: Source) -> Measures:
        """Return an empty meter of a data set."""

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
    methods: dict[str, Measures]  # the meter of each method
    meter: Measures  # of the last method, which is under test
    variants: dict[float, Measures]  # meters of modified runs of the method under test, for a study
    remarks: dict[str, dict[str, None]]  # on the answers of each method, each once
    notes: list[str] = field(default_factory=list)  # on the data set
    skipped: list[str] = field(default_factory=list)  # a note on the pairs that a method has no answer for
    worst: list[DrawnPair] = field(default_factory=list)  # the worst pairs, worst first


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
    meters = {name: task.make_meter(source) for name in methods}
    found = MeasuredSet(
        source,
        source.spec.label if source.spec else "",
        meters,
        meter=[*meters.values()][-1],
        variants={value: task.make_meter(source) for value in variants},
        remarks={name: {} for name in methods},
    )
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
            found.remarks[method].update(dict.fromkeys(answer.remarks))
        else:
            images = [found.methods[method].add(case, answer) for method, answer in answers.items()]
            for value, vary in variants.items():
                answer = vary(case)
                found.variants[value].add(case, answer)
                found.remarks[method].update(dict.fromkeys(answer.remarks))
            if worst and (rank := task.rank(images)) is not None:
                bad.append((rank, partial(task.draw, case, answers, images)))
                bad = sorted(bad, key=lambda pair: pair[0])[:worst]
        advance()
    if without_truth and len(without_truth) == len(source.names):
        raise InputError(
            f"{found.label or 'the data'}: no pair has ground truth, for example {without_truth[0]}",
            "`pam dataset list` NAME shows its splits and formats; to compare without it, give two `method`",
        )
    for _, draw in bad:
        found.worst.append(draw())
    for line in source.absent:
        if not line.startswith("no ground truth ("):  # see below
            found.notes.append(line)
    found.notes += [*source.unpaired, *found.meter.notes]
    if without_truth:
        count = f"{len(without_truth)} of {pluralize(len(source), 'pair')}"
        found.notes.append(f"{count} without ground truth skipped: {join_names(without_truth)}")
    if without_answer:
        pairs = pluralize(len(without_answer), "pair")
        found.skipped.append(f"{pairs} without a prediction skipped: {join_names(without_answer)}")
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
    for each in methods:
        if names.count(each.name) > 1:
            raise UsageError(f"two methods have the name {quote(each.name)}", "give them different names")
        if len(names) > 1 and each.name in RESERVED:
            hint = f"give it another name: new={each.name}"
            raise UsageError(f"a method cannot have the name {each.name}", hint)
    for each in methods:
        if len(sets) > 1 and each.fits_one_set:
            message = f"the files of {quote(each.name)} belong to one data set, but {len(sets)} are given"
            raise UsageError(message, "measure each data set by itself")
    measured = []
    with listener.progress("pairs", sum([len(source.names) for source in sets])) as bar:
        for source in sets:
            LOG.debug(f"{source.spec.text if source.spec else source}: {len(source.names)} pairs")
            for each in methods:
                each.open_set(source)
            runs = {each.name: partial(each.run, watch=bar.watch) for each in methods}
            found = measure(task, source, runs, variants=variants, worst=worst, advance=bar.advance)
            measured.append(found)
    labels = [each.label for each in measured]
    for found in measured:
        if found.source.spec and labels.count(found.label) > 1:
            found.label = found.source.spec.text
    return measured, _make_evaluation(task, measured, methods)


def _make_evaluation(
    task: Task[Any, Any, Any], sets: Sequence[MeasuredSet[Any]], methods: Sequence[Method[Any, Any]]
) -> Evaluation:
    """Make the tables, facts and notes that both tasks have; the last of the methods is under test."""
    title, facts, numbers = _describe_methods(task, sets, methods)
    title = f"{task.title}{f' x{task.scale}' if task.scale else ''} of {title}"
    data, notes, key_figures = [], [], []
    summary: list[Row] = []
    images: list[Row] = []
    for one in sets:
        spec, about = one.source.spec, {}
        for name, total in one.methods.items():
            is_named = len(methods) > 1 or task.names_single_method
            about[name] = {"data": one.label, "method": name} if is_named else {"data": one.label}
            rows: Sequence[Row] = task.make_rows(total)
            summary += [{**about[name], **row} for row in rows]
            columns = [task.columns[key] for key in task.key_figures]
            values = [(each.heading, format_value(rows[0][each.key], each.decimals)) for each in columns]
            key_figures.append((", ".join(filter(None, [*about[name].values(), task.average])), values))
        for index, each in enumerate(one.meter.images):
            for name, total in one.methods.items():
                image = total.images[index]
                row = {**about[name], "name": each.name, "seconds": image.seconds}
                images.append({**row, **flatten(image.figures)})
        pairs = len([image for image in one.meter.images if image.figures])
        data.append(f"{quote(spec.text if spec else one.label)} ({pluralize(pairs, 'pair')})")
        notes += [f"{one.label}: {line}" for line in one.notes]
        if spec and spec.info.unverified:
            notes.append(f"{one.label}: unverified layout, {spec.info.unverified}")
        if spec and spec.weight != 1:
            notes.append(f"{one.label}: weight={spec.weight:g} affects training only and is ignored here")
    table = _make_table(task, summary, task.row_columns, (*task.headline[0], *task.columns))
    page = Evaluation(
        title,
        facts=[*facts, ("data", ", ".join(data))],
        summary=table,
        images=_make_table(task, images, [SECONDS], task.columns),
        key_figures=key_figures,
        numbers=numbers,
    )
    for one in sets:
        page.worst_pairs += one.worst
        page.notes += one.skipped
        for each in methods:
            if remarks := one.remarks[each.name]:
                page.notes.append(join_names(remarks, "; ", most=2))
            page.notes += each.notes
    page.notes += notes
    for keys in task.headline:
        if rows := [row for row in summary if not row.keys().isdisjoint(keys)]:
            page.headline.append(_make_table(task, rows, task.row_columns, keys))
    return page


def _make_table(
    task: Task[Any, Any, Any], rows: Sequence[Row], first: Iterable[Column], keys: Iterable[str]
) -> Table:
    """Return a table with the columns of `keys` that some row has, after those of names and `first`."""
    present = set().union(*rows)
    names = [column for column in NAMES if column.key in present]
    metrics = [task.columns[key] for key in dict.fromkeys(keys) if key in present]
    return Table((*names, *first, *metrics), rows)


def _describe_methods(
    task: Task[Any, Any, Any], sets: Sequence[MeasuredSet[Any]], methods: Sequence[Method[Any, Any]]
) -> tuple[str, list[Fact], dict[str, Any]]:
    """Return the methods' name in titles; facts about them; and, of a single network, time and memory."""
    described = {}
    for each in methods:
        if facts := each.facts():
            described[each.name] = [*facts, *task.facts]
    method = methods[-1]
    about: list[Fact] = []
    numbers: dict[str, Any] = {"seconds_per_pair": None, "peak_memory_bytes": None}
    if len(described) > 1:
        numbers = {}
        title = f"{', '.join(each.name for each in methods[:-1])} and {method.name}"
        plain = ("method", "weights", "device")
        for name, facts in described.items():
            texts = [value if key in plain else f"{key} {value}" for key, value in facts if key != "network"]
            about.append((name, "; ".join(texts)))
    else:
        about = next(iter(described.values()), [("method", f"{method.name} alone")])
        title = about[0][1]
    about.append(("pam", f"{__version__}, Python {platform.python_version()}"))
    about.append(("date", datetime.date.today().isoformat()))
    images = [image for one in sets for image in one.meter.images]
    seconds = [image.seconds for image in images if image.seconds is not None]
    if len(described) < 2 and seconds and method.network is not None:
        from pamcli.inference.device import peak_memory

        mean, compute = sum(seconds) / len(seconds), method.network.compute
        memory = peak_memory(compute.device)
        where = "on the GPU" if compute.device.type == "cuda" else "in total"
        about.append(("time", f"{mean:.3f} s per pair, {task.timed}"))
        about.append(("peak memory", f"{memory / 1e9:.2f} GB {where}"))
        numbers = {"seconds_per_pair": mean, "peak_memory_bytes": memory}
    return title, about, numbers
