"""Pair the newest frames of two sources by their time stamps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

WINDOW = 10.0  # s, in which the fastest arrival aligns a stream's clock to this computer's
JUMP = 10.0  # s by which time stamps may lead before they count as those of a restarted stream
HELD, HELD_BYTES, FEWEST_HELD = 16, 64_000_000, 3  # frames of each source that wait for their partners
UNKNOWN_INTERVAL = 0.04  # s between frames, before it is measured
CLOSE = 0.002  # s, the smallest tolerance


@dataclass(frozen=True)
class Frame:
    """A frame of a source."""

    read: Callable[[], np.ndarray | None]
    """Converts the image to (H, W, 3), RGB, uint8 or uint16, only if it is used; None if it is damaged."""
    memory: int  # bytes that it needs until then
    number: int  # frames of this source before it
    stamp: float  # s, for pairing
    captured: float  # s of time.monotonic(), at which it was captured, or arrived without delay


class Clock:
    """Converts the time stamps of a stream to this computer's clock: the fastest arrival had no delay.

    Cameras of one clock share an object.
    """

    def __init__(self) -> None:
        self._delays: deque[tuple[float, float]] = deque()
        """Arrivals with their difference to the time stamp, both ascending: candidates for the minimum."""
        self._last: float | None = None
        self._lock = threading.Lock()

    def convert(self, stamp: float | None, arrived: float) -> float:
        """Return the time (s, monotonic) of a frame with this time stamp, or its arrival without one."""
        if stamp is None:
            return arrived
        with self._lock:
            if self._last is not None and not self._last - 1 <= stamp <= self._last + JUMP:
                self._delays.clear()  # the stream was restarted
            self._last, delay = stamp, arrived - stamp
            while self._delays and self._delays[-1][1] >= delay:
                self._delays.pop()
            self._delays.append((arrived, delay))
            while self._delays[0][0] < arrived - WINDOW:
                self._delays.popleft()
            return min(arrived, stamp + self._delays[0][1])


class FramePairing:
    """The newest frames of one or two sources. Reader threads add frames, one consumer takes pairs."""

    def __init__(self, sides: int, tolerance: float | None = None, *, keeps_all: bool = False) -> None:
        """tolerance: s, None for half a frame interval. keeps_all: readers wait, no frame is dropped."""
        self.stated_tolerance, self.keeps_all = tolerance, keeps_all
        self.queues: tuple[deque[Frame], ...] = tuple(deque() for _ in range(sides))
        self.received = [0] * sides
        self.dropped = 0
        """Frames of the left source that were not used."""
        self._gaps: deque[float] = deque(maxlen=50)
        self._latest: float | None = None
        self._ended, self._closed = [False] * sides, False
        self._changed = threading.Condition()

    @property
    def interval(self) -> float:
        """Median time between two frames of the left source, s."""
        gaps = sorted(self._gaps)
        return gaps[len(gaps) // 2] if gaps else UNKNOWN_INTERVAL

    @property
    def tolerance(self) -> float:
        """Largest difference of paired time stamps, s."""
        return max(CLOSE, 0.5 * self.interval) if self.stated_tolerance is None else self.stated_tolerance

    def add(self, side: int, frame: Frame) -> None:
        """Add a frame of the left (0) or right (1) source."""
        most = max(FEWEST_HELD, min(HELD, HELD_BYTES // frame.memory))
        queue = self.queues[side]
        with self._changed:
            if self.keeps_all:
                self._changed.wait_for(lambda: len(queue) < most or self._closed)
            if side == 0:
                if self._latest is not None and 0 < frame.stamp - self._latest < 1:
                    self._gaps.append(frame.stamp - self._latest)
                self._latest = frame.stamp
            queue.append(frame)
            self.received[side] += 1
            while len(queue) > most and not self.keeps_all:
                self._discard(side)
            self._changed.notify_all()

    def end(self, side: int) -> None:
        """Note that a source delivers no further frame."""
        with self._changed:
            self._ended[side] = True
            self._changed.notify_all()

    def close(self) -> None:
        """Wake all threads that wait; readers add nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, timeout: float) -> tuple[Frame, ...] | None:
        """Return the next pair, or None after `timeout` seconds without one. Raises EOFError at the end."""
        pair: tuple[Frame, ...] | None = None

        def is_ready() -> bool:
            nonlocal pair
            pair = self._next() if self.keeps_all else self._newest()
            return pair is not None or self._closed or any(self._are_over())

        with self._changed:
            self._changed.wait_for(is_ready, timeout)
            if pair is None and (self._closed or any(self._are_over())):
                raise EOFError
            self._changed.notify_all()
            return pair

    def _are_over(self) -> list[bool]:
        return [ended and not queue for ended, queue in zip(self._ended, self.queues, strict=True)]

    def _discard(self, side: int) -> None:
        self.queues[side].popleft()
        self.dropped += side == 0

    def _newest(self) -> tuple[Frame, ...] | None:
        """Take the newest pair, and discard all frames before it."""
        for left in reversed(self.queues[0]):
            pair = [left]
            if len(self.queues) > 1:
                nearest = min(self.queues[1], key=lambda each: abs(each.stamp - left.stamp), default=None)
                if nearest is None or abs(nearest.stamp - left.stamp) > self.tolerance:
                    continue
                pair.append(nearest)
            for side, frame in enumerate(pair):
                while self.queues[side][0] is not frame:
                    self._discard(side)
                self.queues[side].popleft()
            return tuple(pair)
        if all(self._ended):
            for queue in self.queues:
                queue.clear()
        return None

    def _next(self) -> tuple[Frame, ...] | None:
        """Take the oldest pair, and discard frames without a partner before it."""
        while all(self.queues):
            heads = [queue[0] for queue in self.queues]
            if abs(heads[0].stamp - heads[-1].stamp) <= self.tolerance:
                return tuple(queue.popleft() for queue in self.queues)
            self._discard(0 if heads[0].stamp < heads[1].stamp else 1)
            self._changed.notify_all()
        return None
