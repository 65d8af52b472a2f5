"""From the options of a command to its jobs, and from their outcomes to what is printed."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import typer

from pamcli.cli.console import Console
from pamcli.errors import BATCH_FAILED, PamError, UsageError
from pamcli.imaging.outputs import (
    OutputKind,
    OutputPlan,
    SeenPaths,
    check_collisions,
    check_existing,
    plan_outputs,
)
from pamcli.imaging.pairing import (
    BadLine,
    Pairing,
    PairName,
    iter_pair_list,
    read_pair_list,
    require_all_paired,
    resolve_packed,
    resolve_pairs,
)

if TYPE_CHECKING:
    from pamcli.imaging.stereo_pair import Layout, StereoPair

Result = TypeVar("Result")

STDIN = Path("-")


@dataclass(frozen=True)
class Selection:
    """The options that say which pairs are meant, and what happens to results that exist."""

    inputs: Sequence[str]
    pairs: str | None
    null: bool
    packed: Layout | None
    skip_unpaired: bool
    skip_existing: bool
    overwrite: bool


@dataclass(frozen=True)
class Job:
    """A pair with the names of its results; or what is wrong with a line of a streamed list."""

    pair: PairName | None
    line: str
    """What messages and records call the pair: the left picture, or the bad line."""
    outputs: Mapping[str, Path] = field(default_factory=dict)
    skip: bool = False
    error: PamError | None = None


@dataclass(frozen=True)
class Plan:
    """All jobs of a command."""

    selection: Selection
    jobs: Iterable[Job]
    batch: bool
    total: int | None
    """Number of jobs, unknown while a list is still arriving."""
    stdout: tuple[str, str] | None = None
    """Name and suffix of the result whose bytes go to stdout."""


@dataclass(frozen=True)
class Encoded:
    """The bytes of a result's file, and what there is to say about them."""

    data: bytes
    warnings: Sequence[str] = ()


class Task(ABC, Generic[Result]):
    """What a command does with a pair."""

    constants: Mapping[str, Any]
    """Fields of every JSON record: device, precision."""
    colored_at_the_end = False
    """Some results are written by `finish` alone; everything is then reported after it."""

    def check(self, job: Job, pair: StereoPair) -> None:
        """Raise PamError where results of this pair cannot be written as asked, before the network runs."""

    @abstractmethod
    def apply(self, job: Job, pair: StereoPair) -> Result:
        """Run the network."""

    @abstractmethod
    def encode(self, job: Job, name: str, suffix: str, pair: StereoPair, result: Result) -> Encoded | None:
        """A result as the bytes of a file; None where `finish` will write it."""

    def finish(self) -> None:
        """Write what needed the whole batch."""


@dataclass(frozen=True)
class Done:
    """What became of a pair that went well. A skipped one has no size."""

    width: int | None = None
    height: int | None = None
    seconds: float | None = None
    """Time that the network took."""
    warnings: Sequence[str] = ()
    stdout: bytes | None = None


def plan_jobs(
    selection: Selection, options: Mapping[OutputKind, str | None], format_name: str | None, console: Console
) -> Plan:
    """Find the pairs and plan their results, before any work. Raises UsageError and InputError."""
    pairing, batch = _find_pairs(selection)
    if not any(options.values()) and selection.pairs is None:
        raise UsageError("no result is asked for", f"say where to, as in -o {_example(options)}")
    names = plan_outputs(
        {kind: None if text == "-" else text for kind, text in options.items()},
        batch=batch,
        format_name=format_name,
    )
    stdout = _stdout_result(options, format_name, batch, console)
    policy = {"overwrite": selection.overwrite, "skip_existing": selection.skip_existing}
    if pairing is None:
        check_existing([], **policy)
        return Plan(selection, _stream(selection, names, policy), batch, None)
    if selection.skip_unpaired:
        for orphan in pairing.unpaired:
            console.warn(f"{orphan} has no partner and is left out")
    else:
        require_all_paired(pairing)
    outputs = names.all_paths(pairing.pairs)
    check_collisions(pairing.pairs, outputs)
    skips = check_existing(outputs, **policy)
    jobs = [
        Job(pair, str(pair.left), paths, skip)
        for pair, paths, skip in zip(pairing.pairs, outputs, skips, strict=True)
    ]
    return Plan(selection, jobs, batch, len(jobs), stdout)


def run_jobs(plan: Plan, task: Task[Any], max_pixels: int | None, console: Console) -> None:
    """Work off the jobs and report them; exits with 6 when a pair of a batch failed.

    The error of a pair that is not part of a batch is raised.
    """
    from pamcli.inference.pipeline import Outcome, run_overlapped

    steps = _Steps(plan, task, max_pixels)
    report = _Reporter(plan, console, task.constants)
    waiting: list[Outcome[Job, Done]] = []
    with console.progress("pairs", plan.total) as bar:
        for outcome in run_overlapped(plan.jobs, steps.load, steps.compute, steps.save):
            bar.advance()
            if task.colored_at_the_end:
                waiting.append(outcome)
            else:
                report(outcome)
        task.finish()
    for outcome in waiting:
        report(outcome)
    report.close()


@dataclass(frozen=True)
class _Loaded:
    pair: StereoPair
    warnings: list[str]


@dataclass(frozen=True)
class _Computed:
    loaded: _Loaded
    result: Any
    seconds: float


@dataclass(frozen=True)
class _Steps:
    """Loading, computing and saving of a job; each runs in a thread of its own. None: the job is skipped."""

    plan: Plan
    task: Task[Any]
    max_pixels: int | None

    def load(self, job: Job) -> _Loaded | None:
        from pamcli.imaging.preflight import check_pair
        from pamcli.imaging.stereo_pair import read_packed_pair, read_pair

        if job.error is not None:
            raise job.error
        if job.skip:
            return None
        assert job.pair is not None
        layout = self.plan.selection.packed
        if layout is None:
            assert job.pair.right is not None
            pair = read_pair(job.pair.left, job.pair.right, max_pixels=self.max_pixels)
        else:
            from_stdin = job.pair.left == STDIN
            source = sys.stdin.buffer.read() if from_stdin else job.pair.left
            name = "standard input" if from_stdin else str(job.pair.left)
            pair = read_packed_pair(source, layout, max_pixels=self.max_pixels, name=name)
        self.task.check(job, pair)
        return _Loaded(pair, check_pair(pair.left.pixels, pair.right.pixels).warnings())

    def compute(self, job: Job, loaded: _Loaded | None) -> _Computed | None:
        if loaded is None:
            return None
        start = time.perf_counter()
        result = self.task.apply(job, loaded.pair)
        return _Computed(loaded, result, time.perf_counter() - start)

    def save(self, job: Job, computed: _Computed | None) -> Done:
        from pamcli.imaging.atomic import write_atomically

        if computed is None:
            return Done()
        pair, warnings, stdout = computed.loaded.pair, list(computed.loaded.warnings), None
        wanted = [(name, path.suffix.lower(), path) for name, path in job.outputs.items()]
        for name, suffix, path in [*wanted, *([(*self.plan.stdout, None)] if self.plan.stdout else [])]:
            encoded = self.task.encode(job, name, suffix, pair, computed.result)
            if encoded is None:
                continue
            warnings += encoded.warnings
            if path is None:
                stdout = encoded.data
            else:
                write_atomically(path, encoded.data)
        return Done(pair.width, pair.height, computed.seconds, warnings, stdout)


class _Reporter:
    def __init__(self, plan: Plan, console: Console, constants: Mapping[str, Any]) -> None:
        self.plan, self.console, self.constants = plan, console, constants
        self.counts = {"ok": 0, "skipped": 0, "failed": 0}

    def __call__(self, outcome: Any) -> None:
        job: Job = outcome.job
        error: PamError | None = outcome.error
        done: Done = outcome.saved or Done()
        status = "failed" if error else "skipped" if job.skip else "ok"
        self.counts[status] += 1
        for warning in done.warnings:
            self.console.warn(f"{job.line}: {warning}")
        if error is not None and job.pair is not None and job.line not in str(error):
            error = _named(error, job.line)
        if self.console.jsonl:
            self.console.record(
                {
                    "left": job.pair.left if job.pair else None,
                    "right": job.pair.right if job.pair else None,
                    "line": job.pair.line if job.pair else job.line,
                    "outputs": {} if error else dict(job.outputs),
                    "width": done.width,
                    "height": done.height,
                    "seconds": None if done.seconds is None else round(done.seconds, 3),
                    **self.constants,
                    "status": status,
                    "code": error.exit_code if error else 0,
                    "error": str(error) if error else None,
                    "warnings": list(done.warnings),
                }
            )
        elif done.stdout is not None:
            self.console.binary(done.stdout)
        elif status == "ok" and self.plan.stdout is None:
            for path in job.outputs.values():
                self.console.result(str(path))
        if status == "skipped":
            self.console.detail(f"{job.line}: every result exists, skipped")
        if error is not None:
            if not self.plan.batch:
                raise error
            self.console.error(str(error))

    def close(self) -> None:
        if not self.plan.batch:
            return
        counts = ", ".join(f"{count} {status}" for status, count in self.counts.items() if count)
        self.console.inform(counts or "no pairs")
        if self.counts["failed"]:
            raise typer.Exit(BATCH_FAILED)


def _named(error: PamError, name: str) -> PamError:
    renamed = type(error)(f"{name}: {error.message}", error.hint)
    renamed.exit_code = error.exit_code
    return renamed


def _find_pairs(selection: Selection) -> tuple[Pairing | None, bool]:
    """The pairs (None: they arrive on stdin) and whether they are a batch."""
    inputs = selection.inputs
    if selection.null and selection.pairs is None:
        raise UsageError("--null is about the list of --pairs, and there is none")
    if selection.pairs is not None:
        if inputs or selection.packed is not None:
            given = f"the argument {inputs[0]}" if inputs else "--packed"
            raise UsageError(f"--pairs and {given} contradict each other", "give one of them")
        if selection.pairs == "-":
            return None, True
        return Pairing(tuple(read_pair_list(Path(selection.pairs), selection.null))), True
    if selection.packed is not None:
        if "-" in inputs:
            if len(inputs) > 1:
                raise UsageError("- stands for one picture on stdin", "give it alone")
            return Pairing((PairName(STDIN, None, "stdin"),)), False
        return resolve_packed(inputs)
    if len(inputs) != 2:
        raise UsageError(
            f"a left and a right picture are wanted, {len(inputs)} given",
            "two folders or two quoted templates make a batch; --packed takes pictures that hold both views",
        )
    return resolve_pairs(*inputs)


def _stream(selection: Selection, names: OutputPlan, policy: dict[str, bool]) -> Iterator[Job]:
    """Jobs of a list that arrives line by line; whatever is wrong with a line fails that line."""
    seen = SeenPaths()
    for item in iter_pair_list(sys.stdin.buffer, selection.null):
        if isinstance(item, BadLine):
            yield Job(None, item.text, error=item.error)
            continue
        try:
            outputs = names.paths(item)
            seen.add(item, outputs)
            (skip,) = check_existing([outputs], **policy)
            yield Job(item, str(item.left), outputs, skip)
        except PamError as error:
            yield Job(item, str(item.left), error=error)


def _stdout_result(
    options: Mapping[OutputKind, str | None], format_name: str | None, batch: bool, console: Console
) -> tuple[str, str] | None:
    """Name and suffix of the result that is asked for as `-`."""
    kinds = [kind for kind, text in options.items() if text == "-"]
    if not kinds:
        return None
    option = "-o -" if kinds[0].option == "--output" else f"{kinds[0].option} -"
    if len(kinds) > 1:
        raise UsageError(f"{option} and {kinds[1].option} - would both go to stdout", "give one of them")
    if batch:
        raise UsageError(f"{option} takes one pair, not a batch", "name a folder or a template with {}")
    if console.jsonl:
        raise UsageError(f"{option} and --jsonl would both go to stdout", "drop one of them")
    if sys.stdout.isatty():
        raise UsageError(f"{option} would write binary data to the terminal", "pipe it, or name a file")
    main = next(iter(options))
    suffix = f".{format_name}" if format_name and kinds[0].suffixes == main.suffixes else kinds[0].suffixes[0]
    return kinds[0].name, suffix


def _example(options: Mapping[OutputKind, str | None]) -> str:
    kind = next(iter(options))
    return f"{kind.name}{kind.suffixes[0]}"
