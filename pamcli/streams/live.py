"""Match the newest images of two cameras, streams or videos, again and again."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pamcli.batch.camera_files import finish_calibration, load_rectified_calibration, read_description
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.rig import Rectification, Rig
from pamcli.imaging.images import RgbImage
from pamcli.imaging.packed_views import split_packed
from pamcli.imaging.temporal_fusion import PreviousFrame, fuse_frames
from pamcli.inference.loading import load_matcher
from pamcli.settings.live import LiveSettings
from pamcli.settings.options import takes
from pamcli.streams.pairing import Frame
from pamcli.streams.sources import Capture
from pamcli.streams.statistics import LiveStatistics

LOG = logging.getLogger("pamcli")
POLL = 0.5  # s, the longest wait for a pair or a result
WARMING, MEASURED = 2, 6  # pairs for which `fps` tries a matching resolution: ignored ones, and all
BUSY = 0.9  # share of the time between two results that matching may take with `fps`
NARROWEST = 128  # smallest width at which `fps` matches, px
GAP = 1.0  # s between frames from which `steady` begins anew


@dataclass(frozen=True)
class LiveFrame:
    """A result of `pamcli.live` with the images it belongs to; arrays are not reused."""

    number: int  # results before it
    left: np.ndarray  # (H, W, 3) RGB, uint8 or uint16, rectified
    right: np.ndarray
    disparity: np.ndarray  # (H, W) float32, px, NaN = unknown
    confidence: np.ndarray | None  # (H, W), in [0, 1], if requested
    calibration: Calibration | None  # of the rectified images, at their size
    time: float  # s since 1970, when the left image was captured
    captured: float  # the same moment, s of time.monotonic()
    skew: float  # s by which the right image was captured later
    latency: float  # s from capture to result
    sources: tuple[int, ...]  # numbers of the frames in each source
    statistics: dict[str, Any]  # speed, latency, skew and losses so far

    @property
    def depth(self) -> np.ndarray | None:
        """(H, W) float32, metres, NaN = unknown; None without a calibrated baseline."""
        if self.calibration is None or not self.calibration.baseline:
            return None
        return self.calibration.depth(self.disparity)

    @property
    def age(self) -> float:
        """Seconds since the left image was captured."""
        return time.monotonic() - self.captured


class LivePair(NamedTuple):
    """Two images of a moment, and their calibration if they are rectified."""

    left: np.ndarray
    right: np.ndarray
    calibration: Calibration | None
    number: int  # of the left frame


class PairReader:
    """Converts frames to rectified pairs."""

    def __init__(self, settings: LiveSettings) -> None:
        """Read the calibration. Raises InputError, UsageError."""
        self.settings = settings
        self.rig: Rig | None = None
        self.calibration: Calibration | None = None
        if settings.calibration_files:
            how = {"fisheye": settings.fisheye, "extrinsics": settings.extrinsics}
            stored = finish_calibration(
                settings.calibration_files,
                *read_description(settings, **how),  # type: ignore[arg-type]
            )
            self.rig = stored.rig
        if self.rig is None and (settings.calibration or settings.focal):
            self.calibration = load_rectified_calibration(settings)
        self._rectified: dict[tuple[Any, ...], Rectification] = {}
        """The maps for the present size, computed once."""
        self._is_mismatch_reported = False

    def read(self, frames: tuple[Frame, ...]) -> tuple[np.ndarray, np.ndarray, Calibration | None] | None:
        """Return both images and their calibration; None if one is damaged, or while they differ in size.

        Raises InputError if the calibration is of another aspect ratio.
        """
        views = [view for frame in frames if (view := frame.read()) is not None]
        if len(views) < len(frames):
            return None
        if self.settings.packed is not None:
            pair = split_packed(RgbImage(views[0]), self.settings.packed, "the image")
            views = [pair.left.pixels, pair.right.pixels]
        left, right = views
        sizes = (left.shape[1], left.shape[0]), (right.shape[1], right.shape[0])
        if self.rig is not None:
            if sizes not in self._rectified:
                found = self.rig.for_size(sizes[0][0], sizes[0][1], sizes[1]).compute_rectification()
                self._rectified = {sizes: found}
            maps = self._rectified[sizes]
            return maps.left(left), maps.right(right), maps.calibration
        if sizes[0] != sizes[1]:
            if not self._is_mismatch_reported:
                names = " and ".join("{}x{} px".format(*size) for size in sizes)
                LOG.warning(f"images of {names} cannot be matched: waiting for equal sizes")
            self._is_mismatch_reported = True
            return None
        self._is_mismatch_reported = False
        return left, right, self.calibration and self.calibration.for_size(*sizes[0])


def iterate_pairs(settings: LiveSettings) -> Iterator[LivePair]:
    """Yield the newest pair again and again, without matching. Raises InputError, UsageError."""
    reader = PairReader(settings)
    with Capture(settings) as capture:
        while True:
            try:
                frames = capture.take(POLL)
            except EOFError:
                return
            if frames is not None and (found := reader.read(frames)) is not None:
                yield LivePair(*found, frames[0].number)


class _LiveMatcher:
    """Computes the result of a pair."""

    def __init__(self, settings: LiveSettings, reader: PairReader) -> None:
        self.settings, self.reader = settings, reader
        self.network = load_matcher(settings)[0]
        needs_confidence = not settings.no_page or settings.min_confidence is not None
        self.extras = ["confidence"] if needs_confidence else []
        self.previous: tuple[PreviousFrame, float] | None = None
        self.speed = _SpeedControl(settings.fps) if settings.fps else None
        self.statistics = LiveStatistics()

    def step(self, capture: Capture) -> LiveFrame | None:
        """Return the result of the next pair; None if none arrives, or it cannot be matched.

        Raises EOFError, PamError.
        """
        frames = capture.take(POLL)
        found = None if frames is None else self.reader.read(frames)
        if frames is None or found is None:
            return None
        left, right, calibration = found
        began, captured = time.monotonic(), frames[0].captured
        result = self.network(left, right, extras=self.extras)
        if self.speed is not None:
            self.speed.note(
                time.monotonic() - began, result.matched_size or result.disparity.shape, self.network
            )
        if self.settings.steady and self.previous is not None and captured - self.previous[1] < GAP:
            fused = fuse_frames(result.disparity, left, right, self.previous[0])
            result = replace(result, disparity=np.maximum(fused, np.float32(self.settings.min_disparity)))
        disparity = result.disparity_where(min_confidence=self.settings.min_confidence)
        if self.settings.steady:
            self.previous = PreviousFrame(left, right, disparity), captured
        now = time.monotonic()
        skew = frames[-1].stamp - frames[0].stamp
        self.statistics.add(now - captured, skew)
        return LiveFrame(
            self.statistics.results - 1,
            *(left, right, disparity, result.confidence, calibration),
            *(time.time() - (now - captured), captured, skew, now - captured),
            tuple(frame.number for frame in frames),
            self.statistics.record(capture),
        )


class _SpeedControl:
    """Chooses the matching resolution that holds a number of results per second, then keeps it."""

    def __init__(self, rate: float) -> None:
        self.rate, self.is_settled = rate, False
        self.seconds: list[float] = []

    def note(self, seconds: float, size: tuple[int, ...], network: Any) -> None:
        """Note the time of a pair at a matching resolution (rows, columns), which becomes smaller if slow."""
        self.seconds.append(seconds)
        if self.is_settled or len(self.seconds) < MEASURED:
            return
        typical = statistics.median(self.seconds[WARMING:])
        share, width = typical * self.rate / BUSY, size[1]
        narrower = max(NARROWEST, int(width / max(share, 1.0) ** 0.5) // 16 * 16)
        self.is_settled, self.seconds = share <= 1 or narrower >= width, []
        if not self.is_settled:
            network.match_size = float(narrower)
            return
        found = f"matched at {width}x{size[0]} px: {1000 * typical:.0f} ms per pair"
        if share <= 1:
            LOG.info(f"{found} holds {self.rate:g} results per second")
        else:
            LOG.warning(f"{found} does not hold {self.rate:g} results per second")


@takes(LiveSettings)
def live(settings: LiveSettings) -> Iterator[LiveFrame]:
    """Match what two cameras, network streams or videos show, as `pam live` does.

    >>> for frame in pamcli.live("left.mp4", "right.mp4", realtime=True, count=2):
    ...     print(frame.time, frame.latency, frame.disparity.shape)

    Each result is that of the newest images: older ones are dropped. Of videos without `realtime`, all are
    processed. Capture and matching go on in threads while the loop works on a result; they end with the loop.

    Args:
        settings: A left and a right source, or one with `packed`; then a `LiveSettings`, or its fields as
            keywords. Those for files, the page and the console have no effect here.

    Returns:
        An iterator of `LiveFrame`; its `close()` ends the threads at once.

    Raises:
        UsageError, InputError: At once for wrong settings; during the iteration if a source cannot be opened.
            An interrupted stream is opened again.
        ModelError, DeviceError: During the iteration.
    """
    return _iterate(settings, PairReader(settings), Capture(settings))


def _iterate(settings: LiveSettings, reader: PairReader, capture: Capture) -> Iterator[LiveFrame]:
    """Yield the results, each while the next one is computed in a thread that ends with this generator."""
    matcher, count = _LiveMatcher(settings, reader), 0
    with capture, ThreadPoolExecutor(1, "match") as thread:
        waiting = thread.submit(matcher.step, capture)
        while count < (settings.count or math.inf):
            try:
                # Not longer: Python must handle a signal that arrived just before.
                result = waiting.result(POLL)
            except FutureTimeout:
                continue
            except EOFError:
                return
            waiting = thread.submit(matcher.step, capture)
            if result is not None:
                count += 1
                yield result
