"""Plan the jobs of a batch, and run them here, in several single-threaded processes, or on a cluster."""

from __future__ import annotations

import itertools
import math
import os
import shlex
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from pamcli.batch import LOG
from pamcli.batch.jobs import Job, Result, find_pairs
from pamcli.batch.overlapping import attempt, run_one, run_overlapped
from pamcli.batch.processing import PairProcessor, prepare_from_first
from pamcli.errors import DiskFullError, InputError, OutputError, PamError, UsageError
from pamcli.files.atomic import FolderGoneError, require_folder
from pamcli.files.outputs import OutputKind, PathRegistry, check_existing, check_extra_output, plan_outputs
from pamcli.files.pairing import Pairing, PairPaths, iter_pair_list, open_pair_list, require_all_paired
from pamcli.files.paths import quote
from pamcli.files.suffixes import BAG_OUTPUT_SUFFIXES, RERUN_SUFFIX, VIDEO_SUFFIXES
from pamcli.limits import get_free_memory, usable_cores
from pamcli.settings.options import Place
from pamcli.workers import answer_in_processes

ASSEMBLED = (*VIDEO_SUFFIXES, *BAG_OUTPUT_SUFFIXES, RERUN_SUFFIX)
"""Suffixes of results that are one file for all pairs of a batch."""
LEAST_PAIRS, LEAST_PIXELS = 8, 5_000_000
"""Smallest number of pairs, and pixels of their left images, for which starting another process pays."""
PROCESS_MEMORY = 1_000_000_000
"""Free memory that a process needs, bytes."""
MOST_THREADS, THREAD_PIXELS = 8, 40_000_000
"""Largest number of threads that read for a GPU, and of pixels of left images that they hold together."""


class Batch:
    """Pairs that are processed while the batch is iterated; yields a `Result` for each, in their order.

    A pair that cannot be read or written fails alone: its result has an `error`. A full disk ends the
    iteration with an OutputError. If it ends early, all files are complete, and `skip_existing` resumes. On a
    cluster, results come as they are done.
    """

    processor: PairProcessor
    bar: Any = None
    """A `Progress`, or None."""
    made: Sequence[Path] = ()
    """The finished videos, after the last pair."""

    def __init__(
        self,
        settings: Any,
        results: Mapping[OutputKind, Place | None],
        *,
        find: Callable[[], Pairing] | None = None,
        read: Iterable[Place | None] = (),
        tag: str = "",
    ) -> None:
        """Find the pairs and plan their results, the main one first. Raises UsageError and InputError.

        `find` returns inputs that are not image pairs; `read`: other files that no result may overwrite;
        `tag`: suffix of a suggested file name.
        """
        self.settings = settings
        texts, has_assembled, stdout = dict[OutputKind, str | None](), False, []
        for kind, place in results.items():
            text = texts[kind] = None if place is None else str(place)
            has_assembled |= os.path.splitext(text or "")[1].lower() in ASSEMBLED
            if text == "-":
                stdout.append(kind)
        main = next(iter(texts))
        is_named = settings.pairs is not None or any(texts.values())
        if not is_named:
            _check_last_input(settings, main, 1 if find or settings.packed else 2)
        self.pairing, self.packed = (find(), None) if find is not None else find_pairs(settings)
        self.recording = getattr(self.pairing and self.pairing.pairs, "recording", None)
        """The ROS bag that holds the pairs; None for files."""
        self.many = self.pairing is None or self.pairing.batch
        """True if the batch continues after a failed pair."""
        if settings.engine == "ray" and not self.many:
            raise UsageError("`engine` ray requires a batch of several pairs", "drop `engine` ray")
        if not is_named:
            key = "results/" if self.pairing is None or self.many else next(iter(self.pairing.pairs)).key
            example = key if self.many else f"{Path(key or main.name).name}{tag}{main.suffixes[0]}"
            hint = f"name a file or folder: {main.option} {shlex.quote(example or main.name)}"
            raise UsageError("no result is requested", hint)
        format_name = getattr(settings, "format", None)
        self.videos: dict[str, Path] = {}
        if has_assembled:
            from pamcli.batch.video_results import frame_template, plan_videos

            self.videos = plan_videos(texts, self.pairing, format_name)
        self.returned = self._plan_returned(stdout, main, format_name) if stdout else {}
        for kind in texts:
            if kind.name in self.videos:
                texts[kind] = frame_template(self.videos[kind.name])
            elif kind.name in self.returned:
                texts[kind] = None
        self.names = plan_outputs(texts, batch=self.many, format_name=format_name)
        self.read: list[Place] = [*filter(None, (*read, settings.pairs))]
        self.read += [self.recording.place] if self.recording else []
        self.complete_videos: frozenset[str] = frozenset()
        """Videos that exist and are kept."""
        if self.pairing is None:
            return
        if self.pairing.unpaired and not settings.skip_unpaired:
            require_all_paired(self.pairing)
        for path in self.pairing.unpaired:
            LOG.warning("%s has no partner and is ignored", path)
        self.names.check(self.pairing.pairs, self.read)
        if self.videos:
            from pamcli.batch.video_results import find_complete_videos

            first = next(iter(self.pairing.pairs))
            for video in self.videos.values():
                check_extra_output(video, [first.left, first.right or first.left, *self.read])
            self.complete_videos = find_complete_videos(self)
        files = itertools.chain([self.videos], map(self.names.paths, self.share(self.pairing.pairs)))
        check_existing(files, overwrite=settings.overwrite, skip_existing=settings.skip_existing)

    def _plan_returned(
        self, kinds: list[OutputKind], main: OutputKind, format_name: str | None
    ) -> dict[str, Path]:
        """Plan the result that `-` requests as bytes. Raises UsageError."""
        kind, *others = kinds
        if others:
            message = f"cannot write both {kind.option} - and {others[0].option} - to stdout"
            raise UsageError(message, "write one of them to a file")
        if self.many:
            message = f"{kind.option} - cannot hold a batch of several pairs"
            raise UsageError(message, "name a folder, or a template with {}")
        suffix = f".{format_name}" if format_name and kind.suffixes == main.suffixes else kind.suffixes[0]
        return {kind.name: Path(f"standard output{suffix}")}

    def set_processor(self, processor: PairProcessor) -> Self:
        """Set the processor that runs on each pair."""
        self.processor, processor.packed, processor.videos = processor, self.packed, self.videos
        processor.recording = self.recording
        if self.recording is not None and processor.rectifies_recording:
            self.recording.require_calibration()
        return self

    def share(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items that belong to this shard."""
        part, count = self.settings.shard or (1, 1)
        return itertools.islice(items, part - 1, None, count)

    @property
    def total(self) -> int | None:
        """Number of jobs; None while a list is being read."""
        if self.pairing is None:
            return None
        part, count = self.settings.shard or (1, 1)
        return len(range(part - 1, len(self.pairing.pairs), count))

    @property
    def outputs(self) -> Iterator[Path]:
        """The paths of all results that are known before processing starts."""
        for job in self.jobs() if self.pairing else ():
            yield from job.files.values()

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs, created on demand because there may be a million."""
        if self.pairing is None:
            return self.share(self._iterate_list())
        return map(self._job, self.share(self.pairing.pairs))

    def _iterate_list(self) -> Iterator[Job]:
        """Yield the jobs of a list that is read line by line."""
        settings, paths = self.settings, PathRegistry(read=self.read)
        with open_pair_list(Path(settings.pairs)) as lines:
            for line, item in iter_pair_list(lines, settings.null, settings.root and Path(settings.root)):
                if isinstance(item, PamError):
                    yield Job(None, error=item, line=line)
                else:
                    yield self._job(item, paths)

    def _job(self, pair: PairPaths, paths: PathRegistry | None = None) -> Job:
        """Return the job of a pair; an error of the pair becomes the job's."""
        settings = self.settings
        try:
            files = self.names.paths(pair)
            if paths is not None:
                paths.add(pair, files)
            check_existing([files], overwrite=settings.overwrite, skip_existing=settings.skip_existing)
        except PamError as error:
            return Job(pair, error=error, line=pair.line)
        done = settings.skip_existing and bool(files)
        for name, path in files.items() if done else ():
            done &= name in self.complete_videos or os.path.exists(path)
        return Job(pair, files, self.returned, done, line=pair.line, videos=self.videos)

    # --- processing -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the network if this process needs one; otherwise the first pair does."""
        if count_processes(self) == 1:
            self.processor.start()

    @property
    def resume_hint(self) -> str:
        """Hint for resuming the batch after an interruption."""
        if self.processor.needs_whole_batch:
            return "results of the whole batch are written at its end, so start again"
        if not self.settings.overwrite:
            return "to resume, add `skip_existing` to the same command"
        if self.videos and self.names.templates.keys() <= self.videos.keys():
            return "to resume, repeat the command with `skip_existing` instead of `overwrite`"
        return "start again: `skip_existing` would keep old results"

    def __iter__(self) -> Generator[Result, None, None]:
        processor, processes = self.processor, count_processes(self)
        processor.bar = self.bar if processes == 1 else None
        known: dict[str, Any] = {"device": None, "precision": None} if processor.uses_gpu else {}
        known = {**known, **(processor.start() if processes == 1 else {})}
        known["options"] = self.settings.to_json()
        if self.videos and self.settings.overwrite:
            from pamcli.batch.video_results import remove_all_frames

            remove_all_frames(self)
        failed, unwritten, delayed = False, False, []
        reported: set[str] = set()
        try:
            with closing(self._run(processes)) as run:
                for job, outcome in run:
                    result = Result(job, error=outcome) if isinstance(outcome, PamError) else outcome
                    result = replace(result, facts={**known, **result.facts})
                    if self.bar is not None:
                        self.bar.advance(skipped=job.done)
                    processor.collect(result.facts)
                    failed |= result.error is not None
                    unwritten |= result.error is not None and not isinstance(result.error, InputError)
                    for remark in result.remarks:
                        if remark not in reported:
                            LOG.info(remark)
                    reported.update(result.remarks)
                    if isinstance(result.error, (FolderGoneError, DiskFullError)):  # as for all
                        raise result.error
                    if processor.needs_whole_batch:
                        delayed.append(result)
                    else:
                        yield result
            for result in map(processor.save_delayed, delayed):
                failed |= result.error is not None
                if isinstance(result.error, (FolderGoneError, DiskFullError)):
                    raise result.error
                yield result
            for folder in sorted(processor.folders):
                require_folder(folder)
            if self.videos:
                from pamcli.batch.video_results import make_videos

                self.made = make_videos(self, unwritten)
            if self.many or self.settings.shard is not None:
                try:
                    processor.end_batch()
                except (InputError, OutputError) as error:
                    if not failed:
                        raise
                    LOG.error("%s", error)
        finally:
            processor.close()

    def _run(self, processes: int) -> Generator[tuple[Job, Result | PamError], None, None]:
        """Yield each job with its result, from this process, others, or a cluster."""
        if processes == 1:
            threads = count_threads(self)
            if threads > 1:
                self.processor.bar = None  # it shows the progress of one pair at a time
            return run_overlapped(self.jobs(), self.processor, threads)
        jobs = prepare_from_first(self.processor, self.jobs())
        settings = self.settings
        if processes:
            if settings.max_memory is not None:
                self.processor.max_memory = settings.max_memory // processes
            return answer_in_processes(partial(run_job, self.processor), jobs, processes, prepares=True)
        from pamcli.batch.ray_cluster import run_on_ray

        cores = settings.ray_cores or self.processor.cores
        gpus = self.processor.uses_gpu
        return run_on_ray(jobs, self.processor, address=settings.ray_address, cores=cores, gpus=gpus)


def _check_last_input(settings: Any, main: OutputKind, most: int) -> None:
    """Raise UsageError if the last input probably names the result."""
    inputs = [*map(str, settings.inputs or ())]
    if len(inputs) > most and not os.path.exists(inputs[-1]):
        hint = f"if it names the result: {main.option} {shlex.quote(inputs[-1])}"
        raise UsageError(f"no such file: {quote(inputs[-1])}, and no result is requested", hint)


def count_processes(batch: Batch) -> int:
    """Return the number of processes to use, or 0 if a Ray cluster computes.

    Raises UsageError: an option of the batch requires a single process.
    """
    settings, count = batch.settings, batch.settings.workers
    if settings.engine == "ray":
        return 0
    if count == 1 or not batch.many:
        return 1
    conflict = _find_sequential(batch)
    if count != "auto":
        if conflict is not None:
            raise UsageError(f"cannot use both `workers` {count} and {conflict}", "drop `workers`")
        return int(min(count, batch.total or 1))
    is_foreign = Path(settings.name).suffix in (".onnx", ".toml")
    if conflict is not None or is_foreign or not _uses_cpu(settings.device):
        return 1
    cores, pairs = usable_cores(), batch.total or 0
    if cores == 1 or pairs < 2 * LEAST_PAIRS:
        return 1
    free = get_free_memory()
    memory = min(settings.max_memory or math.inf, math.inf if free is None else free)
    most = min(cores, pairs // LEAST_PAIRS, pairs * _count_pixels(batch) // LEAST_PIXELS)
    return int(max(1, min(most, memory // PROCESS_MEMORY)))


def count_threads(batch: Batch) -> int:
    """Return the number of threads that prepare pairs for a GPU, and of those that write its results."""
    if not (batch.many and batch.processor.uses_gpu) or "cpu" in batch.processor.start()["device"].lower():
        return 1
    if batch.recording is not None or _find_sequential(batch) is not None:
        return 1
    pixels = max(1, _count_pixels(batch))
    return max(1, min(MOST_THREADS, usable_cores(), THREAD_PIXELS // pixels))


def _find_sequential(batch: Batch) -> str | None:
    """Return what requires that pairs are processed one after the other in one process, if anything."""
    frames = batch.pairing and next(iter(batch.pairing.pairs)).frames
    reasons = {
        "`pairs` -": batch.pairing is None,
        "`steady`": getattr(batch.settings, "steady", False),
        "`range` shared": batch.processor.needs_whole_batch,
        "videos": bool(batch.videos or (frames and batch.recording is None)),
    }
    return next(filter(reasons.get, reasons), None)


def _count_pixels(batch: Batch) -> int:
    """Return the pixels of the first readable left image, or 0 if the first three cannot be read."""
    for job in itertools.islice(batch.jobs(), 3):
        with suppress(PamError):
            pair = batch.processor.read(job)
            return int(pair.width * pair.height)
    return 0


def _uses_cpu(device: str) -> bool:
    """Return whether a network will run on the CPU, without PyTorch, whose import takes seconds."""
    if device != "auto":
        return device == "cpu"
    paths = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
    return not any(map(os.path.exists, paths)) and shutil.which("nvidia-smi") is None


def run_job(processor: PairProcessor, job: Job | None) -> Any:
    """Load the network for None, else return the result or error of a job, in another process."""
    return attempt(processor.start) if job is None else run_one(processor, job)
