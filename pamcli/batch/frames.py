"""Pair the frames of two videos that were recorded at the same time, or of one that holds both views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pamcli.batch import LOG
from pamcli.errors import InputError, UsageError
from pamcli.files.pairing import Pairing, PairPaths
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.imaging.video_offset import find_offset
from pamcli.imaging.videos import Video
from pamcli.recordings.bags import Recording, find_nearest

RATE_TOLERANCE = 0.01  # relative difference at which frame rates count as equal
TIME_TOLERANCE = 0.5  # largest time between the frames of a pair, as a share of the time between two frames
FEW_PAIRED = 0.5  # share of paired frames below which a warning is logged
_LARGEST = 10**12


@dataclass(frozen=True)
class FramePairs:
    """Pairs of frames in their order, created on demand: an hour has 200,000."""

    left: Path
    right: Path | None
    numbers: NDArray[np.int64]  # (N, 2): number of the frame in the left and in the right video, from 0
    recording: Any = None  # the `Recording` whose messages these are; None: videos

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, pair: object) -> bool:
        return any(pair == each for each in self)

    def __iter__(self) -> Iterator[PairPaths]:
        for left, right in self.numbers.tolist():
            yield PairPaths(self.left, self.right, f"{left:06}", frames=(left, right))

    def spread(self, count: int) -> list[PairPaths]:
        """Return at most `count` pairs, evenly spaced."""
        step = max(1, len(self.numbers) / count)
        places = [int((number + 0.5) * step) for number in range(min(count, len(self.numbers)))]
        return list(FramePairs(self.left, self.right, self.numbers[places]))


def pair_messages(text: str, start: int = 0, every: int = 1, count: int | None = None) -> Pairing:
    """Pair the images of a ROS bag by their time stamps. start, every, count: as of `pair_frames`.

    Raises UsageError: its topics are ambiguous, nothing is left; InputError: it cannot be read.
    """
    recording = Recording(text, None if count is None else start + every * count)
    for note in recording.notes:
        LOG.info(note)
    for warning in recording.warnings:
        LOG.warning(warning)
    left = recording.numbers[:, 0]
    numbers = recording.numbers[(left >= start) & ((left - start) % every == 0)][:count]
    if not len(numbers):
        raise UsageError(f"{quote(recording.place)} ends with frame {left[-1]}, but `start` is {start}")
    return Pairing(FramePairs(Path(text), None, numbers, recording))


def pair_frames(
    inputs: Sequence[str],
    start: int = 0,
    every: int = 1,
    count: int | None = None,
    offset: int | Literal["auto"] = 0,
) -> Pairing:
    """Pair the frames of one or two videos by their time stamps; log and ignore frames without a partner.

    Args:
        inputs: Paths of the videos.
        start: First left frame, from 0.
        every: Step from one left frame to the next.
        count: Largest number of pairs, or None.
        offset: Frames by which the right video is later than the left one; auto: measured and logged.

    Raises:
        UsageError: Both videos are one file, PyAV is missing, or no frame remains.
        InputError: A video cannot be read, the rates differ, or the offset cannot be measured.
    """
    first, step = min(start, _LARGEST), min(every, _LARGEST)
    offset = offset if offset == "auto" else max(-_LARGEST, min(offset, _LARGEST))
    paths = [Path(text) for text in inputs]
    if len(paths) == 2 and paths[0].samefile(paths[1]):
        hint = "give two files, or one with `packed` lr if it holds both views"
        raise UsageError(f"left and right video are both {quote(paths[0])}", hint)
    videos = [Video(path) for path in paths]
    for video in videos:
        read = pluralize(len(video.stamps), "frame")
        if not video.is_readable_to_end:
            fault = f"cannot be read from frame {len(video.stamps)} on"
            LOG.warning(f"{quote(video.path)} {fault}; the {read} before it are processed")
        elif video.missing:
            LOG.warning(
                f"{quote(video.path)} ends {video.missing:.1f} s before the end in its header and may be "
                f"incomplete; its {read} are processed"
            )
    if len(videos) == 1:
        numbers = np.arange(len(videos[0].stamps))
        both = np.stack([numbers, numbers], axis=1)
    else:
        both = _pair_times(videos[0], videos[1], offset, first)
    chosen = both[(both[:, 0] >= first) & ((both[:, 0] - first) % step == 0)][:count]
    if not len(chosen):
        last = int(both[-1, 0]) if len(both) else 0
        fix = f"`start` must be at most {last}, got {start}" if start > last else None
        raise UsageError(f"{join_names(paths)}: no frame to process", fix)
    return Pairing(FramePairs(paths[0], paths[1] if len(paths) > 1 else None, chosen))


def _pair_times(left: Video, right: Video, offset: int | Literal["auto"], start: int) -> NDArray[np.int64]:
    """Return (N, 2): numbers of the frames that were recorded at the same time."""
    times = [left.times, right.times]
    steps = [_compute_frame_time(each) for each in times]
    step = max(steps)
    if min(steps) > 0 and step > (1 + RATE_TOLERANCE) * min(steps):
        rates = [f"{1 / each:.4g}" for each in steps]
        raise InputError(
            f"{quote(left.path)} has {rates[0]} frames/s but {quote(right.path)} has {rates[1]} frames/s",
            "record both videos at the same rate",
        )
    if offset == "auto":
        found = find_offset(left, right, step, start=start)
        offset = found.frames
        LOG.info(
            f"offset {offset}: correlation of the motion {found.agreement:.2f}, at most "
            f"{found.next_best:.2f} at other offsets"
        )
    shifted = times[1] - offset * step
    # Pair frames that are each other's nearest.
    nearest, back = find_nearest(shifted, times[0]), find_nearest(times[0], shifted)
    numbers = np.arange(len(times[0]))
    near = np.abs(shifted[nearest] - times[0]) <= max(TIME_TOLERANCE * step, 1e-9)
    paired = near & (back[nearest] == numbers)
    both = np.stack([numbers[paired], nearest[paired]], axis=1)
    for side, (video, other) in enumerate(((left, right), (right, left))):
        alone = np.setdiff1d(np.arange(len(times[side])), both[:, side])
        if len(alone):
            LOG.warning(
                f"{quote(video.path)}: {pluralize(len(alone), 'frame')} ignored, because "
                f"{quote(other.path)} has none at that time: {join_names([str(each) for each in alone])}"
            )
    if len(both) < FEW_PAIRED * min(len(each) for each in times):
        LOG.warning("most frames have no partner: set `offset` if the videos began at different times")
    return both


def _compute_frame_time(times: NDArray[np.float64]) -> float:
    """Return the mean time between frames, s, without dropped frames; 0 for a single frame."""
    steps = np.diff(times)
    return float(steps[steps < 1.5 * np.median(steps)].mean()) if len(steps) else 0.0
