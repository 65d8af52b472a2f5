"""Write results as videos, ROS bags or recordings, whose frames are stored beside them until all exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pamcli.batch import LOG
from pamcli.batch.frames import FramePairs
from pamcli.batch.plan import Plan
from pamcli.batch.video_names import frames_folder
from pamcli.files.pairing import PairPaths
from pamcli.files.paths import join_names, open_source, pluralize, quote
from pamcli.imaging.disparity_encoding import PNG_UNITS_PER_METRE, PNG_UNITS_PER_PIXEL
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.raster import read_png
from pamcli.imaging.videos import DISPARITY_SCALE, Video, write_video
from pamcli.recordings.rrd import write_recording
from pamcli.recordings.writing import write_disparities

if TYPE_CHECKING:
    from pamcli.calibration.geometry import Calibration

IMAGES_PER_SECOND = 25  # rate of a video that is made of images, which have no time stamps
Timed = Iterable[tuple[Fraction, np.ndarray]]  # images (H, W, C), each with its time, s


class StoredFrames:
    """The stored frames of a video: the time of each, s, and its pixels, read anew at each iteration.

    Missing frames are skipped.
    """

    kind = ""  # the kind of result that becomes a video

    def __init__(self, plan: Plan) -> None:
        """Take the times of the left video's frames, or even steps for images. Raises InputError."""
        assert plan.pairing is not None
        self.names, self.pairs = plan.names, (pairs := plan.pairing.pairs)
        self.stamps: Sequence[int] | NDArray[np.int64] = range(len(pairs))
        """(N,): times in `unit`, ascending from 0."""
        self.unit, self.rate = Fraction(1, IMAGES_PER_SECOND), Fraction(IMAGES_PER_SECOND)
        """Seconds; frames per second."""
        self.begin = 0  # time of the first frame of a recording, ns since 1970
        if not isinstance(pairs, FramePairs):
            return
        numbers = pairs.numbers[:, 0]
        if pairs.recording is not None:
            stamps = pairs.recording.stamps[np.searchsorted(pairs.recording.numbers[:, 0], numbers)]
            self.unit, self.begin = Fraction(1, 10**9), int(stamps[0])
        else:
            video = Video(pairs.left)
            stamps, self.unit = video.stamps[numbers], Fraction(video.stream.time_base)
        if len(stamps) > 1:
            step = max(int(np.median(np.diff(stamps))), 1)
            self.rate = (1 / (step * self.unit)).limit_denominator(1001)
        self.stamps = stamps - stamps[0]

    @property
    def places(self) -> Iterator[tuple[PairPaths, Fraction, Path]]:
        """Each pair whose frame exists, the time of the frame, s, and its file."""
        for stamp, pair in zip(self.stamps, self.pairs, strict=True):
            if (path := self.names.paths(pair)[self.kind]).exists():
                yield pair, int(stamp) * self.unit, path

    def __iter__(self) -> Iterator[tuple[Fraction, np.ndarray]]:
        transparent = False
        for _, seconds, path in self.places:
            with open_source(path, str(path)) as stream:
                samples = read_png(stream, str(path), None)[0]
            channels = 1 if samples.shape[2] <= 2 else 3
            transparent |= samples.shape[2] > channels
            yield seconds, samples[..., :channels]
        if transparent:
            LOG.warning("a video cannot hold transparency, which is dropped")


def write_frames(video: Path, frames: StoredFrames, images: Timed | None = None) -> None:
    """Write a video of frames, or of images that were made of them.

    Raises OutputError; InputError for no frames or different sizes.
    """
    notes = describe_levels(frames.kind)
    count = write_video(video, images or frames, rate=frames.rate, unit=frames.unit, notes=notes)
    if missing := len(frames.stamps) - count:
        LOG.warning(f"{quote(video)} lacks {pluralize(missing, 'frame')} that failed")


def write_bag(path: Path, frames: StoredFrames, calibration: Calibration | None) -> None:
    """Write stored disparity maps as a ROS bag. Raises OutputError."""
    focal_length, baseline = (calibration.focal_length, calibration.baseline) if calibration else (0.0, 0.0)
    maps = (
        (frames.begin + int(seconds * 10**9), read_disparity(place, max_pixels=None))
        for _, seconds, place in frames.places
    )
    write_disparities(path, maps, focal_length, baseline)


def write_rerun(path: Path, frames: StoredFrames, max_depth: float | None, stride: int) -> None:
    """Write stored frames as a recording for the Rerun viewer. Raises OutputError."""
    items = (
        (pair.frames[0], float(seconds), place) if pair.frames else (int(seconds / frames.unit), None, place)
        for pair, seconds, place in frames.places
    )
    write_recording(path, items, max_depth, stride)


def describe_levels(kind: str) -> dict[str, str]:
    """Return the metadata of a video that state what its grey levels mean."""
    if kind in ("disparity", "right_disparity"):
        levels = f"{PNG_UNITS_PER_PIXEL} grey levels per px of disparity, 0 = unknown"
        return {DISPARITY_SCALE: str(PNG_UNITS_PER_PIXEL), "COMMENT": levels}
    if kind in ("depth", "depth_error"):
        return {"COMMENT": f"{PNG_UNITS_PER_METRE} grey levels per m, 0 = unknown"}
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


def make_videos(plan: Plan, write: Callable[[Path, StoredFrames], None], unwritten: bool) -> list[Path]:
    """Assemble each video, then delete its frame files; return the videos.

    Args:
        plan: The plan of the batch.
        write: Writes a video of its frames.
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
    made, frames = [], StoredFrames(plan)
    for frames.kind, video in plan.videos.items():
        # It existed, or all frames failed.
        if frames.kind not in plan.complete_videos and any(frames.places):
            write(video, frames)
            made.append(video)
    for name, video in plan.videos.items():
        remove_frames(video, (plan.names.paths(pair)[name] for pair in plan.pairing.pairs))
    return made
