"""Write results as videos, ROS bags or recordings, whose frames are stored beside them until all exist."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.batch import LOG
from pamcli.batch.frames import FramePairs
from pamcli.errors import UsageError, import_extra
from pamcli.files.outputs import OutputKind, is_folder_name
from pamcli.files.pairing import Pairing, PairPaths
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.files.safe_reading import open_source
from pamcli.files.suffixes import (
    BAG_OUTPUT_SUFFIXES,
    IMAGE_OUTPUT_SUFFIXES,
    RERUN_SUFFIX,
    VIDEO_OUTPUT_SUFFIXES,
    VIDEO_SUFFIXES,
)
from pamcli.imaging.disparity_files import PNG_UNITS_PER_METRE, PNG_UNITS_PER_PIXEL, read_disparity
from pamcli.imaging.raster import read_png
from pamcli.imaging.videos import DISPARITY_SCALE, Video, write_video
from pamcli.recordings.rrd import import_rerun, write_recording
from pamcli.recordings.writing import write_disparities

STORED = ".png"
"""Format of stored frames: lossless, with 8 or 16 bits."""
IMAGES_PER_SECOND = 25
"""Rate of a video that is made of images, which have no time stamps."""


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
        path = Path(text or "")
        is_bag, is_rerun = path.suffix.lower() in BAG_OUTPUT_SUFFIXES, kind.name == "rerun"
        is_video = path.suffix.lower() in VIDEO_SUFFIXES and STORED in kind.suffixes
        if text is None or not (is_bag or is_rerun or is_video) or "{}" in text or is_folder_name(text, True):
            continue
        if is_rerun and pairing is not None:
            import_rerun()
            places[kind.name] = path
            continue
        if pairing is None or any(pair.line is not None for pair in itertools.islice(pairing.pairs, 1)):
            message = f"cannot use both `pairs` and the video {kind.option} {quote(text)}"
            raise UsageError(message, "write images, or process two videos")
        if not pairing.batch:
            continue
        if is_bag:
            if kind.name != "disparity":
                message = f"{kind.option} {quote(text)}: a ROS bag can only hold disparity maps"
                hint = "name a folder" if kind.option == "`output`" else "use the bag for `output`"
                raise UsageError(message, hint)
            import_extra("rosbags.highlevel")
            places[kind.name] = path
            continue
        if path.suffix.lower() not in VIDEO_OUTPUT_SUFFIXES:
            raise UsageError(
                f"{kind.option} {quote(text)} must end with {' or '.join(VIDEO_OUTPUT_SUFFIXES)}",
                ".mkv is lossless, .mp4 plays everywhere",
            )
        if kind.suffixes != IMAGE_OUTPUT_SUFFIXES and path.suffix.lower() != ".mkv":
            raise UsageError(f"{kind.option} {quote(text)} must be lossless", "use .mkv")
        if format_name is not None and kind.suffixes == main.suffixes:
            raise UsageError(f"cannot use both `format` and the video {quote(text)}", "drop `format`")
        import_extra("av")
        places[kind.name] = path
    return places


def frame_template(video: Path) -> str:
    """Return the template of the stored frames of a video."""
    suffix = video.suffix.lower()
    stored = {RERUN_SUFFIX: ".npz", **dict.fromkeys(BAG_OUTPUT_SUFFIXES, ".npy")}.get(suffix, STORED)
    return f"{frames_folder(video)}/{{}}{stored}"


def frames_folder(video: Path) -> Path:
    """Return the folder of the stored frames of a video."""
    return video.with_name(f"{video.name}.frames")


@dataclass(frozen=True)
class Clock:
    """The times of the frames of a video."""

    stamps: Sequence[int] | NDArray[np.int64]
    """(N,): times in `unit`, ascending from 0."""
    unit: Fraction
    """Seconds."""
    rate: Fraction
    """Frames per second."""
    begin: int = 0
    """Time of the first frame of a recording, ns since 1970."""


def read_clock(pairing: Pairing) -> Clock:
    """Return the times of the left video's frames, or even steps for images. Raises InputError."""
    pairs = pairing.pairs
    if not isinstance(pairs, FramePairs):
        return Clock(range(len(pairs)), Fraction(1, IMAGES_PER_SECOND), Fraction(IMAGES_PER_SECOND))
    if pairs.recording is not None:
        places = np.searchsorted(pairs.recording.numbers[:, 0], pairs.numbers[:, 0])
        stamps = pairs.recording.stamps[places]
        gap = int(np.median(np.diff(stamps))) if len(stamps) > 1 else 10**9 // IMAGES_PER_SECOND
        rate = Fraction(10**9, max(gap, 1)).limit_denominator(1001)
        return Clock(stamps - stamps[0], Fraction(1, 10**9), rate, int(stamps[0]))
    video = Video(pairs.left)
    stamps, unit = video.stamps[pairs.numbers[:, 0]], Fraction(video.stream.time_base)
    step = int(np.median(np.diff(stamps))) * unit if len(stamps) > 1 else Fraction(1, IMAGES_PER_SECOND)
    return Clock(stamps - stamps[0], unit, (1 / step).limit_denominator(1001))


@dataclass(frozen=True)
class StoredFrames:
    """Stored frames of a video: the time of each, s, and its pixels (H, W, C), read anew at each iteration.

    Missing frames are skipped.
    """

    pairing: Pairing
    place: Callable[[PairPaths], Path]
    clock: Clock

    @property
    def places(self) -> Iterator[tuple[Fraction, Path]]:
        """The time and the file of each frame."""
        for stamp, pair in zip(self.clock.stamps, self.pairing.pairs, strict=True):
            yield int(stamp) * self.clock.unit, self.place(pair)

    def __iter__(self) -> Iterator[tuple[Fraction, np.ndarray]]:
        transparent = False
        for seconds, path in self.places:
            if not path.exists():
                continue
            with open_source(path, str(path)) as stream:
                samples = read_png(stream, str(path), None)[0]
            channels = 1 if samples.shape[2] <= 2 else 3
            transparent |= samples.shape[2] > channels
            yield seconds, samples[..., :channels]
        if transparent:
            LOG.warning("a video cannot hold transparency, which is dropped")


def write_frames(video: Path, frames: Iterable[tuple[Fraction, np.ndarray]], clock: Clock, kind: str) -> None:
    """Write a video. kind: of the result. Raises OutputError; InputError for no frames or different sizes."""
    count = write_video(video, frames, rate=clock.rate, unit=clock.unit, notes=describe_levels(kind))
    if missing := len(clock.stamps) - count:
        LOG.warning(f"{quote(video)} lacks {pluralize(missing, 'frame')} that failed")


def _write_bag(batch: Any, path: Path, frames: StoredFrames) -> None:
    """Write stored disparity maps as a ROS bag. Raises OutputError."""
    calibration = batch.processor.get_calibration(batch.processor.read(next(batch.jobs())))
    focal_length, baseline = (calibration.focal_length, calibration.baseline) if calibration else (0.0, 0.0)
    maps = (
        (frames.clock.begin + int(seconds * 10**9), read_disparity(place, max_pixels=None))
        for seconds, place in frames.places
        if place.exists()
    )
    write_disparities(path, maps, focal_length, baseline)


def _write_rerun(batch: Any, path: Path, frames: StoredFrames) -> None:
    """Write stored frames as a recording for the Rerun viewer. Raises OutputError."""
    pairs, max_depth = frames.pairing.pairs, batch.processor.metric.max_depth
    items = (
        (pair.frames[0] if pair.frames else index, float(seconds) if pair.frames else None, place)
        for index, (pair, (seconds, place)) in enumerate(zip(pairs, frames.places, strict=True))
        if place.exists()
    )
    write_recording(path, items, max_depth, batch.settings.stride)


def describe_levels(kind: str) -> dict[str, str]:
    """Return the metadata of a video that state what its grey levels mean."""
    unknown = "0 = unknown"
    if kind in ("disparity", "right_disparity"):
        levels = f"{PNG_UNITS_PER_PIXEL} grey levels per px of disparity"
        return {DISPARITY_SCALE: str(PNG_UNITS_PER_PIXEL), "COMMENT": f"{levels}, {unknown}"}
    if kind in ("depth", "depth_error"):
        return {"COMMENT": f"{PNG_UNITS_PER_METRE} grey levels per m, {unknown}"}
    return {"COMMENT": "65535 = confidence 1"} if kind == "confidence" else {}


def remove_frames(video: Path, places: Iterable[Path]) -> None:
    """Remove the stored frames of a video, and their folders if empty."""
    folders = {root := frames_folder(video)}
    for path in places:
        folders |= {folder for folder in path.parents if folder.is_relative_to(root)}
        with suppress(OSError):
            path.unlink()
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        with suppress(OSError):
            folder.rmdir()


def find_complete_videos(batch: Any) -> frozenset[str]:
    """Return the existing videos that no stored frames will replace."""
    if not batch.settings.skip_existing:
        return frozenset()
    existing = {name for name, video in batch.videos.items() if video.exists()}
    unfinished = {name for name in existing if frames_folder(batch.videos[name]).exists()}
    if unfinished:  # the folder may hold only frames of other pairs
        places = [batch.names.paths(pair) for pair in batch.pairing.pairs] if batch.pairing else []
        unfinished = {name for name in unfinished if any(each[name].exists() for each in places)}
    return frozenset(existing - unfinished)


def remove_all_frames(batch: Any) -> None:
    """Remove stored frames of an earlier run, so that only those of this run remain if it is interrupted."""
    if any(frames_folder(video).exists() for video in batch.videos.values()):
        for name, video in batch.videos.items():
            remove_frames(video, (job.files[name] for job in batch.jobs() if name in job.files))


def make_videos(batch: Any, unwritten: bool) -> list[Path]:
    """Assemble each video, then delete its frame files; return the videos.

    unwritten: whether frames failed for another reason than their input. Raises OutputError, InputError.
    """
    assert batch.pairing is not None
    names, resume = join_names([*map(str, batch.videos.values())]), "repeat the command with `skip_existing`"
    if batch.settings.overwrite:
        resume += " instead of `overwrite`"
    if batch.settings.shard is not None:
        LOG.info(f"to write {names} after all shards, {resume} and without `shard`")
        return []
    if unwritten:
        LOG.error(f"{names} is not written because frames failed: to resume, {resume}")
        return []
    clock, made = read_clock(batch.pairing), []
    stored = {
        name: StoredFrames(batch.pairing, lambda pair, name=name: batch.names.paths(pair)[name], clock)  # type: ignore[misc]
        for name in batch.videos
    }
    for name, video in batch.videos.items():
        if name in batch.complete_videos or not any(path.exists() for _, path in stored[name].places):
            continue  # it existed, or all frames failed
        if video.suffix.lower() in BAG_OUTPUT_SUFFIXES:
            _write_bag(batch, video, stored[name])
        elif video.suffix.lower() == RERUN_SUFFIX:
            _write_rerun(batch, video, stored[name])
        else:
            write_frames(video, batch.processor.render_video(name, stored[name]), clock, name)
        made.append(video)
    for name, frames in stored.items():
        remove_frames(batch.videos[name], (path for _, path in frames.places))
    return made
