"""Write results as videos, ROS bags or recordings, whose frames are stored beside them until all exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pamcli.batch import LOG
from pamcli.batch.frames import FramePairs
from pamcli.batch.plan import Plan, frames_folder
from pamcli.files.pairing import Pairing, PairPaths
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.files.safe_reading import open_source
from pamcli.imaging.disparity_files import PNG_UNITS_PER_METRE, PNG_UNITS_PER_PIXEL, read_disparity
from pamcli.imaging.raster import read_png
from pamcli.imaging.videos import DISPARITY_SCALE, Video, write_video
from pamcli.recordings.rrd import write_recording
from pamcli.recordings.writing import write_disparities

if TYPE_CHECKING:
    from pamcli.calibration.geometry import Calibration

IMAGES_PER_SECOND = 25
"""Rate of a video that is made of images, which have no time stamps."""


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


def write_bag(path: Path, frames: StoredFrames, calibration: Calibration | None) -> None:
    """Write stored disparity maps as a ROS bag. Raises OutputError."""
    focal_length, baseline = (calibration.focal_length, calibration.baseline) if calibration else (0.0, 0.0)
    maps = (
        (frames.clock.begin + int(seconds * 10**9), read_disparity(place, max_pixels=None))
        for seconds, place in frames.places
        if place.exists()
    )
    write_disparities(path, maps, focal_length, baseline)


def write_rerun(path: Path, frames: StoredFrames, max_depth: float | None, stride: int) -> None:
    """Write stored frames as a recording for the Rerun viewer. Raises OutputError."""
    items = (
        (pair.frames[0] if pair.frames else index, float(seconds) if pair.frames else None, place)
        for index, (pair, (seconds, place)) in enumerate(
            zip(frames.pairing.pairs, frames.places, strict=True)
        )
        if place.exists()
    )
    write_recording(path, items, max_depth, stride)


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


def remove_all_frames(plan: Plan) -> None:
    """Remove stored frames of an earlier run, so that only those of this run remain if it is interrupted."""
    if any(frames_folder(video).exists() for video in plan.videos.values()):
        for name, video in plan.videos.items():
            remove_frames(video, (job.files[name] for job in plan.jobs() if name in job.files))


def make_videos(plan: Plan, write: Callable[[str, Path, StoredFrames], None], unwritten: bool) -> list[Path]:
    """Assemble each video, then delete its frame files; return the videos.

    Args:
        plan: The plan of the batch.
        write: Writes the video of a kind of result from its frames.
        unwritten: Whether frames failed for another reason than their input.

    Raises OutputError, InputError.
    """
    assert plan.pairing is not None
    names, resume = join_names([*map(str, plan.videos.values())]), "repeat the command with `skip_existing`"
    if plan.settings.overwrite:
        resume += " instead of `overwrite`"
    if plan.shard is not None:
        LOG.info(f"to write {names} after all shards, {resume} and without `shard`")
        return []
    if unwritten:
        LOG.error(f"{names} is not written because frames failed: to resume, {resume}")
        return []
    clock, made = read_clock(plan.pairing), []
    for name, video in plan.videos.items():
        frames = StoredFrames(plan.pairing, lambda pair, name=name: plan.names.paths(pair)[name], clock)  # type: ignore[misc]
        # It existed, or all frames failed.
        if name not in plan.complete_videos and any(path.exists() for _, path in frames.places):
            write(name, video, frames)
            made.append(video)
    for name, video in plan.videos.items():
        remove_frames(video, (plan.names.paths(pair)[name] for pair in plan.pairing.pairs))
    return made
