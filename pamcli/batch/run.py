"""How is a batch processed? A `Batch` plans its jobs, and runs them here, in processes, or on a cluster."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pamcli.batch import LOG
from pamcli.batch.jobs import Job, Result, find_pairs
from pamcli.batch.work import Bar, Work, begun, run_overlapped
from pamcli.errors import InputError, OutputError, PamError, UsageError
from pamcli.files.atomic import FolderGoneError, require_folder
from pamcli.files.outputs import (
    OutputKind,
    PathRegistry,
    check_existing,
    check_extra_output,
    plan_outputs,
)
from pamcli.files.pairing import Pairing, PairPaths, iter_pair_list, open_pair_list, require_all_paired
from pamcli.files.paths import quote
from pamcli.files.suffixes import BAG_OUTPUT_SUFFIXES, VIDEO_SUFFIXES
from pamcli.settings.options import Place

ASSEMBLED = (*VIDEO_SUFFIXES, *BAG_OUTPUT_SUFFIXES)
"""Suffixes of results that are one file for all pairs of a batch."""


class Batch:
    """Pairs that are processed while it is iterated over; it yields a `Result` for each, in their order.

    A pair that cannot be read, or whose results cannot be written, fails alone: its result has an `error`.
    A second pass would find the results of the first, and refuse to replace them.
    Whoever stops early has whole files, and goes on with `skip_existing`. Over a cluster results come in the
    order in which they are finished.
    """

    work: Work
    """What is done with each pair."""
    bar: Bar | None = None
    """What draws how far it is."""
    made: Sequence[Path] = ()
    """The videos that were put together, once all pairs are done."""

    def __init__(
        self,
        settings: Any,
        results: Mapping[OutputKind, Place | None],
        *,
        found: Callable[[], Pairing] | None = None,
        read: Iterable[Place | None] = (),
        tag: str = "",
    ) -> None:
        """Find the pairs and plan their results, before any work.

        Args:
            settings: Those of the command (`settings.batches`).
            results: What is asked for, the main result first.
            found: Finds the inputs, where they are not pairs of images.
            read: Other files that no result may overwrite.
            tag: What a suggested name ends with.

        Raises UsageError and InputError.
        """
        self.settings = settings
        texts: dict[OutputKind, str | None] = dict.fromkeys(results)
        for kind, place in results.items():
            texts[kind] = place if place is None else str(place)
        named = settings.pairs is not None or any(texts.values())
        if not named:
            _check_last_input(settings, next(iter(texts)), 1 if found or settings.packed else 2)
        self.pairing, self.packed = (found(), None) if found is not None else find_pairs(settings)
        self.recording = getattr(self.pairing and self.pairing.pairs, "recording", None)
        """The ROS bag that pairs come from; None: files."""
        self.many = self.pairing is None or self.pairing.batch
        """Whether a pair that fails fails alone."""
        if settings.engine == "ray" and not self.many:
            raise UsageError("`engine` ray is for batches", "drop it for a single pair")
        if not named:
            kind = next(iter(texts))
            key = "results/" if self.pairing is None or self.many else next(iter(self.pairing.pairs)).key
            example = key if self.many else f"{Path(key or kind.name).name}{tag}{kind.suffixes[0]}"
            hint = f"say where to: {kind.option} {shlex.quote(example or kind.name)}"
            raise UsageError("no result is asked for", hint)
        format_name = getattr(settings, "format", None)
        self.videos: dict[str, Path] = {}
        self.returned: dict[str, Path] = {}
        handed: list[OutputKind] = []
        for kind, text in texts.items():
            if os.path.splitext(text or "")[1].lower() in ASSEMBLED and not self.videos:
                from pamcli.batch.video_results import frame_template, video_places

                self.videos = video_places(texts, self.pairing, format_name)
            if text == "-":
                handed.append(kind)
        if handed:
            self._return(handed, next(iter(texts)), format_name)
        for kind in texts:
            if kind.name in self.videos:
                texts[kind] = frame_template(self.videos[kind.name])
            elif kind.name in self.returned:
                texts[kind] = None
        self.names = plan_outputs(texts, batch=self.many, format_name=format_name)
        self.read: list[Place] = [*filter(None, (*read, settings.pairs))]
        self.read += [self.recording.place] if self.recording else []
        self.whole_videos: frozenset[str] = frozenset()
        """The videos that stay as they are: they exist, and no frames wait to replace them."""
        if self.pairing is None:
            return
        if self.pairing.unpaired and not settings.skip_unpaired:
            require_all_paired(self.pairing)
        for path in self.pairing.unpaired:
            LOG.warning("%s has no partner and is left out", path)
        self.names.check(self.pairing.pairs, self.read)
        if self.videos:
            from pamcli.batch.video_results import whole_videos

            first = next(iter(self.pairing.pairs))
            for video in self.videos.values():
                check_extra_output(video, [first.left, first.right or first.left, *self.read])
            self.whole_videos = whole_videos(self)
        files = itertools.chain([self.videos], map(self.names.paths, self.share(self.pairing.pairs)))
        check_existing(files, overwrite=settings.overwrite, skip_existing=settings.skip_existing)

    def _return(self, kinds: list[OutputKind], main: OutputKind, format_name: str | None) -> None:
        """Plan to hand a result back that is asked for as `-`. Raises UsageError."""
        kind, *others = kinds
        if others:
            both = f"{kind.option} - and {others[0].option} -"
            raise UsageError(f"{both} would both go to stdout", "give one of them")
        if self.many:
            raise UsageError(
                f"{kind.option} - takes one pair, not a batch", "name a folder or a template with {}"
            )
        suffix = f".{format_name}" if format_name and kind.suffixes == main.suffixes else kind.suffixes[0]
        self.returned = {kind.name: Path(f"standard output{suffix}")}

    def with_work(self, work: Work) -> Self:
        """Say what is done with each pair."""
        self.work, work.packed, work.videos = work, self.packed, self.videos
        work.recording = self.recording
        return self

    def share(self, items: Iterable[Any]) -> Iterator[Any]:
        """Pick this shard of the batch from the items of all pairs."""
        part, count = self.settings.shard or (1, 1)
        return itertools.islice(items, part - 1, None, count)

    @property
    def total(self) -> int | None:
        """Number of jobs, unknown while a list is still arriving."""
        if self.pairing is None:
            return None
        part, count = self.settings.shard or (1, 1)
        return len(range(part - 1, len(self.pairing.pairs), count))

    @property
    def outputs(self) -> Iterator[Path]:
        """All results that are known before the work."""
        for job in self.jobs() if self.pairing else ():
            yield from job.files.values()

    def jobs(self) -> Iterator[Job]:
        """Yield what there is to do, made anew each time: there may be a million jobs."""
        if self.pairing is None:
            return self.share(self._listed())
        return map(self._job, self.share(self.pairing.pairs))

    def _listed(self) -> Iterator[Job]:
        """Jobs of a list that arrives line by line."""
        given, seen = self.settings, PathRegistry(read=self.read)
        with open_pair_list(Path(given.pairs)) as lines:
            for line, item in iter_pair_list(lines, given.null, given.root and Path(given.root)):
                if isinstance(item, PamError):
                    yield Job(None, error=item, line=line)
                else:
                    yield self._job(item, seen)

    def _job(self, pair: PairPaths, seen: PathRegistry | None = None) -> Job:
        """Make the job of a pair; whatever is wrong with the pair fails it alone."""
        given = self.settings
        try:
            files = self.names.paths(pair)
            if seen is not None:
                seen.add(pair, files)
            check_existing([files], overwrite=given.overwrite, skip_existing=given.skip_existing)
        except PamError as error:
            return Job(pair, error=error, line=pair.line)
        done = given.skip_existing and bool(files)
        for name, path in files.items() if done else ():  # of os.path: names that are too long, too
            done &= name in self.whole_videos or os.path.exists(path)
        return Job(pair, files, self.returned, done, line=pair.line, videos=self.videos)

    # --- processing -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the network, where this process needs one, which else the first pair would do."""
        if self._processes() == 1:
            self.work.start()

    @property
    def going_on(self) -> str:
        """How a batch goes on that was stopped, for people."""
        if self.work.whole_batch_first:
            return "results of the whole batch come at its end: begin anew"
        if not self.settings.overwrite:
            return "the same command with `skip_existing` goes on"
        if self.videos and self.names.templates.keys() <= self.videos.keys():
            return "the same command with `skip_existing` instead of `overwrite` goes on"
        return "begin anew: `skip_existing` would keep what was there before"

    def _processes(self) -> int:
        """Count the processes that do the work; 0: those of a cluster."""
        if self.settings.engine == "ray":
            return 0
        if self.settings.workers == 1 or not self.many:
            return 1
        from pamcli.batch.processes import count_workers

        return count_workers(self)

    def __iter__(self) -> Generator[Result, None, None]:
        work, processes = self.work, self._processes()
        work.bar = self.bar if processes == 1 else None
        known = work.start() if processes == 1 else {"device": None, "precision": None} if work.gpus else {}
        if self.videos and self.settings.overwrite:
            from pamcli.batch.video_results import forget_frames

            forget_frames(self)
        failed, unwritten, waiting = False, False, []
        remarks: set[str | None] = {None}
        try:
            with closing(self._run(processes)) as run:
                for job, found in run:
                    outcome = Result(job, error=found) if isinstance(found, PamError) else found
                    outcome = replace(outcome, facts={**known, **outcome.facts})
                    if self.bar is not None:
                        self.bar.advance(skipped=job.done)
                    work.note(outcome.facts)
                    failed |= outcome.error is not None
                    unwritten |= outcome.error is not None and not isinstance(outcome.error, InputError)
                    if outcome.remark not in remarks:
                        remarks.add(outcome.remark)
                        LOG.info(outcome.remark)
                    if isinstance(outcome.error, FolderGoneError):  # and results of others with it
                        raise outcome.error
                    if work.whole_batch_first:
                        waiting.append(outcome)
                    else:
                        yield outcome
            for outcome in map(work.finish, waiting):
                failed |= outcome.error is not None
                if isinstance(outcome.error, FolderGoneError):
                    raise outcome.error
                yield outcome
            for folder in sorted(work.folders):
                require_folder(folder)
            if self.videos:
                from pamcli.batch.video_results import make_videos

                self.made = make_videos(self, unwritten)
            if self.many or self.settings.shard is not None:
                try:
                    work.end_batch()
                except (InputError, OutputError) as error:
                    if not failed:
                        raise
                    LOG.error("%s", error)
        finally:
            work.close()

    def _run(self, processes: int) -> Generator[tuple[Job, Result | PamError], None, None]:
        """Yield each job with what came of it, done by this process, by others, or by a cluster."""
        if processes == 1:
            return run_overlapped(self.jobs(), self.work)
        jobs, given, work = begun(self.work, self.jobs()), self.settings, self.work
        if processes:
            from pamcli.batch.processes import run_in_processes

            return run_in_processes(jobs, work, processes)
        from pamcli.batch.ray_cluster import run_on_ray

        cores = given.ray_cores or work.cores
        return run_on_ray(jobs, work, address=given.ray_address, cores=cores, gpus=work.gpus)


def _check_last_input(settings: Any, main: OutputKind, most: int) -> None:
    """Raise UsageError where the last input probably names the result."""
    inputs = [*map(str, settings.inputs or ())]
    if len(inputs) > most and not os.path.exists(inputs[-1]):
        hint = f"if it names the result: {main.option} {shlex.quote(inputs[-1])}"
        raise UsageError(f"no such file: {quote(inputs[-1])}, and no result is asked for", hint)
