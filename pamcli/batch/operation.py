"""What is done with the pairs of a batch, step by step: the form that every command's work has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from pamcli.batch.job import Job
from pamcli.batch.video_results import StoredFrames
from pamcli.files.finding import STDIN_NAME
from pamcli.files.outputs import Encoded
from pamcli.files.pairing import STDIN, PairName, reading_stdin
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.preflight import check_pair
from pamcli.imaging.stereo_pair import StereoPair, halved, read_packed_pair, read_pair
from pamcli.imaging.videos import Videos

Result = TypeVar("Result")


def read_views(pair: PairName, layout: PackedLayout | None, max_pixels: int | None) -> StereoPair:
    """Read both views from two pictures, or from one that holds both in this layout. Raises InputError."""
    if layout is not None:
        return read_packed_pair(pair.left, layout, max_pixels=max_pixels, name=str(pair.left))
    assert pair.right is not None
    return read_pair(pair.left, pair.right, max_pixels=max_pixels)


class Bar(Protocol):
    """What draws how far a batch is."""

    def advance(self, *, skipped: bool = False) -> None:
        """Count one more. skipped: it took no time."""

    def within(self, rows: int) -> Callable[[float], None]:
        """What is told the share that is done of a pair of so many rows, while it is worked on."""


class Operation(ABC, Generic[Result]):
    """What is done with a pair."""

    whole_batch_first = False
    """Some results need the whole batch: they are encoded, and everything is reported, after it."""

    bar: Bar | None = None
    """What draws how far this process is."""

    videos: Mapping[str, Path] = MappingProxyType({})
    """The results that become videos, by their kinds."""

    same_for_all = False
    """The first pair decides what is done with all: it is looked at before others work on the rest."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """Facts of every pair: device, precision. The network is loaded for them."""
        return {}

    def read(self, job: Job, layout: PackedLayout | None, max_pixels: int | None) -> StereoPair:
        """What there is to work on. Raises InputError."""
        assert job.pair is not None
        if job.pair.frames is not None:
            return self._frames(job.pair, layout, max_pixels)
        if job.pair.left != STDIN:
            return read_views(job.pair, layout, max_pixels)
        assert layout is not None
        with reading_stdin() as stdin:
            picture = stdin.read()
        return read_packed_pair(picture, layout, max_pixels=max_pixels, name=STDIN_NAME)

    def _frames(self, pair: PairName, layout: PackedLayout | None, max_pixels: int | None) -> StereoPair:
        assert pair.frames is not None
        left = self._videos[pair.left].frame(pair.frames[0], max_pixels=max_pixels)
        if pair.right is None:
            return halved(left, layout or "lr", str(pair))
        right = self._videos[pair.right].frame(pair.frames[1], max_pixels=max_pixels)
        return StereoPair(left, right, str(pair))

    @cached_property
    def _videos(self) -> Videos:
        return Videos()

    def look(self, pair: StereoPair) -> Sequence[str]:
        """What looks wrong with it, a warning each."""
        return ()

    def check(self, name: str, place: Path, pair: StereoPair) -> None:
        """Raise PamError where a result cannot be encoded as asked, before the network runs."""

    def passed(self, job: Job) -> None:
        """See a job that is left out, since its results exist, in its turn."""

    @abstractmethod
    def apply(self, job: Job, pair: StereoPair) -> Result:
        """Run the network."""

    @abstractmethod
    def encode(self, name: str, place: Path, pair: StereoPair, result: Result) -> Encoded | None:
        """A result as the bytes of a file; None where it needs the whole batch."""

    def begin(self, job: Job, pair: StereoPair) -> None:
        """Take from the first pair what is the same for all. Raises InputError: from this pair it cannot."""

    def facts(self, result: Result) -> Mapping[str, Any]:
        """More facts of a pair."""
        return {}

    def remark(self, pair: StereoPair) -> str | None:
        """What a person should know of how a pair is worked on; said once for all pairs where it is so."""
        return None

    def note(self, facts: Mapping[str, Any]) -> None:
        """Count in what was found of a pair, wherever that was."""

    def encode_at_the_end(self, name: str, place: Path) -> Encoded | None:
        """A result that needed the whole batch; None for those that `encode` gave."""
        return None

    def for_video(self, name: str, frames: StoredFrames) -> Iterable[tuple[Fraction, np.ndarray]]:
        """Frames of a result as its video shows them, out of those that `encode` gave."""
        return frames

    def doubts(self, result: Result) -> Sequence[str]:
        """What a result says about its pair, where the look at the pair found nothing wrong."""
        return ()

    def end_batch(self) -> None:
        """What there is to do after the last pair of a batch, whatever became of the pairs."""

    def close(self) -> None:
        """Let go of what was kept for the batch."""


class NetworkOperation(Operation[Result]):
    """What is done with pairs that are rectified, and a network."""

    min_disparity: int | None = None
    """Where the search begins, pixels; None: none searches."""

    def __init__(self, load: Callable[[], tuple[Any, Path]]) -> None:
        """load: finds the network and its file, where it is used; other machines are given it, too."""
        self.load = load

    @cached_property
    def network(self) -> Any:
        """A `StereoMatcher` or `StereoUpscaler`, loaded when it is first asked for."""
        return self.load()[0]

    @property
    def constants(self) -> Mapping[str, Any]:
        return dict(self.network.compute.describe())

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes to other machines: each loads the network itself, and none has the bar."""
        return {name: value for name, value in self.__dict__.items() if name not in ("network", "bar")}

    def watched(self, pair: StereoPair) -> Callable[[float], None] | None:
        """What is told the share of the work on a pair that is done; None: nobody watches."""
        return None if self.bar is None else self.bar.within(pair.height)

    def remark(self, pair: StereoPair) -> str | None:
        said: str | None = self.network.departure(pair.height, pair.width)
        return said

    def look(self, pair: StereoPair) -> list[str]:
        return check_pair(pair.left.pixels, pair.right.pixels).warnings(self.min_disparity)
