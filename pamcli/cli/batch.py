"""Working off the jobs of a command, and reporting what became of them."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import typer

from pamcli.cli.console import CLOSED_PIPE, Console, Progress, as_options, reading_stdin, said
from pamcli.cli.jobs import STDIN, STDIN_NAME, Job, Plan, Target
from pamcli.cli.network import Matching, Upscaling
from pamcli.cli.options import Cluster, Compute, Engine, Pairs
from pamcli.errors import BATCH_FAILED, InputError, OutputError, PamError, UsageError
from pamcli.files.atomic import GoneError, Kept, check_writable

if TYPE_CHECKING:
    from pamcli.files.suffixes import PackedLayout
    from pamcli.imaging.stereo_pair import StereoPair
    from pamcli.inference.pipeline import Outcome

Result = TypeVar("Result")


@dataclass(frozen=True)
class Encoded:
    """The bytes of a result's file, and what there is to say about them."""

    data: bytes
    warnings: Sequence[str] = ()


class Operation(ABC, Generic[Result]):
    """What a command does with a pair."""

    whole_batch_first = False
    """Some results need the whole batch: they are encoded, and everything is reported, after it."""

    bar: Progress | None = None
    """Where this process draws how far it is, if it does."""

    same_for_all = False
    """The first pair decides what is done with all: it is looked at before others work on the rest."""

    first_of_all = False
    """That is the first of the whole batch, also where only a part of it is worked on."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """Fields of every JSON record: device, precision. The network is loaded for them."""
        return {}

    def read(self, job: Job, layout: PackedLayout | None, max_pixels: int | None) -> StereoPair:
        """What there is to work on. Raises InputError."""
        from pamcli.imaging.stereo_pair import read_packed_pair, read_pair

        assert job.pair is not None
        if layout is None:
            assert job.pair.right is not None
            return read_pair(job.pair.left, job.pair.right, max_pixels=max_pixels)
        if job.pair.left != STDIN:
            return read_packed_pair(job.pair.left, layout, max_pixels=max_pixels, name=str(job.pair.left))
        with reading_stdin() as stdin:
            picture = stdin.read()
        return read_packed_pair(picture, layout, max_pixels=max_pixels, name=STDIN_NAME)

    def look(self, pair: StereoPair) -> Sequence[str]:
        """What looks wrong with it, a warning each."""
        return ()

    def check(self, target: Target, pair: StereoPair) -> None:
        """Raise PamError where a result cannot be encoded as asked, before the network runs."""

    @abstractmethod
    def apply(self, job: Job, pair: StereoPair) -> Result:
        """Run the network."""

    @abstractmethod
    def encode(self, target: Target, pair: StereoPair, result: Result) -> Encoded | None:
        """A result as the bytes of a file; None where it needs the whole batch."""

    def begin(self, job: Job, pair: StereoPair) -> None:
        """Take from the first pair what is the same for all. Raises InputError: from this pair it cannot."""

    def facts(self, result: Result) -> Mapping[str, Any]:
        """More fields of the pair's JSON record."""
        return {}

    def note(self, facts: Mapping[str, Any]) -> None:
        """Count in what was found of a pair, wherever that was."""

    def encode_at_the_end(self, target: Target) -> Encoded | None:
        """A result that needed the whole batch; None for those that `encode` gave."""
        return None

    def doubts(self, result: Result) -> Sequence[str]:
        """What a result says about its pair, where the look at the pair found nothing wrong."""
        return ()

    def end_batch(self) -> None:
        """What there is to do after the last pair of a batch, whatever became of the pairs."""


class NetworkOperation(Operation[Result]):
    """What a command does with pairs that are rectified, and a network."""

    def __init__(self, wanted: Matching | Upscaling, compute: Compute, console: Console) -> None:
        self.wanted, self.compute, self.console = wanted, compute, console

    @cached_property
    def network(self) -> Any:
        """A `StereoMatcher` or `StereoUpscaler`, loaded where it is used."""
        return self.wanted.load(self.compute, self.console)[0]

    @property
    def constants(self) -> Mapping[str, Any]:
        return dict(self.network.compute.describe())

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes to other machines: each loads the network itself, and none has the bar."""
        return {name: value for name, value in self.__dict__.items() if name not in ("network", "bar")}

    def watched(self, pair: StereoPair) -> Callable[[float], None] | None:
        """What is told the share of the work on a pair that is done; None: nobody watches."""
        return None if self.bar is None else self.bar.within(pair.height)

    def look(self, pair: StereoPair) -> list[str]:
        from pamcli.imaging.preflight import check_pair

        found = check_pair(pair.left.pixels, pair.right.pixels)
        searched_from = self.wanted.min_disparity if isinstance(self.wanted, Matching) else None
        return [as_options(line) for line in found.warnings(searched_from)]


@dataclass(frozen=True)
class Done:
    """What became of a pair that went well."""

    warnings: Sequence[str] = ()
    stdout: bytes | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its JSON record, none of a pair that was skipped."""


def run_jobs(plan: Plan, operation: Operation[Any], console: Console, engine: Cluster | None = None) -> None:
    """Work off the jobs and report them; exits with 6 when a pair of a batch failed.

    The error of a pair that is not part of a batch is raised. engine: where, if not here.
    """
    steps = _Steps(plan.selection, operation)
    constants: Mapping[str, Any] = {"device": None, "precision": None}
    if engine is not None and engine.remote:
        from pamcli.inference.ray_cluster import run_on_ray

        if not plan.batch:
            raise UsageError("--engine ray works off batches", "drop it for a single pair")
        gpus = isinstance(engine, Engine) and engine.device != "cpu"
        cores = engine.ray_cores or (None if isinstance(engine, Engine) else 1)
        outcomes = run_on_ray(_jobs(plan, steps), steps, address=engine.ray_address, cores=cores, gpus=gpus)
    elif engine is not None and (engine.ray_cores is not None or engine.ray_address != "auto"):
        raise UsageError("--ray-address and --ray-cores are about --engine ray", "add that, or drop them")
    else:
        constants = operation.constants
        outcomes = _here(plan, steps)
    report = _Reporter(plan, console, constants)
    waiting: list[Outcome[Job, Done]] = []
    try:
        with console.progress("pairs", plan.total) as bar, closing(outcomes):
            if console.draws and (engine is None or not engine.remote):
                operation.bar = bar
            for outcome in outcomes:
                bar.advance(skipped=outcome.job.skip)
                if outcome.saved is not None:
                    operation.note(outcome.saved.facts)
                if operation.whole_batch_first:
                    waiting.append(outcome)
                else:
                    report(outcome)
    except (KeyboardInterrupt, SystemExit) as stop:
        if plan.batch and getattr(stop, "code", None) != CLOSED_PIPE:
            go_on = "the same command with --skip-existing goes on"
            if operation.whole_batch_first:
                go_on = "results of the whole batch come at its end: begin anew"
            console.inform(f"stopped after {report.summary()}; {go_on}")
        raise
    for outcome in waiting:
        report(steps.finish(outcome))
    steps.kept.check()
    report.close(operation)


def _here(plan: Plan, steps: _Steps) -> Generator[Outcome[Job, Done], None, None]:
    """The outcomes of the jobs, done by this process."""
    from pamcli.inference.pipeline import run_overlapped

    jobs, partly = _jobs(plan, steps), plan.results.skip_existing or plan.selection.shard is not None
    if steps.operation.first_of_all and partly and plan.batch:
        jobs = steps.begin(jobs)
    yield from run_overlapped(jobs, steps.load, steps.compute, steps.save)


def _jobs(plan: Plan, steps: _Steps) -> Iterator[Job]:
    """The jobs of a plan, after the first of the whole batch was looked at where that decides."""
    if steps.operation.first_of_all and plan.selection.shard is not None and plan.batch:
        steps.begin(plan.all_jobs)
    yield from plan.jobs


@dataclass(frozen=True)
class _Work:
    """A pair on its way through the steps, at first without a result."""

    pair: StereoPair
    warnings: Sequence[str]
    result: Any = None
    seconds: float = 0.0


@dataclass(frozen=True)
class _Steps:
    """Loading, computing and saving of a job; each runs in a thread of its own. None: the job is skipped."""

    selection: Pairs
    operation: Operation[Any]
    kept: Kept = field(default_factory=Kept)

    def start(self) -> None:
        """Load the network, which else the first pair would do."""
        _ = self.operation.constants

    def begin(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Let the operation see the first pair that can be read, then yield all jobs as they came."""
        taken: list[Job] = []
        for job in jobs if self.operation.same_for_all else ():
            taken.append(job)
            if not self.operation.same_for_all:  # another part of the batch has decided
                break
            try:
                pair = self._first(job)
            except PamError:
                continue
            if pair is not None:
                with suppress(InputError):
                    self.operation.begin(job, pair)
                    break
        return itertools.chain(taken, jobs)

    def _first(self, job: Job) -> StereoPair | None:
        """A pair that is to decide for all; None: it does not count."""
        if self.operation.first_of_all and job.pair is not None:  # whatever becomes of its results
            return self.operation.read(job, self.selection.layout, self.selection.max_pixels)
        loaded = self.load(job)
        return None if loaded is None else loaded.pair

    def settled(self, job: Job) -> Outcome[Job, Done] | None:
        """The outcome of a job that there is nothing to do for."""
        from pamcli.inference.pipeline import Outcome

        done = job.skip or job.error is not None
        return Outcome(job, None if job.error else Done(), job.error) if done else None

    def load(self, job: Job) -> _Work | None:
        if job.error is not None:
            raise job.error
        if job.skip:
            for path in job.outputs.values():
                self.kept.add(path)
            return None
        for path in job.outputs.values():
            check_writable(path)
        pair = self.operation.read(job, self.selection.layout, self.selection.max_pixels)
        for target in job.targets:
            self.operation.check(target, pair)
        return _Work(pair, self.operation.look(pair))

    def compute(self, job: Job, work: _Work | None) -> _Work | None:
        if work is None:
            return None
        start = time.perf_counter()
        result = self.operation.apply(job, work.pair)
        return replace(work, result=result, seconds=time.perf_counter() - start)

    def save(self, job: Job, work: _Work | None) -> Done:
        if work is None:
            return Done()
        pair, result = work.pair, work.result
        size = {"width": pair.width, "height": pair.height, "seconds": round(work.seconds, 3)}
        facts = {**size, **self.operation.constants, **self.operation.facts(result)}
        done = Done(work.warnings or self.operation.doubts(result), facts=facts)
        return self._write(job, done, lambda target: self.operation.encode(target, pair, result))

    def finish(self, outcome: Outcome[Job, Done]) -> Outcome[Job, Done]:
        """The outcome after what needed the whole batch is written."""
        if outcome.saved is None:
            return outcome
        try:
            done = self._write(outcome.job, outcome.saved, self.operation.encode_at_the_end)
        except PamError as error:
            return replace(outcome, saved=None, error=error)
        return replace(outcome, saved=done)

    def _write(self, job: Job, done: Done, encode: Callable[[Target], Encoded | None]) -> Done:
        for target in job.targets:
            encoded = encode(target)
            if encoded is None:
                continue
            done = replace(done, warnings=[*done.warnings, *encoded.warnings])
            if target.path is None:
                done = replace(done, stdout=encoded.data)
            else:
                self.kept.write(target.path, encoded.data)
        return done


class _Reporter:
    def __init__(self, plan: Plan, console: Console, constants: Mapping[str, Any]) -> None:
        self.plan, self.console, self.constants = plan, console, constants
        self.counts = {"ok": 0, "skipped": 0, "failed": 0}

    def __call__(self, outcome: Outcome[Job, Done]) -> None:
        job, error, done = outcome.job, outcome.error, outcome.saved or Done()
        status = "failed" if error else "skipped" if job.skip else "ok"
        self.counts[status] += 1
        for warning in done.warnings:
            self.console.warn(f"{job.names[0]}: {warning}")
        if error is not None and job.names and not any(name in str(error) for name in job.names):
            error.message = f"{job.names[0]}: {error.message}"
        if self.console.jsonl:
            self.console.record(
                {
                    "left": job.pair.left if job.pair else None,
                    "right": job.pair.right if job.pair else None,
                    "line": job.line,
                    "outputs": {} if error else job.outputs,
                    **dict.fromkeys(("width", "height", "seconds")),
                    **self.constants,
                    **done.facts,
                    "status": status,
                    "code": error.exit_code if error else 0,
                    "error": said(error) if error else None,
                    "warnings": list(done.warnings),
                }
            )
        elif done.stdout is not None:
            self.console.binary(done.stdout)
        elif status == "ok":
            for path in job.outputs.values():
                self.console.path(path)
        if status == "skipped":
            self.console.detail(f"{job.names[0]}: every result exists, skipped")
        if error is not None:
            if not self.plan.batch or isinstance(error, GoneError):
                raise error
            self.console.error(said(error), error)

    def summary(self) -> str:
        return ", ".join(f"{count} {status}" for status, count in self.counts.items() if count) or "no pairs"

    def close(self, operation: Operation[Any]) -> None:
        if not self.plan.batch and self.plan.selection.shard is None:
            return
        try:
            operation.end_batch()
        except (InputError, OutputError) as error:
            if not self.counts["failed"]:
                raise
            self.console.error(said(error), error)
        shard = self.plan.selection.shard
        if shard is not None and not any(self.counts.values()):
            self.console.inform(f"shard {shard.start + 1}/{shard.step} is empty: the batch has fewer pairs")
        else:
            self.console.inform(self.summary())
        if self.counts["failed"]:
            raise typer.Exit(BATCH_FAILED)
