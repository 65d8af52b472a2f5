"""A batch that is worked off: here, or on other machines."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pamcli.batch import LOG
from pamcli.batch.job import Job, Outcome
from pamcli.batch.operation import Bar, Operation
from pamcli.batch.overlapped import run_overlapped
from pamcli.batch.plan import Plan
from pamcli.batch.ray_cluster import run_on_ray
from pamcli.batch.video_results import StoredFrames, clock_of, frames_folder, put_together, remove_frames
from pamcli.errors import DeviceError, InputError, OutputError, PamError, UsageError
from pamcli.files.atomic import GoneError, ResultFolders, check_writable
from pamcli.files.finding import listed
from pamcli.files.outputs import Encoded
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.stereo_pair import StereoPair

Found = tuple[Job, Outcome | PamError]


class Batch(Plan):
    """Pairs that are worked off while it is iterated over; it yields an `Outcome` for each, in their order.

    A pair that cannot be read, or whose results cannot be written, fails alone: its outcome has an `error`.
    A second pass would find the results of the first, and refuse to replace them.
    Whoever stops early has whole files, and goes on with `skip_existing`. Over a cluster outcomes come in the
    order in which they are finished.
    """

    operation: Operation[Any]
    bar: Bar | None = None
    """What draws how far it is."""
    made: Sequence[Path] = ()
    """The videos that were put together, once all pairs are done."""

    def working(self, operation: Operation[Any], *, cores: int | None = None, gpus: bool = False) -> Self:
        """Say what is done with the pairs.

        cores: those of each worker of a cluster, where no number is asked for. gpus: they may have some.
        Raises UsageError: a single pair for a cluster.
        """
        if self.request.remote and not self.many:
            raise UsageError("`engine` ray works off batches", "drop it for a single pair")
        self.operation, self.cores, self.gpus = operation, self.request.ray_cores or cores, gpus
        operation.videos = self.videos
        self.steps = _Steps(self.request.packed, self.request.max_pixels, operation)
        return self

    @property
    def going_on(self) -> str:
        """How a batch goes on that was stopped, for people."""
        if self.operation.whole_batch_first:
            return "results of the whole batch come at its end: begin anew"
        if not self.request.overwrite:
            return "the same command with `skip_existing` goes on"
        if self.videos and self.names.templates.keys() <= self.videos.keys():
            return "the same command with `skip_existing` instead of `overwrite` goes on"
        return "begin anew: `skip_existing` would keep what was there before"

    def start(self) -> None:
        """Load the network, where this process needs one, which else the first pair would do."""
        if not self.request.remote:
            self.steps.start()

    def __iter__(self) -> Generator[Outcome, None, None]:
        remote, shard = self.request.remote, self.request.shard
        constants = {"device": None, "precision": None} if remote else self.operation.constants
        self.operation.bar = None if remote else self.bar
        if self.request.overwrite:
            self._forget_frames()
        failed, unwritten, waiting = False, False, []
        remarks: set[str] = set()
        try:
            with closing(self._there() if remote else self._here()) as run:
                for job, found in run:
                    if isinstance(found, PamError):
                        found = Outcome(job, error=found)
                    outcome = replace(found, facts={**constants, **found.facts})
                    if self.bar is not None:
                        self.bar.advance(skipped=job.skip)
                    self.operation.note(outcome.facts)
                    unwritten |= outcome.error is not None and not isinstance(outcome.error, InputError)
                    if outcome.remark is not None and outcome.remark not in remarks:
                        remarks.add(outcome.remark)
                        LOG.info(outcome.remark)
                    if self.operation.whole_batch_first:
                        waiting.append(outcome)
                    else:
                        failed |= outcome.error is not None
                        yield _whole(outcome)
            for outcome in map(self.steps.finish, waiting):
                failed |= outcome.error is not None
                yield _whole(outcome)
            self.steps.kept.check()
            if self.videos:
                self._make_videos(unwritten)
            if self.many or shard is not None:
                self._end(failed)
        finally:
            self.operation.close()

    def _forget_frames(self) -> None:
        """Remove what another run left, which could not be told from frames of this one if it is stopped."""
        if any(frames_folder(video).exists() for video in self.videos.values()):
            for name, video in self.videos.items():
                remove_frames(video, (job.files[name] for job in self.jobs if name in job.files))

    def _end(self, failed: bool) -> None:
        try:
            self.operation.end_batch()
        except (InputError, OutputError) as error:
            if not failed:
                raise
            LOG.error("%s", error)

    def _make_videos(self, unwritten: bool) -> None:
        """Make the videos of their frames, which go then. unwritten: some failed that need not.

        Raises OutputError, InputError.
        """
        assert self.pairing is not None
        named, go_on = listed([*map(str, self.videos.values())]), "the same command with `skip_existing`"
        if self.request.overwrite:
            go_on += " instead of `overwrite`"
        if self.request.shard is not None:
            LOG.info(f"once all shards are done, {go_on} and without `shard` makes {named} of their frames")
            return
        if unwritten:
            LOG.error(f"{named} is not made: {go_on} goes on")
            return
        clock, made = clock_of(self.pairing), []
        stored = {
            name: StoredFrames(self.pairing, lambda pair, name=name: self.names.paths(pair)[name], clock)  # type: ignore[misc]
            for name in self.videos
        }
        for name, video in self.videos.items():
            if name in self.whole_videos or not any(path.exists() for _, path in stored[name].places):
                continue  # it was there, or all failed
            put_together(video, self.operation.for_video(name, stored[name]), clock, name)
            made.append(video)
        self.made = made
        for name, frames in stored.items():
            remove_frames(self.videos[name], (path for _, path in frames.places))

    def _here(self) -> Generator[Found, None, None]:
        """The outcomes of the jobs, done by this process."""
        steps = self.steps
        yield from run_overlapped(self.jobs, steps.load, steps.compute, steps.save)

    def _there(self) -> Generator[Found, None, None]:
        """The outcomes of the jobs, done by a cluster."""
        address = self.request.ray_address
        yield from run_on_ray(self.jobs, self.steps, address=address, cores=self.cores, gpus=self.gpus)


def _whole(outcome: Outcome) -> Outcome:
    """The outcome; raises GoneError where a folder is gone, and results of others with it."""
    if isinstance(outcome.error, GoneError):
        raise outcome.error
    return outcome


_Loaded = tuple["StereoPair", Sequence[str]]
"""A pair, and what looks wrong with it; None instead: the job is skipped."""


@dataclass(frozen=True)
class _Steps:
    """Loading, computing and saving of a job; each runs in a thread of its own."""

    layout: PackedLayout | None
    max_pixels: int | None
    operation: Operation[Any]
    kept: ResultFolders = field(default_factory=ResultFolders)

    def start(self) -> None:
        """Load the network, which else the first pair would do."""
        _ = self.operation.constants

    def begin(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Let the operation see the first pair that can be read, then yield all jobs as they came."""
        taken: list[Job] = []
        if self.operation.same_for_all:
            self.start()  # what is wrong with the network is wrong for all
        for job in jobs if self.operation.same_for_all else ():
            taken.append(job)
            try:
                loaded = self.load(job)
            except PamError:
                continue
            if loaded is not None:
                with suppress(InputError, DeviceError):  # it fails alone, when it is its turn
                    self.operation.begin(job, loaded[0])
                    break
        return itertools.chain(taken, jobs)

    def settled(self, job: Job) -> Outcome | None:
        """The outcome of a job that there is nothing to do for."""
        return Outcome(job, job.error) if job.skip or job.error is not None else None

    def load(self, job: Job) -> _Loaded | None:
        if job.error is not None:
            raise job.error
        if job.skip:
            self.operation.passed(job)
            for name, path in job.files.items():
                self.kept.add(path if path.exists() else job.videos.get(name, path))
            return None
        for path in job.files.values():
            check_writable(path)
        pair = self.operation.read(job, self.layout, self.max_pixels)
        for name, place in job.places.items():
            self.operation.check(name, place, pair)
        return pair, self.operation.look(pair)

    def compute(self, job: Job, loaded: _Loaded | None) -> tuple[_Loaded, Any, float] | None:
        if loaded is None:
            return None
        start = time.perf_counter()
        result = self.operation.apply(job, loaded[0])
        return loaded, result, time.perf_counter() - start

    def save(self, job: Job, computed: tuple[_Loaded, Any, float] | None) -> Outcome:
        if computed is None:
            return Outcome(job)
        (pair, warnings), result, seconds = computed
        facts: Mapping[str, Any] = {
            **{"width": pair.width, "height": pair.height, "seconds": round(seconds, 3)},
            **self.operation.constants,
            **self.operation.facts(result),
        }
        remark, doubts = self.operation.remark(pair), warnings or self.operation.doubts(result)
        outcome = Outcome(job, warnings=doubts, facts=facts, remark=remark)
        return self._write(outcome, lambda name, place: self.operation.encode(name, place, pair, result))

    def finish(self, outcome: Outcome) -> Outcome:
        """The outcome after what needed the whole batch is written."""
        if outcome.error is not None or outcome.job.skip:
            return outcome
        try:
            return self._write(outcome, self.operation.encode_at_the_end)
        except PamError as error:
            return Outcome(outcome.job, error, facts=outcome.facts)

    def _write(self, outcome: Outcome, encode: Callable[[str, Path], Encoded | None]) -> Outcome:
        job = outcome.job
        for name, place in job.places.items():
            encoded = encode(name, place)
            if encoded is None:
                continue
            outcome = replace(outcome, warnings=[*outcome.warnings, *encoded.warnings])
            if name == job.returned:
                outcome = replace(outcome, data=encoded.data)
            else:
                self.kept.write(place, encoded.data)
        return outcome
