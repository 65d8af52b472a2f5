"""Plan a batch: its pairs, the names of their results and videos, and what exists."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pamcli.batch import LOG
from pamcli.batch.jobs import Job, find_pairs
from pamcli.errors import PamError, UsageError, import_extra
from pamcli.files.outputs import (
    OutputKind,
    OutputPlan,
    PathRegistry,
    check_existing,
    check_extra_output,
    is_folder_name,
    plan_outputs,
)
from pamcli.files.pairing import Pairing, PairPaths, iter_pair_list, open_pair_list, require_all_paired
from pamcli.files.paths import quote
from pamcli.files.suffixes import (
    BAG_OUTPUT_SUFFIXES,
    IMAGE_OUTPUT_SUFFIXES,
    RERUN_SUFFIX,
    VIDEO_OUTPUT_SUFFIXES,
    VIDEO_SUFFIXES,
    PackedLayout,
)
from pamcli.settings.batches import BatchSettings
from pamcli.settings.options import Place
from pamcli.settings.shared import Cluster, MetricResults, Pairs

if TYPE_CHECKING:
    from pamcli.batch.frames import FramePairs


def plan_videos(
    options: Mapping[OutputKind, str | None], pairing: Pairing | None, format_name: str | None
) -> dict[str, Path]:
    """Return the results that become videos, by the names of their kinds.

    A result of several pairs becomes a video if its name is that of one and its frames can be images.
    Raises UsageError for a video that cannot be written, for a list of pairs, and without PyAV.
    """
    places = {}
    main = next(iter(options))
    for kind, text in options.items():
        if text is None or "{}" in text or is_folder_name(text, True):
            continue
        path, name = Path(text), f"{kind.option} {quote(text)}"
        suffix, is_rerun = path.suffix.lower(), kind.name == "rerun"
        is_bag, is_video = suffix in BAG_OUTPUT_SUFFIXES, suffix in VIDEO_SUFFIXES and STORED in kind.suffixes
        if not (is_bag or is_rerun or is_video):
            continue
        if pairing is None or (not is_rerun and _is_list(pairing)):
            message = f"cannot use both `pairs` and the video {name}"
            raise UsageError(message, "write images, or process two videos")
        if not (is_rerun or pairing.batch):
            continue
        if is_bag and kind.name != "disparity":
            hint = "name a folder" if kind.option == "`output`" else "use the bag for `output`"
            raise UsageError(f"{name}: a ROS bag can only hold disparity maps", hint)
        if is_video and suffix not in VIDEO_OUTPUT_SUFFIXES:
            message = f"{name} must end with {' or '.join(VIDEO_OUTPUT_SUFFIXES)}"
            raise UsageError(message, ".mkv is lossless, .mp4 plays everywhere")
        if is_video and kind.suffixes != IMAGE_OUTPUT_SUFFIXES and suffix != ".mkv":
            raise UsageError(f"{name} must be lossless", "use .mkv")
        if is_video and format_name is not None and kind.suffixes == main.suffixes:
            raise UsageError(f"cannot use both `format` and the video {quote(text)}", "drop `format`")
        if is_rerun:
            from pamcli.recordings.rrd import import_rerun

            import_rerun()
        else:
            import_extra("rosbags.highlevel" if is_bag else "av")
        places[kind.name] = path
    return places


def _is_list(pairing: Pairing) -> bool:
    return any(pair.line is not None for pair in itertools.islice(pairing.pairs, 1))


def frames_folder(video: Path) -> Path:
    """Return the folder of the stored frames of a video."""
    return video.with_name(f"{video.name}.frames")


def find_complete_videos(
    videos: Mapping[str, Path], names: OutputPlan, pairs: Iterable[PairPaths]
) -> frozenset[str]:
    """Return the existing videos that no stored frames will replace."""
    existing = {name for name, video in videos.items() if video.exists()}
    unfinished = {name for name in existing if frames_folder(videos[name]).exists()}
    if unfinished:  # the folder may hold only frames of other pairs
        places = [names.paths(pair) for pair in pairs]
        unfinished = {name for name in unfinished if any(each[name].exists() for each in places)}
    return frozenset(existing - unfinished)


STORED = ".png"  # format of stored frames: lossless, with 8 or 16 bits
FRAME_SUFFIXES = {RERUN_SUFFIX: ".npz", **dict.fromkeys(BAG_OUTPUT_SUFFIXES, ".npy")}
"""Formats of the stored frames of other recordings than videos."""
ASSEMBLED = (*VIDEO_SUFFIXES, *BAG_OUTPUT_SUFFIXES, RERUN_SUFFIX)
"""Suffixes of results that are one file for all pairs of a batch."""

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """The jobs of a batch."""

    settings: BatchSettings
    pairing: Pairing | None  # none for a list that is read while it is processed
    packed: PackedLayout | None  # layout of images that hold both views
    names: OutputPlan
    read: Sequence[Place]  # other files than images that are read, and that no result may overwrite
    videos: Mapping[str, Path]  # videos to write, by the kind of result
    returned: Mapping[str, Path]
    """The result that is returned as bytes, by its kind, with a name that has the suffix of its format."""
    many: bool  # True if the batch continues after a failed pair
    shard: tuple[int, int] | None  # the share of the batch to process, and the number of shares; None: all
    uses_ray: bool  # True if a Ray cluster processes the batch
    frames: FramePairs | None = None  # the frames of a video or a recording; None for files
    complete_videos: frozenset[str] = frozenset()  # videos that exist and are kept

    @property
    def recording(self) -> Any:
        """The `Recording` that holds the pairs; None for files."""
        return self.frames and self.frames.recording

    @property
    def total(self) -> int | None:
        """Number of jobs; None while a list is being read."""
        if self.pairing is None:
            return None
        part, count = self.shard or (1, 1)
        return len(range(part - 1, len(self.pairing.pairs), count))

    @property
    def outputs(self) -> Iterator[Path]:
        """The paths of all results that are known before processing starts."""
        for job in self.jobs() if self.pairing else ():
            yield from job.files.values()

    def share(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items that belong to this shard."""
        part, count = self.shard or (1, 1)
        return itertools.islice(items, part - 1, None, count)

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs, created on demand because there may be a million."""
        if self.pairing is None:
            return self.share(self._iterate_list())
        return map(self._make_job, self.share(self.pairing.pairs))

    def _iterate_list(self) -> Iterator[Job]:
        """Yield the jobs of a list that is read line by line."""
        settings, paths = self.settings, PathRegistry(read=self.read)
        assert isinstance(settings, Pairs)
        with open_pair_list(Path(settings.pairs or "")) as lines:
            for line, item in iter_pair_list(lines, settings.null, settings.root):
                if isinstance(item, PamError):
                    yield Job(None, error=item, line=line)
                else:
                    yield self._make_job(item, paths)

    def _make_job(self, pair: PairPaths, paths: PathRegistry | None = None) -> Job:
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


def plan_batch(
    settings: BatchSettings,
    results: Mapping[OutputKind, Place | None],
    *,
    find: Callable[[], Pairing] | None = None,
    read: Iterable[Place | None] = (),
    tag: str = "",
) -> Plan:
    """Find the pairs and plan their results, the main one first. Raises UsageError and InputError.

    Args:
        settings: Options of the command.
        results: Place of each kind of result, or None.
        find: Finds inputs that are not image pairs.
        read: Other files that no result may overwrite.
        tag: Suffix of a suggested file name.
    """
    pairs = settings if isinstance(settings, Pairs) else None
    texts = {kind: None if place is None else str(place) for kind, place in results.items()}
    main = next(iter(texts))
    listed = pairs and pairs.pairs
    is_named = listed is not None or any(texts.values())
    is_named |= isinstance(settings, MetricResults) and settings.has_distances
    inputs = [*map(str, settings.inputs or ())]
    most = 2 if pairs and not pairs.packed else 1
    if not is_named and len(inputs) > most and not os.path.exists(inputs[-1]):
        hint = f"if it names the result: {main.option} {shlex.quote(inputs[-1])}"
        raise UsageError(f"no such file: {quote(inputs[-1])}, and no result is requested", hint)
    pairing, packed = find_pairs(pairs) if pairs else (find and find(), None)
    many = pairing is None or pairing.batch
    uses_ray = isinstance(settings, Cluster) and settings.engine == "ray"
    if uses_ray and not many:
        raise UsageError("`engine` ray requires a batch of several pairs", "drop `engine` ray")
    if not is_named:
        key = "results/" if pairing is None or many else next(iter(pairing.pairs)).key
        example = key if many else f"{Path(key or main.name).name}{tag}{main.suffixes[0]}"
        hint = f"name a file or folder: {main.option} {shlex.quote(example or main.name)}"
        raise UsageError("no result is requested", hint)
    format_name = settings.format
    videos: dict[str, Path] = {}
    if any(os.path.splitext(text or "")[1].lower() in ASSEMBLED for text in texts.values()):
        videos = plan_videos(texts, pairing, format_name)
        for kind in (each for each in texts if each.name in videos):
            suffix = FRAME_SUFFIXES.get(videos[kind.name].suffix.lower(), STORED)
            texts[kind] = f"{frames_folder(videos[kind.name])}/{{}}{suffix}"
    returned = {}
    if stdout := [kind for kind, text in texts.items() if text == "-"]:
        returned = _plan_returned(stdout, main, many, format_name)
        texts[stdout[0]] = None
    names = plan_outputs(texts, batch=many, format_name=format_name)
    files_read = [place for place in (*read, listed) if place]
    first = next(iter(pairing.pairs), None) if pairing else None
    frames: Any = pairing.pairs if pairing and first and first.frames else None
    if frames is not None and frames.recording is not None:
        files_read.append(frames.recording.place)
    shard = pairs.shard if pairs else None
    plan = Plan(settings, pairing, packed, names, files_read, videos, returned, many, shard, uses_ray, frames)
    if pairing is None:
        return plan
    if pairing.unpaired and not (pairs and pairs.skip_unpaired):
        require_all_paired(pairing)
    for path in pairing.unpaired:
        LOG.warning("%s has no partner and is ignored", path)
    names.check(pairing.pairs, plan.read)
    if videos:
        assert first is not None
        for video in videos.values():
            check_extra_output(video, [first.left, first.right or first.left, *plan.read])
        if settings.skip_existing:
            plan = replace(plan, complete_videos=find_complete_videos(videos, names, pairing.pairs))
    files = itertools.chain([videos], map(names.paths, plan.share(pairing.pairs)))
    check_existing(files, overwrite=settings.overwrite, skip_existing=settings.skip_existing)
    return plan


def _plan_returned(
    kinds: Sequence[OutputKind], main: OutputKind, many: bool, format_name: str | None
) -> dict[str, Path]:
    """Plan the result that `-` requests as bytes. Raises UsageError."""
    kind, *others = kinds
    if others:
        message = f"cannot write both {kind.option} - and {others[0].option} - to stdout"
        raise UsageError(message, "write one of them to a file")
    if many:
        message = f"{kind.option} - cannot hold a batch of several pairs"
        raise UsageError(message, "name a folder, or a template with {}")
    suffix = f".{format_name}" if format_name and kind.suffixes == main.suffixes else kind.suffixes[0]
    return {kind.name: Path(f"standard output{suffix}")}
