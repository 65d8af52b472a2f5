"""How do results become videos? Frames are files in a folder beside the video, until all are there."""

from __future__ import annotations

import itertools
import os
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
from pamcli.errors import UsageError
from pamcli.files.outputs import OutputKind, is_folder_name
from pamcli.files.pairing import Pairing, PairPaths, is_template
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.files.safe_reading import open_source
from pamcli.files.suffixes import (
    BAG_OUTPUT_SUFFIXES,
    IMAGE_OUTPUT_SUFFIXES,
    VIDEO_OUTPUT_SUFFIXES,
    VIDEO_SUFFIXES,
)
from pamcli.imaging.disparity_files import PNG_UNITS_PER_METRE, PNG_UNITS_PER_PIXEL, read_disparity
from pamcli.imaging.png import read_png
from pamcli.imaging.video_writing import write_video
from pamcli.imaging.videos import DISPARITY_SCALE, Video, import_pyav
from pamcli.recordings.bags import rosbags
from pamcli.recordings.writing import write_disparities

STORED = ".png"
"""How a frame waits: lossless, with 8 or 16 bits."""
PICTURES_A_SECOND = 25
"""Rate of a video that is made of pictures, which do not say when they were taken."""


def video_places(
    options: Mapping[OutputKind, str | None], pairing: Pairing | None, format_name: str | None
) -> dict[str, Path]:
    """Which results are to be videos, by the names of their kinds.

    A result is one where it is called so, there are several pairs, and its frames can be pictures.
    Raises UsageError: a video that cannot be written, a list of pairs, PyAV is missing.
    """
    places = {}
    main = next(iter(options))
    for kind, text in options.items():
        path = Path(text or "")
        is_bag = path.suffix.lower() in BAG_OUTPUT_SUFFIXES
        named_so = is_bag or (path.suffix.lower() in VIDEO_SUFFIXES and STORED in kind.suffixes)
        if text is None or not named_so or is_template(text) or is_folder_name(text, True):
            continue
        if pairing is None or any(pair.line is not None for pair in itertools.islice(pairing.pairs, 1)):
            raise UsageError(f"{kind.option} {quote(text)} is a video, and a list of pairs is none")
        if not pairing.batch:
            continue
        if is_bag:
            if kind.name != "disparity":
                raise UsageError(f"{kind.option} {quote(text)}: a ROS bag holds disparity maps: `output`")
            rosbags("highlevel")
            places[kind.name] = path
            continue
        if path.suffix.lower() not in VIDEO_OUTPUT_SUFFIXES:
            raise UsageError(
                f"{kind.option} {quote(text)}: videos are written as {' or '.join(VIDEO_OUTPUT_SUFFIXES)}",
                ".mkv is lossless, .mp4 for people to watch",
            )
        if kind.suffixes != IMAGE_OUTPUT_SUFFIXES and path.suffix.lower() != ".mkv":
            raise UsageError(f"{kind.option} {quote(text)} would lose what it measures", "take .mkv")
        if format_name is not None and kind.suffixes == main.suffixes:
            raise UsageError(f"`format` is about files in a folder, and {quote(text)} is a video")
        places[kind.name] = path
    if any(path.suffix.lower() not in BAG_OUTPUT_SUFFIXES for path in places.values()):
        import_pyav()
    return places


def frame_template(video: Path) -> str:
    """Return the template of the files that the frames of a video wait in."""
    stored = ".npy" if video.suffix.lower() in BAG_OUTPUT_SUFFIXES else STORED
    return f"{frames_folder(video)}/{{}}{stored}"


def frames_folder(video: Path) -> Path:
    """Where the frames of a video wait, until all are there."""
    return video.with_name(f"{video.name}.frames")


@dataclass(frozen=True)
class Clock:
    """When the frames of a video are shown."""

    stamps: Sequence[int] | NDArray[np.int64]
    """(N,): in `unit`, ascending from 0."""
    unit: Fraction
    """Seconds."""
    rate: Fraction
    """Frames a second."""
    begin: int = 0
    """Time of the first frame of a recording, ns since 1970."""


def clock_of(pairing: Pairing) -> Clock:
    """When the results of these pairs are shown: as the left video's frames, pictures in even steps.

    Raises InputError.
    """
    pairs = pairing.pairs
    if not isinstance(pairs, FramePairs):
        return Clock(range(len(pairs)), Fraction(1, PICTURES_A_SECOND), Fraction(PICTURES_A_SECOND))
    if pairs.recording is not None:
        places = np.searchsorted(pairs.recording.numbers[:, 0], pairs.numbers[:, 0])
        stamps = pairs.recording.stamps[places]
        gap = int(np.median(np.diff(stamps))) if len(stamps) > 1 else 10**9 // PICTURES_A_SECOND
        rate = Fraction(10**9, max(gap, 1)).limit_denominator(1001)
        return Clock(stamps - stamps[0], Fraction(1, 10**9), rate, int(stamps[0]))
    video = Video(pairs.left)
    stamps, unit = video.stamps[pairs.numbers[:, 0]], Fraction(video.stream.time_base)
    step = int(np.median(np.diff(stamps))) * unit if len(stamps) > 1 else Fraction(1, PICTURES_A_SECOND)
    return Clock(stamps - stamps[0], unit, (1 / step).limit_denominator(1001))


@dataclass(frozen=True)
class StoredFrames:
    """Frames of a video that wait in files: when each is shown, seconds, and its (H, W, C), in their order.

    Those that are missing are left out; each time that they are asked for they are read anew.
    """

    pairing: Pairing
    place: Callable[[PairPaths], Path]
    clock: Clock

    @property
    def places(self) -> Iterator[tuple[Fraction, Path]]:
        """When each is shown, and its file."""
        for stamp, pair in zip(self.clock.stamps, self.pairing.pairs, strict=True):
            yield int(stamp) * self.clock.unit, self.place(pair)

    def __iter__(self) -> Iterator[tuple[Fraction, np.ndarray]]:
        transparent = False
        for seconds, path in self.places:
            if not path.exists():
                continue
            with open_source(path, str(path)) as stream:
                samples = read_png(stream, str(path), None).samples
            channels = 1 if samples.shape[2] <= 2 else 3
            transparent |= samples.shape[2] > channels
            yield seconds, samples[..., :channels]
        if transparent:
            LOG.warning("a video has no transparency: it is left out")


def put_together(video: Path, frames: Iterable[tuple[Fraction, np.ndarray]], clock: Clock, kind: str) -> None:
    """Make a video of its frames; kind: of the result. Raises OutputError, InputError: none, unlike ones."""
    count = write_video(video, frames, rate=clock.rate, unit=clock.unit, notes=notes_of(kind))
    if missing := len(clock.stamps) - count:
        LOG.warning(f"{quote(video)} is without {pluralize(missing, 'frame')} that failed")


def _write_bag(batch: Any, path: Path, frames: StoredFrames) -> None:
    """Write the disparity maps that wait in files as a bag. Raises OutputError."""
    calibration = batch.work.calibration_of(batch.work.read(next(batch.jobs())))
    focal_length, baseline = (calibration.focal_length, calibration.baseline) if calibration else (0.0, 0.0)
    maps = (
        (frames.clock.begin + int(seconds * 10**9), read_disparity(place, max_pixels=None))
        for seconds, place in frames.places
        if place.exists()
    )
    write_disparities(path, maps, focal_length, baseline)


def notes_of(kind: str) -> dict[str, str]:
    """What a video says about what its grey levels measure."""
    unknown = "0 where it is unknown"
    if kind in ("disparity", "right_disparity"):
        levels = f"{PNG_UNITS_PER_PIXEL} grey levels for a pixel of disparity"
        return {DISPARITY_SCALE: str(PNG_UNITS_PER_PIXEL), "COMMENT": f"{levels}, {unknown}"}
    if kind in ("depth", "depth_error"):
        return {"COMMENT": f"{PNG_UNITS_PER_METRE} grey levels for a metre, {unknown}"}
    return {"COMMENT": "65535 for a confidence of 1"} if kind == "confidence" else {}


def remove_frames(video: Path, places: Iterable[Path]) -> None:
    """Remove the files of a video's frames, and what this leaves empty of their folder, and itself."""
    folders = {home := frames_folder(video)}
    for path in places:
        folders |= {folder for folder in path.parents if folder.is_relative_to(home)}
        with suppress(OSError):
            path.unlink()
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        with suppress(OSError):
            folder.rmdir()


def whole_videos(batch: Any) -> frozenset[str]:
    """Find the videos that stay as they are: they exist, and no frames wait to replace them."""
    if not batch.settings.skip_existing:
        return frozenset()
    there = {name for name, video in batch.videos.items() if video.exists()}
    waiting = {name for name in there if frames_folder(batch.videos[name]).exists()}
    if waiting:  # perhaps a folder alone, which something else lies in
        places = [batch.names.paths(pair) for pair in batch.pairing.pairs] if batch.pairing else []
        waiting = {name for name in waiting if any(os.path.exists(each[name]) for each in places)}
    return frozenset(there - waiting)


def forget_frames(batch: Any) -> None:
    """Remove what another run left, which could not be told from frames of this one if it is stopped."""
    if any(frames_folder(video).exists() for video in batch.videos.values()):
        for name, video in batch.videos.items():
            remove_frames(video, (job.files[name] for job in batch.jobs() if name in job.files))


def make_videos(batch: Any, unwritten: bool) -> list[Path]:
    """Assemble each video, then delete its frame files; return the videos.

    unwritten: some frames failed that need not. Raises OutputError, InputError.
    """
    assert batch.pairing is not None
    named, go_on = join_names([*map(str, batch.videos.values())]), "the same command with `skip_existing`"
    if batch.settings.overwrite:
        go_on += " instead of `overwrite`"
    if batch.settings.shard is not None:
        LOG.info(f"once all shards are done, {go_on} and without `shard` makes {named} of their frames")
        return []
    if unwritten:
        LOG.error(f"{named} is not made: {go_on} goes on")
        return []
    clock, made = clock_of(batch.pairing), []
    stored = {
        name: StoredFrames(batch.pairing, lambda pair, name=name: batch.names.paths(pair)[name], clock)  # type: ignore[misc]
        for name in batch.videos
    }
    for name, video in batch.videos.items():
        if name in batch.whole_videos or not any(path.exists() for _, path in stored[name].places):
            continue  # it was there, or all failed
        if video.suffix.lower() in BAG_OUTPUT_SUFFIXES:
            _write_bag(batch, video, stored[name])
        else:
            put_together(video, batch.work.for_video(name, stored[name]), clock, name)
        made.append(video)
    for name, frames in stored.items():
        remove_frames(batch.videos[name], (path for _, path in frames.places))
    return made
