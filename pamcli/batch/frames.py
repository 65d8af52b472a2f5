"""Which frames of two videos, or of one that holds both views, were taken at the same time?"""

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

LIKE_RATES = 0.01
"""Share by which the frame rates of both videos may differ."""
ALIKE = 0.5
"""Share of the time between two frames by which those of a pair may lie apart."""
_BEYOND = 10**12
FEW = 0.5
"""Share of the frames that may be without a partner."""


@dataclass(frozen=True)
class FramePairs:
    """Pairs of frames in their order, each made when it is asked for: an hour has 200,000."""

    left: Path
    right: Path | None
    numbers: NDArray[np.int64]
    """(N, 2): number of the frame in the left and in the right video, from 0."""
    recording: Any = None
    """The `Recording` whose messages these are; None: videos."""

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, pair: object) -> bool:
        return any(pair == each for each in self)

    def __iter__(self) -> Iterator[PairPaths]:
        for left, right in self.numbers.tolist():
            yield PairPaths(self.left, self.right, f"{left:06}", frames=(left, right))

    def spread(self, count: int) -> list[PairPaths]:
        """So many of them, or all, evenly spaced."""
        step = max(1, len(self.numbers) / count)
        places = [int((number + 0.5) * step) for number in range(min(count, len(self.numbers)))]
        return list(FramePairs(self.left, self.right, self.numbers[places]))


def pair_messages(text: str, *, start: int = 0, every: int = 1, count: int | None = None) -> Pairing:
    """Pair the images of a ROS bag by their time stamps. start, every, count: as of `pair_frames`.

    Raises UsageError: its topics are ambiguous, nothing is left; InputError: it cannot be read.
    """
    from pamcli.recordings.bags import Recording

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
    *,
    start: int = 0,
    every: int = 1,
    count: int | None = None,
    offset: int | Literal["auto"] = 0,
) -> Pairing:
    """Pair the frames of one or two videos by their time stamps; what has no partner is said and left out.

    The time of a frame is counted from the first one of its video. start, every: the first left frame that is
    taken, and the step from one to the next. count: of pairs, at most; None: to the end. offset: this many
    frames later in the right video is what the left one shows; auto: measured, and logged.
    Raises UsageError: not one or two videos, PyAV is missing, nothing is left; InputError: a video that
    cannot be read, rates that differ, an offset that cannot be measured.
    """
    first, step = min(start, _BEYOND), min(every, _BEYOND)
    offset = offset if offset == "auto" else max(-_BEYOND, min(offset, _BEYOND))
    paths = [Path(text) for text in inputs]
    if len(paths) == 2 and paths[0].samefile(paths[1]):
        raise UsageError(
            f"both views would come from {quote(paths[0])}", "`packed` lr where it holds both views"
        )
    videos = [Video(path) for path in paths]
    for video in videos:
        if video.missing:
            LOG.warning(
                f"{quote(video.path)} ends {video.missing:.1f} s before its header says: is it cut off? "
                f"its {pluralize(len(video.stamps), 'frame')} are taken"
            )
    if len(videos) == 1:
        numbers = np.arange(len(videos[0].stamps))
        both = np.stack([numbers, numbers], axis=1)
    else:
        both = _same_times(videos[0], videos[1], offset, first)
    taken = both[(both[:, 0] >= first) & ((both[:, 0] - first) % step == 0)][:count]
    if not len(taken):
        last = int(both[-1, 0]) if len(both) else 0
        raise UsageError(
            f"no frame is left of {join_names(paths)}",
            f"`start` {start} lies behind the last one, {last}" if start > last else None,
        )
    return Pairing(FramePairs(paths[0], paths[1] if len(paths) > 1 else None, taken))


def _same_times(left: Video, right: Video, offset: int | Literal["auto"], start: int) -> NDArray[np.int64]:
    """(N, 2): numbers of the frames that were taken at the same time; start: as of `pair_frames`."""
    times = [left.times, right.times]
    steps = [_step(each) for each in times]
    step = max(steps)
    if min(steps) > 0 and step > (1 + LIKE_RATES) * min(steps):
        rates = [f"{1 / each:.4g}" for each in steps]
        raise InputError(
            f"{quote(left.path)} has {rates[0]} frames a second, {quote(right.path)} {rates[1]}",
            "record both at one rate",
        )
    if offset == "auto":
        found = find_offset(left, right, step, start=start)
        offset = found.frames
        LOG.info(
            f"offset {offset}: the motions in both videos agree to {found.agreement:.2f} there, elsewhere to "
            f"{found.next_best:.2f} at most"
        )
    shifted = times[1] - offset * step
    # Each left frame's nearest right one, where that one's nearest is this one again.
    nearest, back = _nearest(shifted, times[0]), _nearest(times[0], shifted)
    numbers = np.arange(len(times[0]))
    near = np.abs(shifted[nearest] - times[0]) <= max(ALIKE * step, 1e-9)
    paired = near & (back[nearest] == numbers)
    both = np.stack([numbers[paired], nearest[paired]], axis=1)
    alone = [np.setdiff1d(np.arange(len(each)), both[:, side]) for side, each in enumerate(times)]
    for video, lonely, other in ((left, alone[0], right), (right, alone[1], left)):
        if len(lonely):
            first = join_names([str(number) for number in lonely])
            LOG.warning(
                f"{pluralize(len(lonely), 'frame')} of {quote(video.path)} left out, at whose time "
                f"{quote(other.path)} has none: {first}"
            )
    if len(both) < FEW * min(len(each) for each in times):
        LOG.warning("most frames have no partner: did both videos begin at the same moment (`offset`)?")
    return both


def _step(times: NDArray[np.float64]) -> float:
    """Seconds from one frame to the next, where none was dropped; 0 for a single one.

    The mean, since some files keep time stamps in thousandths of a second.
    """
    steps = np.diff(times)
    return float(steps[steps < 1.5 * np.median(steps)].mean()) if len(steps) else 0.0


def _nearest(times: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.int64]:
    """(M,): for each wanted time the number of the nearest one in `times` (N,), which ascend."""
    after = np.clip(np.searchsorted(times, wanted), 1, max(len(times) - 1, 1))
    if len(times) == 1:
        return np.zeros(len(wanted), np.int64)
    earlier = wanted - times[after - 1] <= times[after] - wanted
    return np.where(earlier, after - 1, after)
