"""Plan a batch: find the pairs that settings name, and name their results; a `Job` becomes a `Result`."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pamcli.batch import LOG
from pamcli.errors import InputError, PamError, UsageError
from pamcli.files.outputs import (
    OutputKind,
    OutputPlan,
    PathRegistry,
    check_collisions,
    check_existing,
    plan_outputs,
)
from pamcli.files.pairing import (
    STDIN,
    Pairing,
    PairPaths,
    iter_pair_list,
    open_pair_list,
    read_pair_list,
    require_all_paired,
    resolve_packed,
    resolve_pairs,
)
from pamcli.files.paths import STDIN_NAME, are_packed, is_recording, join_names, pluralize, quote
from pamcli.files.suffixes import (
    BAG_OUTPUT_SUFFIXES,
    DISPARITY_INPUT_SUFFIXES,
    IMAGE_SUFFIXES,
    RERUN_SUFFIX,
    STATING_SUFFIXES,
    VIDEO_SUFFIXES,
    PackedLayout,
)
from pamcli.settings.batches import BatchSettings
from pamcli.settings.options import Place
from pamcli.settings.shared import Cluster, MetricResults, Pairs

if TYPE_CHECKING:
    from pamcli.batch.frames import FramePairs

ASSEMBLED = {*VIDEO_SUFFIXES, *BAG_OUTPUT_SUFFIXES, RERUN_SUFFIX}
"""Suffixes of results that are one file for all pairs of a batch."""
EMPTY_NAME = "check that the shell variable is set"
PACKED_HINT = "add `packed` lr, rl, tb or bt"
_SINGLE_VIEWS = {*IMAGE_SUFFIXES} - {*STATING_SUFFIXES}
_MAPS_ONLY = {*DISPARITY_INPUT_SUFFIXES} - {*IMAGE_SUFFIXES}
_MAP_NAME = re.compile(r"(?:^|[\W_])disp(?:arity)?\d?(?:(?![/\\])[\W_][^/\\]*)?[/\\]*$", re.IGNORECASE)


class Job(NamedTuple):
    """The files to read and to write for a pair, or the error in a line of a list."""

    pair: PairPaths | None
    files: Mapping[str, Path] = {}
    """The file of each result by its kind: "disparity", "right_disparity" ..."""
    places: Mapping[str, Path] = {}
    """`files`, and a name with the suffix of its format for a result that is returned as bytes."""
    done: bool = False  # True if all results exist and must not be replaced
    error: PamError | None = None
    line: int | None = None  # line of the list
    videos: Mapping[str, Path] = {}
    """The videos that results become frames of, by their kinds."""
    is_repeated: bool = False  # True if another process may have written a part of the results before it died

    @property
    def names(self) -> list[str]:
        """The names of the images in messages."""
        images = (self.pair.left, self.pair.right) if self.pair else ()
        if self.pair and self.pair.frames:
            both = zip(images, self.pair.frames, strict=True)
            return [f"{path}, frame {number}" for path, number in both if path is not None]
        return [STDIN_NAME if path == STDIN else str(path) for path in images if path is not None]


@dataclass(frozen=True)
class Result:
    """The result of a pair of a batch."""

    job: Job
    error: PamError | None = None
    """The error of a failed pair, or None."""
    warnings: Sequence[str] = ()
    """Suspected problems of the pair or its results."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """width and height (px), seconds (of computing), device, precision, options and other facts."""
    remarks: Sequence[str] = ()
    """Notes on how the pair was processed."""
    data: bytes | None = None
    """Bytes of the result whose path is `-`."""
    video_warnings: Sequence[str] = ()
    """Problems of a frame that are reported in one warning for the whole video."""

    @property
    def left(self) -> Path | None:
        """The left image, or the image that holds both views; None for an invalid line of a list."""
        return self.job.pair.left if self.job.pair else None

    @property
    def right(self) -> Path | None:
        """The right image; None if the left image holds both views."""
        return self.job.pair.right if self.job.pair else None

    @property
    def frame(self) -> int | None:
        """Number of the frame in the left video, from 0; None for images."""
        return self.job.pair.frames[0] if self.job.pair and self.job.pair.frames else None

    @property
    def status(self) -> Literal["ok", "skipped", "failed"]:
        """Status of the results: "ok", "skipped" because they exist already, or "failed"."""
        return "failed" if self.error else "skipped" if self.job.done else "ok"

    @property
    def outputs(self) -> dict[str, Path]:
        """Files of the results by their kinds, such as "disparity"; empty if the pair failed.

        For a frame it is the video, which is complete after the whole batch.
        """
        return {} if self.error else {**self.job.files, **self.job.videos}

    def record(self, say: Callable[[str], str] = str) -> dict[str, Any]:
        """Return the result as paths and JSON values. say: a function that is applied to all texts."""
        warnings = [say(text) for text in (*self.warnings, *self.video_warnings)]
        return {
            **{"left": self.left, "right": self.right, "line": self.job.line},
            **({} if self.frame is None else {"frame": self.frame}),
            **{"outputs": self.outputs, "width": None, "height": None, "seconds": None, **self.facts},
            **{"status": self.status, "code": self.error.exit_code if self.error else 0},
            **{"error": self.error and say(str(self.error)), "warnings": warnings},
        }


def are_videos(inputs: Sequence[str]) -> bool:
    """Return whether all inputs are named like videos.

    Raises UsageError if only some are, InputError if a video does not exist.
    """
    videos = [text for text in inputs if os.path.splitext(text)[1].lower() in VIDEO_SUFFIXES]
    if videos and len(videos) < len(inputs):
        raise UsageError(f"{join_names(inputs)}: only {quote(videos[0])} is a video", "give two videos")
    for text in videos:
        if not os.path.exists(text):
            raise InputError(f"no such file: {quote(text)}")
    return bool(videos)


def find_pairs(settings: Pairs) -> tuple[Pairing | None, PackedLayout | None]:
    """Find the pairs that settings name (None: a list that is read while it is processed), and their layout.

    Raises UsageError, InputError.
    """
    inputs, root = [*map(str, settings.inputs or ())], settings.root and Path(settings.root)
    if root is not None and not root.is_dir():
        raise UsageError(f"`root` must be a folder, got {quote(root)}")
    packed, suffixes = settings.packed, {os.path.splitext(each)[1].lower() for each in inputs}
    are_single = suffixes <= _SINGLE_VIEWS and all(map(os.path.isfile, inputs))
    if packed is None and settings.pairs is None and not are_single and are_packed(inputs):
        packed = "auto"
    if "" in inputs or settings.pairs == "":
        raise UsageError("the name of an image or list is empty", EMPTY_NAME)
    if not are_single and any(map(is_recording, inputs)):
        return _find_recorded(settings, inputs), None
    if not suffixes.isdisjoint(VIDEO_SUFFIXES) and are_videos(inputs):
        return _find_frames(settings, inputs, packed), packed
    for name in ("start", "every", "count", "offset"):
        if settings.is_set(name):
            raise UsageError(f"`{name}` requires a video", f"drop `{name}`")
    if settings.pairs is not None:
        # With Ray, the list is distributed while it is read.
        is_far = isinstance(settings, Cluster) and settings.engine == "ray"
        stream = is_far or str(settings.pairs) == str(STDIN)
        return None if stream else Pairing(read_pair_list(Path(settings.pairs), settings.null, root)), None
    if packed is not None and "-" in inputs:
        if len(inputs) > 1:
            raise UsageError("- reads one image from stdin, so it must be the only input")
        return Pairing((PairPaths(STDIN, None, "stdin"),), batch=False), packed
    if packed is not None:
        return resolve_packed(inputs, by_suffix=packed == "auto", root=root), packed
    if root is not None:
        raise UsageError("`root` requires `pairs` or `packed`", "drop `root`")
    if "-" in inputs:
        raise UsageError("an image from stdin must hold both views", PACKED_HINT)
    if suffixes & _MAPS_ONLY:
        maps = [each for each in inputs if Path(each).suffix.lower() in _MAPS_ONLY]
        hint = "pam depth converts stored disparity maps, and measures in them, with the same options"
        raise UsageError(f"a left and a right image are required, got the disparity map {maps[0]}", hint)
    if inputs and all(map(_MAP_NAME.search, inputs)):
        LOG.warning(f"{join_names(inputs)} are named like disparity maps: pam depth converts those")
    if len(inputs) != 2:
        hint = "pass two images, folders or quoted templates; `packed` reads images that hold both views"
        if len(inputs) == 1:
            hint = f"if {quote(inputs[0])} holds both views side by side, add `packed` lr"
        raise UsageError(f"a left and a right image are required, got {len(inputs) or 'none'}", hint)
    return resolve_pairs(*inputs), None


def _forbid(settings: Pairs, source: str, *names: str) -> None:
    for name in names:
        if getattr(settings, name):
            raise UsageError(f"cannot use both `{name}` and {source}", f"drop `{name}`")


def _find_recorded(settings: Pairs, inputs: list[str]) -> Pairing:
    """Pair the images of a ROS bag. Raises UsageError, InputError."""
    _forbid(settings, f"the ROS bag {inputs[0]}", "pairs", "root", "packed", "offset")
    if len(inputs) > 1:
        raise UsageError(
            f"a ROS bag must be the only input, got {join_names(inputs)}",
            "name both topics of one bag: 'bag:FILE?left=/TOPIC&right=/TOPIC'",
        )
    from pamcli.batch.frames import pair_messages

    return pair_messages(inputs[0], settings.start, settings.every, settings.count)


def _find_frames(settings: Pairs, inputs: list[str], packed: str | None) -> Pairing:
    """Pair the frames of one or two videos. Raises UsageError, InputError."""
    _forbid(settings, f"the video {quote(inputs[0])}", "pairs", "root")
    if packed == "auto":
        raise UsageError("the layout of a video must be stated", PACKED_HINT)
    if len(inputs) != (1 if packed else 2):
        needed = "one video is required with `packed`" if packed else "a left and a right video are required"
        hint = None if packed else f"if one video holds both views, {PACKED_HINT}"
        raise UsageError(f"{needed}, got {pluralize(len(inputs), 'video')}: {join_names(inputs)}", hint)
    if packed and settings.offset:
        raise UsageError("`offset` requires two videos", "drop `offset`")
    from pamcli.batch.frames import pair_frames

    return pair_frames(inputs, settings.start, settings.every, settings.count, settings.offset)


@dataclass(frozen=True)
class Plan:
    """The jobs of a batch."""

    settings: BatchSettings
    pairing: Pairing | None  # None for a list that is read while it is processed
    packed: PackedLayout | None  # layout of images that hold both views
    frames: FramePairs | None  # the frames of a video or a recording; None for files
    recording: Any  # the `Recording` that holds the pairs; None for files
    total: int | None  # number of jobs; None while a list is being read
    names: OutputPlan
    read: Sequence[Place]  # other files than images that are read, and that no result may overwrite
    videos: Mapping[str, Path]  # videos to write, by the kind of result
    returned: Mapping[str, Path]
    """The result that is returned as bytes, by its kind, with a name that has the suffix of its format."""
    many: bool  # True if the batch continues after a failed pair
    shard: tuple[int, int] | None  # the share of the batch to process, and the number of shares; None: all
    uses_ray: bool  # True if a Ray cluster processes the batch
    complete_videos: frozenset[str]  # videos that exist and are kept

    @property
    def outputs(self) -> Iterator[Path]:
        """The paths of all results that are known before processing starts."""
        for job in self.jobs() if self.pairing else ():
            yield from job.files.values()

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs, created on demand because there may be a million; a pair may have an error."""
        settings, registry = self.settings, PathRegistry(read=self.read) if self.pairing is None else None
        (part, count), pairs = self.shard or (1, 1), self.pairing.pairs if self.pairing else self._read_list()
        for pair in itertools.islice(pairs, part - 1, None, count):
            if isinstance(pair, Job):
                yield pair
                continue
            try:
                files = self.names.paths(pair)
                if registry is not None:
                    registry.add(pair, files)
                check_existing([files], overwrite=settings.overwrite, skip_existing=settings.skip_existing)
            except PamError as error:
                yield Job(pair, error=error, line=pair.line)
                continue
            done = settings.skip_existing and bool(files)
            for name, path in files.items() if done else ():
                done &= name in self.complete_videos or os.path.exists(path)
            places = {**files, **self.returned}
            yield Job(pair, files, places, done, line=pair.line, videos=self.videos)

    def _read_list(self) -> Iterator[PairPaths | Job]:
        """Yield the pairs of a list that is read line by line, and a job for each line with an error."""
        settings = self.settings
        assert isinstance(settings, Pairs)
        with open_pair_list(Path(settings.pairs or "")) as lines:
            for line, item in iter_pair_list(lines, settings.null, settings.root):
                yield Job(None, error=item, line=line) if isinstance(item, PamError) else item


def plan_batch(
    settings: BatchSettings,
    kinds: Iterable[OutputKind],
    *,
    find: Callable[[], Pairing] | None = None,
    read: Iterable[Place | None] = (),
    tag: str = "",
) -> Plan:
    """Find the pairs and plan their results, the main one first. Raises UsageError and InputError.

    Args:
        settings: Options of the command.
        kinds: Kinds of results that the command can write.
        find: Finds inputs that are not image pairs.
        read: Other files that no result may overwrite.
        tag: Suffix of a suggested file name.
    """
    pairs = settings if isinstance(settings, Pairs) else None
    texts: dict[OutputKind, str | None] = {}
    are_assembled = False
    for kind in kinds:
        place = kind.template or getattr(settings, kind.option.strip("`"))
        texts[kind] = None if place is None else str(place)
        are_assembled |= os.path.splitext(texts[kind] or "")[1].lower() in ASSEMBLED
    main, listed = next(iter(texts)), pairs and pairs.pairs
    is_named = listed is not None or any(texts.values())
    is_named |= isinstance(settings, MetricResults) and settings.has_distances
    if not is_named:
        _check_last_input(settings, main)
    pairing, packed = find_pairs(pairs) if pairs else (find and find(), None)
    many = pairing is None or pairing.batch
    uses_ray = isinstance(settings, Cluster) and settings.engine == "ray"
    if uses_ray and not many:
        raise UsageError("`engine` ray requires a batch of several pairs", "drop `engine` ray")
    first = next(iter(pairing.pairs), None) if pairing else None
    if not is_named:
        key = "results/" if many or first is None else first.key
        example = key if many else f"{Path(key or main.name).name}{tag}{main.suffixes[0]}"
        hint = f"name a file or folder: {main.option} {shlex.quote(example or main.name)}"
        raise UsageError("no result is requested", hint)
    videos: dict[str, Path] = {}
    if are_assembled:
        from pamcli.batch.video_names import check_videos, plan_videos

        videos = plan_videos(texts, pairing, settings.format)
    returned = _plan_returned(texts, many, settings.format) if "-" in texts.values() else {}
    names = plan_outputs(texts, batch=many, format_name=settings.format)
    files_read: list[Any] = [*filter(None, (*read, listed))]
    frames: Any = pairing.pairs if pairing and first and first.frames else None
    recording, shard = frames and frames.recording, pairs.shard if pairs else None
    if recording is not None:
        files_read.append(recording.place)
    total, complete = None, frozenset[str]()
    if pairing is not None:
        if pairing.unpaired and not (pairs and pairs.skip_unpaired):
            require_all_paired(pairing)
        for path in pairing.unpaired:
            LOG.warning("%s has no partner and is ignored", path)
        check_collisions(pairing.pairs, names.paths, files_read)
        if videos:
            complete = check_videos(videos, names, pairing.pairs, files_read, settings.skip_existing)
        part, count = shard or (1, 1)
        own = map(names.paths, itertools.islice(pairing.pairs, part - 1, None, count))
        files = itertools.chain([videos], own)
        check_existing(files, overwrite=settings.overwrite, skip_existing=settings.skip_existing)
        total = len(range(part - 1, len(pairing.pairs), count))
    found = pairing, packed, frames, recording, total
    return Plan(settings, *found, names, files_read, videos, returned, many, shard, uses_ray, complete)


def _check_last_input(settings: BatchSettings, main: OutputKind) -> None:
    """Raise UsageError if the last input seems to be the name of the result."""
    inputs = [*map(str, settings.inputs or ())]
    most = 2 if isinstance(settings, Pairs) and not settings.packed else 1
    if len(inputs) > most and not os.path.exists(inputs[-1]):
        hint = f"if it names the result: {main.option} {shlex.quote(inputs[-1])}"
        raise UsageError(f"no such file: {quote(inputs[-1])}, and no result is requested", hint)


def _plan_returned(
    texts: dict[OutputKind, str | None], many: bool, format_name: str | None
) -> dict[str, Path]:
    """Plan the result that `-` requests as bytes, and take it out of the texts. Raises UsageError."""
    main = next(iter(texts))
    kind, *others = (each for each, text in texts.items() if text == "-")
    if others:
        message = f"cannot write both {kind.option} - and {others[0].option} - to stdout"
        raise UsageError(message, "write one of them to a file")
    if many:
        message = f"{kind.option} - cannot hold a batch of several pairs"
        raise UsageError(message, "name a folder, or a template with {}")
    texts[kind] = None
    suffix = f".{format_name}" if format_name and kind.suffixes == main.suffixes else kind.suffixes[0]
    return {kind.name: Path(f"standard output{suffix}")}
