"""Measure methods on data sets, sample by sample, and summarize the results.

A `Task` holds the differences of disparity and super-resolution. Charts and the row above published results
belong to the last method.
"""

import datetime
import logging
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pamcli import __version__
from pamcli.data.open import open_data_sets
from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.methods import FilesMethod, Method, NetworkMethod, Watch
from pamcli.evaluation.published import add_published
from pamcli.evaluation.report_images import DrawnPair
from pamcli.evaluation.results import (
    WORST,
    Column,
    Evaluation,
    Fact,
    ImageFigures,
    Meter,
    Row,
    Table,
    Value,
    flatten,
    format_value,
    make_text_columns,
)
from pamcli.files.atomic import write_atomically
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.reporting import SILENT, Reporter

LOG = logging.getLogger("pamcli")

RESERVED = {"data", "part", "pixels", "pam", "date"}  # other keys beside the names of methods in JSON


@dataclass(frozen=True)
class MeasuredSet:
    """The results of all methods on one data set."""

    source: Source
    label: str
    methods: Mapping[str, Any]  # meters by method name, the method under test last
    meter: Any  # meter of the method under test
    variants: Mapping[float, Any]  # meters of modified runs of the method under test, for a study
    notes: tuple[str, ...]
    left_out: tuple[str, ...]  # samples without a result of one method; they are measured for no method
    worst: tuple[Callable[[], DrawnPair], ...]  # functions that draw the worst pairs, worst first


class Task(ABC):
    """A task to measure: its tables and report, cases (`Sample`, `SuperresPair`) and answers."""

    title: str
    scale: int | None = None  # upscaling factor
    columns: Mapping[str, Column]  # columns of all metrics by name, in table order
    key_figures: tuple[str, ...]  # the metrics to show first
    average = ""  # name of the average of the key metrics, if there are several
    row_columns: tuple[Column, ...]  # leading columns of summary rows after data set and method
    headline: tuple[Sequence[str], ...]  # metrics of the terminal tables, most important first
    baseline: Mapping[str, None] = {}  # name of the baseline that accompanies every method, if any
    timed: str  # scope of the measured run time of a network

    @abstractmethod
    def make_case(self, sample: Sample) -> Any:
        """Return the case to measure, or None without ground truth; raise InputError if it is unsuitable."""

    @abstractmethod
    def make_meter(self, source: Source) -> Meter:
        """Return an empty meter for a method on a data set."""

    @abstractmethod
    def prepare(self, method: Method | None, source: Source, watch: Watch | None) -> Callable[[Any], Any]:
        """Prepare a method for a data set. Raises UsageError, InputError."""

    @abstractmethod
    def rank(self, images: Sequence[ImageFigures]) -> float | None:
        """Return the sort key of a pair in the report, lowest first, given its metrics per method."""

    @abstractmethod
    def draw(self, case: Any, answers: Mapping[str, Any], images: Sequence[ImageFigures]) -> DrawnPair:
        """Render a pair for the report; `answers` are estimates by method, `images` figures in that order."""

    @abstractmethod
    def make_rows(self, total: Any) -> Iterator[dict[str, Value]]:
        """Yield the rows of the summary of a meter."""

    @abstractmethod
    def extend(self, page: Evaluation, sets: Sequence[MeasuredSet], *, report: bool) -> Evaluation:
        """Add the tables that only this task has, and the charts of a report."""

    def describe(self, method: Method | None) -> list[Fact]:
        """Return facts on how the method under test is run."""
        return []

    def make_variants(self, method: Method | None) -> Mapping[float, Callable[[Any], Any]]:
        """Return modified runs of the method under test for a study, by the modified value."""
        return {}


def evaluate(
    task: Task,
    data: Iterable[str | Source],
    methods: Sequence[Method],
    *,
    compare: bool = False,
    worst: int = WORST,
    listener: Reporter = SILENT,
) -> Evaluation:
    """Measure methods on data sets and return metrics, notes and report data.

    >>> matcher = StereoMatcher.load("pasmnet2")
    >>> found = evaluate(Disparity(), ["kitti2015:kitti"], [NetworkMethod(matcher, "pasmnet2")])
    >>> Path("report.html").write_bytes(render_report(found))

    The last of the methods is under test. `compare` adds published results. `worst` pairs per data set are in
    the report; 0 = no report. Raises UsageError, InputError.
    """
    sets = open_data_sets(data)
    named: dict[str, Method | None] = {**task.baseline}
    for each in methods:
        if isinstance(each, FilesMethod) and len(sets) > 1:
            message = f"the files of {quote(each.name)} belong to one data set, but {len(sets)} are given"
            raise UsageError(message, "measure each data set by itself")
        row = f"{each.name} (files)" if each.name in ("", *task.baseline) else each.name
        if row in named:
            raise UsageError(f"two methods have the name {quote(row)}", "give them different names")
        if len(methods) > 1 and row in RESERVED:
            raise UsageError(f"a method cannot have the name {row}", f"give it another name: new={row}")
        named[row] = each
    if not named:
        raise UsageError("a method is required", "give a network or a folder of files")
    name, method = [*named.items()][-1]
    labels = [source.label for source in sets]
    measured: list[MeasuredSet] = []
    notes: list[str] = []
    pairs: list[DrawnPair] = []
    with listener.progress("pairs", sum(map(len, sets))) as bar:
        for source in sets:
            LOG.debug(f"{source.spec.text if source.spec else source.label}: {len(source)} pairs")
            runs, variants = {}, task.make_variants(method)
            for each_name, each_method in named.items():
                runs[each_name] = task.prepare(each_method, source, bar.watch)
            found = measure(task, source, runs, variants=variants, worst=worst, advance=bar.advance)
            if source.spec and labels.count(source.label) > 1:
                found = replace(found, label=source.spec.text)
            if found.left_out:
                pair_count = pluralize(len(found.left_out), "pair")
                notes.append(f"{pair_count} without a prediction skipped: {join_names(found.left_out)}")
            for each in methods:
                notes += each.take_notes()
            pairs += [draw() for draw in found.worst]
            measured.append(found)
    several = len(named) > 1 or bool(task.baseline)
    about = [("method", f"{name} alone")]
    if method is not None:
        about = [*method.facts(), *task.describe(method)]
    title = about[0][1]
    cost, numbers = _measure_cost(measured, method, task.timed)
    if len(methods) > 1:
        about, cost, numbers = [], [], {}
        title = f"{', '.join([*named][:-1])} and {name}"
        for each in methods:
            facts = [fact for fact in (*each.facts(), *task.describe(each)) if fact[0] != "network"]
            plain = ("method", "weights", "device")
            texts = [value if key in plain else f"{key} {value}" for key, value in facts]
            about.append((each.name, "; ".join(texts)))
    images, summary, headline = _make_tables(task, measured, several)
    data, set_notes = _describe_sets(measured)
    about += [("pam", f"{__version__}, Python {platform.python_version()}")]
    about += [("date", datetime.date.today().isoformat()), *cost, ("data", data)]
    page = Evaluation(
        title=f"{task.title}{f' x{task.scale}' if task.scale else ''} of {title}",
        facts=tuple(about),
        summary=summary,
        headline=headline,
        images=images,
        notes=(*notes, *set_notes),
        key_figures=tuple(_list_key_figures(task, measured, several)),
        worst_pairs=tuple(pairs),
        numbers=numbers,
    )
    page = task.extend(page, measured, report=worst > 0)
    return add_published(page, measured, name, task.scale) if compare else page


def measure(
    task: Task,
    source: Source,
    methods: Mapping[str, Callable[[Any], Any]],
    *,
    variants: Mapping[float, Callable[[Any], Any]] | None = None,
    worst: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> MeasuredSet:
    """Measure methods (the one under test last) on every sample that has ground truth. Raises InputError."""
    meters, varied = {}, {}
    for each in methods:
        meters[each] = task.make_meter(source)
    for key in variants or {}:
        varied[key] = task.make_meter(source)
    meter = [*meters.values()][-1]
    bad: list[tuple[float, Callable[[], DrawnPair]]] = []
    without_truth: list[str] = []
    left_out: list[str] = []
    for index, name in enumerate(source.names):
        case = task.make_case(source.load(index))
        answers = {}
        for each, run in methods.items() if case is not None else ():
            if (answer := run(case)) is None:
                break
            answers[each] = answer
        if case is None:
            without_truth.append(name)
        elif len(answers) < len(methods):
            left_out.append(name)
        else:
            images = [meters[each].add(case, answer) for each, answer in answers.items()]
            for key, run in (variants or {}).items():
                varied[key].add(case, run(case))
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
    notes = [*absent, *source.unpaired, *meter.notes]
    if without_truth:
        count = f"{len(without_truth)} of {pluralize(len(source), 'pair')}"
        notes.append(f"{count} without ground truth skipped: {join_names(without_truth)}")
    draws = tuple(draw for _, draw in bad)
    return MeasuredSet(source, source.label, meters, meter, varied, tuple(notes), tuple(left_out), draws)


def _make_tables(
    task: Task, sets: Sequence[MeasuredSet], several: bool
) -> tuple[Table, Table, tuple[Table, ...]]:
    """Return the tables of pairs, of the summary, and for the terminal; `several`: name the methods."""
    images, summary = [], []
    for one in sets:
        for name, total in one.methods.items():
            for row in task.make_rows(total):
                summary.append({"data": one.label, **({"method": name} if several else {}), **row})
        for index in range(len(one.meter.images)):
            for name, total in one.methods.items():
                image = total.images[index]
                about = {"data": one.label, **({"method": name} if several else {}), "name": image.name}
                images.append({**about, "seconds": image.seconds, **flatten(image.figures)})
    headline = []
    for keys in task.headline:
        if rows := [row for row in summary if not row.keys().isdisjoint(keys)]:
            headline.append(_make_table(task, rows, task.row_columns, keys))
    return (
        _make_table(task, images, [Column("seconds", "time", "s", 3)], task.columns),
        _make_table(task, summary, task.row_columns, dict.fromkeys((*task.headline[0], *task.columns))),
        tuple(headline),
    )


def _make_table(task: Task, rows: Sequence[Row], first: Iterable[Column], keys: Iterable[str]) -> Table:
    present = {key for row in rows for key in row}
    names = make_text_columns(*filter(rows[0].__contains__, ("data", "name", "method")))
    return Table(
        (*names, *first, *map(task.columns.__getitem__, filter(present.__contains__, keys))), tuple(rows)
    )


def _list_key_figures(
    task: Task, sets: Sequence[MeasuredSet], several: bool
) -> Iterator[tuple[str, tuple[Fact, ...]]]:
    for one in sets:
        for name, total in one.methods.items():
            figures, values = flatten(total.headline), []
            for column in map(task.columns.__getitem__, task.key_figures):
                values.append((column.heading, format_value(figures[column.key], column.decimals)))
            yield ", ".join(filter(None, (one.label, name if several else "", task.average))), tuple(values)


def _describe_sets(sets: Sequence[MeasuredSet]) -> tuple[str, list[str]]:
    """Return the data sets with their numbers of pairs, and notes on them."""
    data, notes = [], []
    for one in sets:
        spec = one.source.spec
        count = len([image for image in one.meter.images if image.figures])
        data.append(f"{quote(spec.text if spec else one.label)} ({pluralize(count, 'pair')})")
        notes += [f"{one.label}: {line}" for line in one.notes]
        if spec and spec.info.unverified:
            notes.append(f"{one.label}: unverified layout, {spec.info.unverified}")
        if spec and spec.weight != 1:
            notes.append(f"{one.label}: weight={spec.weight:g} affects training only and is ignored here")
    return ", ".join(data), notes


def _measure_cost(
    sets: Sequence[MeasuredSet], method: Method | None, timed: str
) -> tuple[list[Fact], dict[str, Any]]:
    """Return run time per pair, s, and peak memory, bytes, of a network, as facts and for JSON."""
    seconds = [image.seconds for one in sets for image in one.meter.images if image.seconds is not None]
    if not seconds or not isinstance(method, NetworkMethod):
        return [], {"seconds_per_pair": None, "peak_memory_bytes": None}
    mean, compute = sum(seconds) / len(seconds), method.network.compute
    memory = compute.peak_memory()
    where = "on the GPU" if compute.device.type == "cuda" else "in total"
    facts = [("time", f"{mean:.3f} s per pair, {timed}"), ("peak memory", f"{memory / 1e9:.2f} GB {where}")]
    return facts, {"seconds_per_pair": mean, "peak_memory_bytes": memory}


def write_files(evaluation: Evaluation, settings: Any) -> Evaluation:
    """Write the requested files, each atomically; raise OutputError if one cannot be written."""
    forms = {".tex": evaluation.latex, ".md": evaluation.markdown, ".csv": evaluation.table_csv}
    tables = [(settings.per_image, evaluation.csv)] if settings.per_image is not None else []
    for path in settings.table or ():
        tables.append((path, forms[Path(path).suffix.lower()]))
    for path, text in tables:
        write_atomically(Path(path), text().encode("utf-8", "surrogateescape"))
    if settings.report is not None:
        from pamcli.evaluation.report import render_report

        write_atomically(Path(settings.report), render_report(evaluation))
    return evaluation
