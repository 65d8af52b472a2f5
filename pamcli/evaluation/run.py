"""Measure methods on data sets, sample by sample, and summarize the results.

A `Task` holds the differences of disparity and super-resolution: `disparity.Disparity`, `superres.Superres`.
Samples are read between runs, never during one, because methods are timed. Several methods share the samples
and the tables; the report shows the pairs on which they differ most. Charts and the row above published
results belong to the last method.
"""

import datetime
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic

from pamcli import __version__
from pamcli.data.open import open_data, parse_data
from pamcli.data.source import DataSpec, Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.figures import Answer, Case, ImageFigures, Meter, Total, flat
from pamcli.evaluation.methods import FilesMethod, Method, NetworkMethod, Watch, watched
from pamcli.evaluation.published import published_rows, published_table
from pamcli.evaluation.report_pictures import ShownPair
from pamcli.evaluation.results import (
    WORST,
    Column,
    Evaluation,
    Fact,
    Table,
    Value,
    json_row,
    shown_value,
    text_columns,
)
from pamcli.files.paths import join_names, pluralize, quote


@dataclass(frozen=True)
class MeasuredSet(Generic[Total]):
    """The results of all methods on one data set."""

    source: Source
    label: str
    methods: Mapping[str, Total]
    """Summaries by method name, the method under test last."""
    variants: Mapping[float, Total]
    """Summaries of modified runs of the method under test, for a study."""
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    """Samples without a result of one method; they are measured for no method."""
    worst: tuple[Callable[[], ShownPair], ...]
    """Functions that draw the worst pairs, worst first."""

    @property
    def last(self) -> Total:
        """Summary of the method under test."""
        return [*self.methods.values()][-1]


AnySet = MeasuredSet[Any]


class Task(ABC, Generic[Case, Answer, Total]):
    """A task to measure, with the layout of its tables and report."""

    title: str
    scale: int | None = None
    """Upscaling factor."""
    columns: Mapping[str, Column]
    """Columns of all metrics by name, in table order."""
    key_figures: tuple[str, ...]
    """The metrics to show first."""
    average = ""
    """Name of the average of the key metrics, if there are several."""
    words: tuple[Column, ...]
    """Leading columns of summary rows after data set and method."""
    headline: tuple[Sequence[str], ...]
    """Metrics of the terminal tables, most important first."""
    baseline: Mapping[str, None] = {}
    """Name of the baseline that accompanies every method, if any."""
    timed: str
    """Scope of the measured run time of a network."""

    @abstractmethod
    def case(self, sample: Sample) -> Case | None:
        """Return the case to measure, or None without ground truth; raise InputError if it is unsuitable."""

    @abstractmethod
    def meter(self, source: Source) -> Meter[Case, Answer, Total]:
        """Return an empty meter for a method on a data set."""

    @abstractmethod
    def ready(self, method: Method | None, source: Source) -> Callable[[Case], Answer | None]:
        """Prepare a method for a data set; raise UsageError or InputError as methods do."""

    @abstractmethod
    def rank(self, images: Sequence[ImageFigures]) -> float | None:
        """Return the sort key of a pair in the report, lowest first; None if it was not measured.

        `images`: the metrics of the pair, per method.
        """

    @abstractmethod
    def shown(self, case: Case, answers: Mapping[str, Answer], images: Sequence[ImageFigures]) -> ShownPair:
        """Draw a pair for the report; `answers` by method name, `images` in the same order."""

    @abstractmethod
    def rows(self, total: Total) -> Iterator[dict[str, Value]]:
        """Yield the rows of the summary."""

    @abstractmethod
    def told(self, page: Evaluation, sets: Sequence[MeasuredSet[Total]]) -> Evaluation:
        """Add the tables and charts that only this task has."""

    def facts(self, method: Method | None) -> list[Fact]:
        """Return facts on how the method under test is run."""
        return []

    def variants(self, method: Method | None) -> Mapping[float, Callable[[Case], Answer]]:
        """Return modified runs of the method under test for a study, by the modified value."""
        return {}


AnyTask = Task[Any, Any, Any]


def evaluate(
    task: Task[Case, Answer, Total],
    data: Iterable[str | Source],
    methods: Sequence[Method],
    *,
    compare: bool = False,
    worst: int = WORST,
    advance: Callable[[], None] = lambda: None,
    watch: Watch | None = None,
) -> Evaluation:
    """Measure methods on data sets and return metrics, notes and report data.

    >>> matcher = StereoMatcher.load("pasmnet2")
    >>> found = evaluate(Disparity(), ["kitti2015:kitti"], [NetworkMethod(matcher, "pasmnet2")])
    >>> Path("report.html").write_bytes(render_report(found))

    `data`: data sets as `NAME:PATH`, or opened. `compare`: add published results. `worst`: number of worst
    pairs per data set in the report. `advance`: called after each sample. `watch`: as in `NetworkMethod`.
    Raises UsageError, InputError: data that is invalid or lacks ground truth or what a method needs.
    """
    sets = opened(data)
    if (files := [one.row for one in methods if isinstance(one, FilesMethod)]) and len(sets) > 1:
        said = f"the files of {quote(files[0])} go with one data set, {len(sets)} are given"
        raise UsageError(said, "measure each by itself")
    methods = watched(methods, watch)
    named: dict[str, Method | None] = {**task.baseline}
    for each in methods:
        row = f"{each.row} (files)" if each.row in ("", *task.baseline) else each.row
        if row in named:
            raise UsageError(f"two methods are called {quote(row)}", "give them different names")
        named[row] = each
    if not named:
        raise UsageError("no method is given", "give a network or a folder of files")
    name, method = [*named.items()][-1]
    measured: list[MeasuredSet[Total]] = []
    notes: list[str] = []
    pairs: list[ShownPair] = []
    for source, label in zip(sets, _labels(sets), strict=True):
        runs = {each: task.ready(one, source) for each, one in named.items()}
        found = measure(task, source, runs, variants=task.variants(method), worst=worst, advance=advance)
        if found.left_out:
            notes.append(
                f"{len(found.left_out)} without a prediction, left out: {join_names(found.left_out)}"
            )
        notes += [note for one in methods for note in one.notes()]
        pairs += [draw() for draw in found.worst]
        measured.append(replace(found, label=label))
    several = len(named) > 1 or bool(task.baseline)
    about = [("method", f"{name} alone")] if method is None else [*method.facts(), *task.facts(method)]
    title = about[0][1]
    network = method.network if isinstance(method, NetworkMethod) else None
    seconds = [image.seconds for one in measured for image in one.last.images]
    cost, numbers = _cost(seconds, network, task.timed)
    if len(methods) > 1:
        about, cost, numbers = [*_each_about(task, methods)], [], {}
        title = " and ".join(filter(None, (", ".join([*named][:-1]), name)))
    images, summary, headline = _tables(task, measured, several)
    page = Evaluation(
        title=f"{task.title}{f' x{task.scale}' if task.scale else ''} of {title}",
        facts=(*about, *_circumstances(measured, cost)),
        summary=summary,
        headline=headline,
        images=images,
        notes=(*notes, *_set_notes(measured)),
        key_figures=tuple(_key_figures(task, measured, several)),
        worst_pairs=tuple(pairs),
        numbers=numbers,
    )
    page = task.told(page, measured)
    return _with_published(page, measured, name, task.scale) if compare else page


def measure(
    task: Task[Case, Answer, Total],
    source: Source,
    methods: Mapping[str, Callable[[Case], Answer | None]],
    *,
    variants: Mapping[float, Callable[[Case], Answer]] | None = None,
    worst: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> MeasuredSet[Total]:
    """Measure methods on every sample of a source that has ground truth.

    `methods`: methods by name, the one under test last; samples are skipped if one returns None. `variants`:
    modified runs to measure in addition, for a study. `worst`: number of worst pairs to keep. `advance`:
    called after each sample. Raises InputError: as the meter raises, or, before any method runs, no sample
    has ground truth.
    """
    variants = variants or {}
    meters = {key: task.meter(source) for key in methods}
    varied = {key: task.meter(source) for key in variants}
    bad: list[tuple[float, Callable[[], ShownPair]]] = []
    without_truth: list[str] = []
    left_out: list[str] = []
    for index, name in enumerate(source.names):
        case = task.case(source.load(index))
        answers = [] if case is None else [*filter(None, (run(case) for run in methods.values()))]
        if case is None:
            without_truth.append(name)
        elif len(answers) < len(methods):
            left_out.append(name)
        else:
            images = [meter.add(case, each) for meter, each in zip(meters.values(), answers, strict=True)]
            for key, run in variants.items():
                varied[key].add(case, run(case))
            if worst and (rank := task.rank(images)) is not None:
                bad.append(
                    (rank, partial(task.shown, case, dict(zip(methods, answers, strict=True)), images))
                )
                bad = sorted(bad, key=lambda one: one[0])[:worst]
        advance()
    if without_truth and len(without_truth) == len(source):
        others = f"nor has any other pair of {source.label or 'the data'}"
        raise InputError(
            f"{without_truth[0]} has no true disparity, {others}",
            "measure on a split that comes with ground truth",
        )
    totals = {key: meter.summary() for key, meter in meters.items()}
    notes = [*source.missing, *[*totals.values()][-1].notes]
    if without_truth:
        missing = f"{len(without_truth)} of {len(source)} pairs have no truth"
        notes.append(f"{missing}, left out: {join_names(without_truth)}")
    return MeasuredSet(
        source,
        source.label,
        totals,
        {key: meter.summary() for key, meter in varied.items()},
        tuple(notes),
        tuple(left_out),
        tuple(draw for _, draw in bad),
    )


def _labels(sets: Sequence[Source]) -> list[str]:
    """Return the names of the data sets in tables; repeated labels become the full text."""
    labels = [source.label for source in sets]
    texts = [source.spec.text if source.spec else source.label for source in sets]
    return [text if labels.count(label) > 1 else label for label, text in zip(labels, texts, strict=True)]


def opened(data: Iterable[str | Source]) -> list[Source]:
    """Open data sets given as `NAME:PATH`; raise UsageError or InputError if one is invalid."""
    data = list(data)
    if not data:
        raise UsageError("no data set is given", "give NAME:PATH; pam dataset list shows the names")
    # Parse all names before opening any data set.
    specs = [parse_data(each) if isinstance(each, str) else each for each in data]
    texts = [each.text for each in specs if isinstance(each, DataSpec)]
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise UsageError(f"{quote(twice[0])} is given twice", "give each data set once")
    return [open_data(each) if isinstance(each, DataSpec) else each for each in specs]


def _tables(task: AnyTask, sets: Sequence[AnySet], several: bool) -> tuple[Table, Table, tuple[Table, ...]]:
    """Return the tables of all pairs and of the summary, and those for the terminal.

    `several`: add the method to every row.
    """

    def table(rows: Sequence[Mapping[str, Value]], words: Iterable[Column], keys: Iterable[str]) -> Table:
        names = text_columns(*(name for name in ("data", "name", "method") if name in rows[0]))
        used = (task.columns[key] for key in keys if any(key in row for row in rows))
        return Table((*names, *words, *used), tuple(rows))

    def about(one: AnySet, method: str) -> dict[str, Value]:
        return {"data": one.label, **({"method": method} if several else {})}

    images = [
        {**about(one, method), "name": image.name, "seconds": image.seconds, **flat(image.figures)}
        for one in sets
        for each in zip(*(total.images for total in one.methods.values()), strict=True)
        for method, image in zip(one.methods, each, strict=True)
    ]
    summary = [
        {**about(one, method), **row}
        for one in sets
        for method, total in one.methods.items()
        for row in task.rows(total)
    ]
    parts = ((keys, [row for row in summary if not row.keys().isdisjoint(keys)]) for keys in task.headline)
    return (
        table(images, [Column("seconds", "time", "s", 3)], task.columns),
        table(summary, task.words, dict.fromkeys((*task.headline[0], *task.columns))),
        tuple(table(rows, task.words, keys) for keys, rows in parts if rows),
    )


def _key_figures(
    task: AnyTask, sets: Sequence[AnySet], several: bool
) -> Iterator[tuple[str, tuple[Fact, ...]]]:
    columns = [task.columns[key] for key in task.key_figures]
    for one in sets:
        for name, found in one.methods.items():
            figures = flat(found.headline)
            values = ((each.heading, shown_value(figures[each.key], each.decimals)) for each in columns)
            called = (one.label, name if several else "", task.average)
            yield ", ".join(filter(None, called)), tuple(values)


def _each_about(task: AnyTask, methods: Sequence[Method]) -> Iterator[Fact]:
    for one in methods:
        facts = [fact for fact in (*one.facts(), *task.facts(one)) if fact[0] != "network"]
        plain = ("method", "weights", "device")
        yield one.row, "; ".join(value if name in plain else f"{name} {value}" for name, value in facts)


def _circumstances(sets: Sequence[AnySet], run: Sequence[Fact]) -> list[Fact]:
    """Return date, system and data of the measurement; `run`: how the method was run."""
    today = datetime.datetime.now().astimezone().strftime("%Y-%m-%d")
    data = []
    for one in sets:
        count = pluralize(sum(bool(image.figures) for image in one.last.images), "pair")
        data.append(f"{quote(one.source.spec.text if one.source.spec else one.label)} ({count})")
    version = f"{__version__}, Python {platform.python_version()}"
    return [("pam", version), ("date", today), *run, ("data", ", ".join(data))]


def _set_notes(sets: Sequence[AnySet]) -> Iterator[str]:
    """Yield notes on each data set, on unverified layouts, and on training weights without effect here."""
    for one in sets:
        yield from (f"{one.label}: {line}" for line in one.notes)
        if (spec := one.source.spec) and spec.info.unverified:
            yield f"{one.label}: unverified layout, {spec.info.unverified}"
        if spec and spec.weight != 1:
            yield f"{one.label}: weight={spec.weight:g} is about training and changes nothing here"


def _cost(
    seconds: Sequence[float | None], network: Any | None, what: str
) -> tuple[list[Fact], dict[str, Any]]:
    """Return run time per pair, s, and peak memory, bytes, of a network, as facts and for JSON.

    `seconds`: the run time of each pair. `what`: the scope of the run time, in words.
    """
    known = [each for each in seconds if each is not None]
    if not known or network is None:
        return [], {"seconds_per_pair": None, "peak_memory_bytes": None}
    mean, memory = sum(known) / len(known), network.compute.peak_memory()
    where = "on the GPU" if network.compute.device.type == "cuda" else "in all"
    facts = [("time", f"{mean:.3f} s a pair, {what}"), ("peak memory", f"{memory / 1e9:.2f} GB {where}")]
    return facts, {"seconds_per_pair": mean, "peak_memory_bytes": memory}


def _with_published(page: Evaluation, sets: Sequence[AnySet], method: str, scale: int | None) -> Evaluation:
    """Add the published rows of every data set that has some, below the row of the method under test."""
    tables, rows, notes = {}, {}, [*page.notes]
    known = [(one.source.spec.info.name, one) for one in sets if one.source.spec]
    for name, one in known:
        place = name if [each for each, _ in known].count(name) == 1 else one.label
        if published := published_rows(name, scale):
            tables[place] = published_table(published, name, one.last.headline, method)
            rows[place] = [json_row(row) for row in tables[place].rows[1:]]
        else:
            notes.append(f"no published rows are known for {place}")
    numbers = {**page.numbers, "published": rows}
    return replace(page, published=tables, notes=tuple(notes), numbers=numbers)
