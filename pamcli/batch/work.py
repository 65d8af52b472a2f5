"""How is a pair processed? `Work` reads, computes and writes it; `run_overlapped` overlaps this for many."""

from __future__ import annotations

import itertools
import queue
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from pamcli.batch.jobs import Job, Result
from pamcli.errors import DeviceError, InputError, PamError, convert_system_error
from pamcli.files.atomic import check_writable, require_folder, write_atomically
from pamcli.files.outputs import Encoded
from pamcli.files.pairing import STDIN, PairPaths, open_stdin
from pamcli.files.paths import STDIN_NAME
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.preflight import check_pair
from pamcli.imaging.stereo_pair import ALL_LEVELS, StereoPair, read_packed_pair, read_pair, split_packed
from pamcli.imaging.vr180 import FIELD_OF_VIEW
from pamcli.inference import PAIRS_AT_ONCE

Found = tuple[Any, Mapping[str, Any], Sequence[str]]
"""What `Work.apply` found of a pair, facts about it, and what it says about the pair."""


class Bar(Protocol):
    """What draws how far a batch is."""

    def advance(self, *, skipped: bool = False) -> None:
        """Count one more. skipped: it took no time."""

    def within(self, rows: int) -> Callable[[float], None]:
        """What is told the share that is done of a pair of so many rows, while it is worked on."""


def read_views(pair: PairPaths, layout: PackedLayout | None, max_pixels: int | None) -> StereoPair:
    """Read both views from two images, or from one that holds both in this layout. Raises InputError."""
    if layout is not None:
        return read_packed_pair(pair.left, layout, max_pixels=max_pixels, name=str(pair.left))
    assert pair.right is not None
    return read_pair(pair.left, pair.right, max_pixels=max_pixels)


class Work:
    """What a command does with the pairs of a batch. Other processes get a copy and load the network anew."""

    packed: PackedLayout | None = None
    """Layout of images that hold both views."""
    videos: Mapping[str, Path] = MappingProxyType({})
    """The results that become videos, by their kinds."""
    bar: Bar | None = None
    """What draws how far this process is."""
    max_memory: int | None = None
    """Bytes for the network, where they are not those of the settings."""
    whole_batch_first = False
    """Some results need the whole batch: they are encoded, and everything is reported, after it."""
    same_for_all = False
    """The first pair decides what is done with all: it is looked at before others work on the rest."""
    cores: int | None = None
    """Cores of each worker of a cluster, where no number is asked for."""
    gpus = False
    """Whether workers of a cluster may have GPUs."""
    recording: Any = None
    """The `Recording` that pairs come from; None: files."""

    @property
    def rectifies(self) -> bool:
        """Whether images of a recording are rectified by its `camera_info`, unless they are already."""
        return not (getattr(self.settings, "calibration", None) or getattr(self.settings, "focal", None))

    stretches = False
    """Whether 16-bit images of low contrast are stretched first."""
    _stretched = False
    """Whether it was said that images are stretched."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.folders: set[Path] = set()
        """Folders that hold results of this run: none may go before its end."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes to other processes: each loads the network itself, and none has the bar."""
        return {name: value for name, value in self.__dict__.items() if name not in ("network", "bar")}

    def load_network(self) -> Any:
        """Load a `StereoMatcher` or `StereoUpscaler`; None where none is needed. Raises PamError."""

    @cached_property
    def network(self) -> Any:
        """The network, loaded when it is first asked for."""
        return self.load_network()

    def start(self) -> Mapping[str, Any]:
        """Load the network, which else the first pair would do; return the facts that hold for all pairs."""
        return {} if self.network is None else self.network.compute.describe()

    # --- the steps; each may run in a thread of its own -------------------------------------------------

    def load(self, job: Job) -> tuple[StereoPair, Sequence[str]] | None:
        """Read a pair, and what looks wrong with it; None: its results are there. Raises PamError."""
        if job.error is not None:
            raise job.error
        if job.done:
            self.skip(job)
            for name, path in job.files.items():
                self.folders.add((path if path.exists() else job.videos.get(name, path)).parent)
            return None
        for path in job.files.values():
            check_writable(path)
        pair = self.read(job)
        if self.stretches:
            pair = pair.stretch_contrast()
        for name, place in job.places.items():
            self.check(name, place, pair)
        return pair, self.look(pair)

    def compute(self, job: Job, loaded: tuple[StereoPair, Sequence[str]] | None) -> Any:
        """Process a pair. Raises PamError."""
        if loaded is None:
            return None
        (pair, warnings), start = loaded, time.perf_counter()
        found, facts, doubts = self.apply(job, pair)
        seconds = round(time.perf_counter() - start, 3)
        facts = {"width": pair.width, "height": pair.height, "seconds": seconds, **self.start(), **facts}
        return pair, found, Result(job, warnings=warnings or doubts, facts=facts, remark=self.remark(pair))

    def save(self, job: Job, computed: Any) -> Result:
        """Write the results of a pair. Raises PamError."""
        if computed is None:
            return Result(job)
        pair, found, outcome = computed
        return self.write(outcome, partial(self.encode, pair=pair, found=found))

    def finish(self, outcome: Result) -> Result:
        """Write what needed the whole batch."""
        if outcome.error is not None or outcome.job.done:
            return outcome
        try:
            return self.write(outcome, self.encode_at_the_end)
        except PamError as error:
            return Result(outcome.job, error, facts=outcome.facts)

    def write(self, outcome: Result, encode: Callable[[str, Path], Encoded | None]) -> Result:
        """Write what `encode` makes of each result. Raises PamError."""
        warnings, data = [*outcome.warnings], outcome.data
        for name, place in outcome.job.places.items():
            encoded = encode(name, place)
            if encoded is None:
                continue
            warnings += encoded.warnings
            if name in outcome.job.returned:
                data = encoded.data
                continue
            if place.parent in self.folders:
                require_folder(place.parent)
            write_atomically(place, encoded.data)
            self.folders.add(place.parent)
        return replace(outcome, warnings=warnings, data=data)

    # --- what commands do differently -------------------------------------------------------------------

    def read(self, job: Job) -> StereoPair:
        """Read what there is to work on. Raises InputError."""
        pair, asked = self._read(job), getattr(self.settings, "vr180", None)
        return pair if pair.span is None and asked is None else pair.make_rectilinear(asked or FIELD_OF_VIEW)

    def _read(self, job: Job) -> StereoPair:
        pair, max_pixels = job.pair, self.settings.max_pixels
        assert pair is not None
        if pair.frames is not None:
            return self.read_frames(pair)
        if pair.left != STDIN:
            if self.packed is None and pair.right is not None:
                return read_pair(pair.left, pair.right, max_pixels=max_pixels)
            return read_views(pair, self.packed, max_pixels)
        assert self.packed is not None
        with open_stdin() as stdin:
            picture = stdin.read()
        return read_packed_pair(picture, self.packed, max_pixels=max_pixels, name=STDIN_NAME)

    def read_frames(self, pair: PairPaths) -> StereoPair:
        """Read a pair of frames. Raises InputError."""
        assert pair.frames is not None
        max_pixels = self.settings.max_pixels
        if self.recording is not None:
            recorded: StereoPair = self.recording.read(
                pair.frames, max_pixels=max_pixels, rectify=self.rectifies
            )
            return recorded
        left = self._videos[pair.left].frame(pair.frames[0], max_pixels=max_pixels)
        if pair.right is None:
            return split_packed(left, self.packed or "lr", str(pair))
        right = self._videos[pair.right].frame(pair.frames[1], max_pixels=max_pixels)
        return StereoPair(left, right, str(pair))

    @cached_property
    def _videos(self) -> Any:
        from pamcli.imaging.videos import Videos

        return Videos()

    @property
    def vertical(self) -> bool:
        """The cameras are one above the other: the network sees both views turned by 90 degrees."""
        return bool(getattr(self.settings, "vertical", False))

    def views(self, pair: StereoPair) -> tuple[np.ndarray, np.ndarray]:
        """Return both views as the network sees them: that of the upper camera as the left one."""
        left, right = pair.left.pixels, pair.right.pixels
        return (_turned(left, 1), _turned(right, 1)) if self.vertical else (left, right)

    def turned_back(self, found: np.ndarray) -> np.ndarray:
        """Return what was found of one of the `views` as the image is given."""
        return _turned(found, -1) if self.vertical else found

    def look(self, pair: StereoPair) -> Sequence[str]:
        """List what looks wrong with a pair that should be rectified. Raises InputError: not to be used."""
        check = check_pair(*self.views(pair))
        if check.upright:
            problem = check.problems()[0]
            do = "leave out `vertical`" if self.vertical else problem.do
            raise InputError(f"{pair.title}: {problem.text}", do)
        turned = "turned by 90 degrees, " if self.vertical else ""
        return [*map(turned.__add__, check.warnings(getattr(self.settings, "min_disparity", None)))]

    def remark(self, pair: StereoPair) -> str | None:
        """Return what a person should know of how a pair is worked on; said once for all where it is so."""
        if self.network is None:
            return None
        size = (pair.width, pair.height) if self.vertical else (pair.height, pair.width)
        said = list(filter(None, [self.network.adaptation_note(*size)]))
        if pair.levels != ALL_LEVELS and not self._stretched:
            self._stretched = True
            levels = "levels {} to {} become 0 to 65535".format(*pair.levels)
            said.append(f"16-bit images of low contrast are stretched: {levels}")
        return "; ".join(said) or None

    def check(self, name: str, place: Path, pair: StereoPair) -> None:
        """Raise PamError where a result cannot be encoded as asked, before the network runs."""

    def skip(self, job: Job) -> None:
        """See a job that is left out, since its results exist, in its turn."""

    def apply(self, job: Job, pair: StereoPair) -> Found:
        """Run the network."""
        raise NotImplementedError

    def encode(self, name: str, place: Path, pair: StereoPair, found: Any) -> Encoded | None:
        """Return a result as the bytes of a file; None where it needs the whole batch."""
        raise NotImplementedError

    def decide(self, job: Job, pair: StereoPair) -> None:
        """Take from the first pair what is the same for all. Raises InputError: from this pair it cannot."""

    def note(self, facts: Mapping[str, Any]) -> None:
        """Count in what was found of a pair, wherever that was."""

    def encode_at_the_end(self, name: str, place: Path) -> Encoded | None:
        """Return a result that needed the whole batch; None for those that `encode` gave."""
        return None

    def for_video(self, name: str, frames: Any) -> Iterable[tuple[Fraction, np.ndarray]]:
        """Return frames of a result as its video shows them, out of the `StoredFrames` that `encode` gave."""
        found: Iterable[tuple[Fraction, np.ndarray]] = frames
        return found

    def end_batch(self) -> None:
        """Do what there is to do after the last pair of a batch, whatever became of the pairs."""

    def close(self) -> None:
        """Let go of what was kept for the batch."""


def _turned(pixels: np.ndarray, quarters: int) -> np.ndarray:
    return np.ascontiguousarray(np.rot90(pixels, quarters))


def begun(work: Work, jobs: Iterator[Job]) -> Iterator[Job]:
    """Let the first readable pair decide what is the same for all, then yield all jobs as they came."""
    taken: list[Job] = []
    for job in jobs if work.same_for_all else ():
        taken.append(job)
        try:
            loaded = work.load(job)
        except PamError:
            continue
        if loaded is not None:
            with suppress(InputError, DeviceError):  # it fails alone, when it is its turn
                work.decide(job, loaded[0])
                break
    return itertools.chain(taken, jobs)


def run_overlapped(jobs: Iterable[Job], work: Any) -> Generator[tuple[Job, Result | PamError], None, None]:
    """Run the steps of `Work` for every job; yield each, in their order, with its result or error.

    `load` runs in one thread, which also iterates `jobs` (a slow producer holds up nobody), `compute` in the
    caller's, `save` in a third; `PAIRS_AT_ONCE` pairs are in memory. A step that raises ends its job only.
    What `jobs` itself raises is raised once the jobs before it are done. When the caller stops early or is
    interrupted, what is being saved is saved whole, and nothing after it.
    """
    # (urgency, order, event, job, value): what is saved is reported before the next pair is computed.
    events: queue.PriorityQueue[tuple[int, int, str, Any, Any]] = queue.PriorityQueue()
    order = itertools.count()
    computed: queue.SimpleQueue[tuple[Any, Any] | None] = queue.SimpleQueue()
    room = threading.Semaphore(PAIRS_AT_ONCE)
    stopped = threading.Event()
    loading_one = threading.Lock()

    def load_all() -> None:
        failure = None
        try:
            for job in jobs:
                room.acquire()
                with loading_one:
                    if stopped.is_set():
                        return
                    loaded = attempt(work.load, job)
                events.put((1, next(order), "loaded", job, loaded))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            failure = error
        events.put((1, next(order), "all loaded", None, failure))

    def save_all() -> None:
        for job, value in iter(computed.get, None):
            if stopped.is_set():
                return
            events.put((0, next(order), "saved", job, attempt(work.save, job, value)))
            room.release()

    # Daemons: a producer that never ends, or a pipe that nobody reads, must not outlive the program.
    threading.Thread(target=load_all, name="load", daemon=True).start()
    saver = threading.Thread(target=save_all, name="save", daemon=True)
    saver.start()
    failure, loading, unsaved = None, True, 0
    try:
        while loading or unsaved:
            try:
                _, _, event, job, value = events.get(timeout=1)
            except queue.Empty:  # time to see a signal that came in the moment before the waiting began
                continue
            if event == "loaded":
                computed.put((job, attempt(work.compute, job, value)))
                unsaved += 1
            elif event == "saved":
                unsaved -= 1
                yield job, value
            else:
                loading, failure = False, value
    finally:
        stopped.set()
        room.release()
        computed.put(None)
        saver.join()
        # The interpreter aborts where it ends while a thread is inside a C++ library, so let a picture be
        # decoded; but one that is waited for (on stdin) may never come.
        loading_one.acquire(timeout=1)
    if failure is not None:
        raise failure


def run_one(work: Any, job: Job) -> Result | PamError:
    """Run all steps of a job: its result, or what went wrong."""
    found: Result | PamError = attempt(work.save, job, attempt(work.compute, job, attempt(work.load, job)))
    return found


def attempt(step: Callable[..., Any], *arguments: Any) -> Any:
    """Return a step's result, or its error; an error that comes in as an argument goes straight on."""
    if arguments and isinstance(arguments[-1], PamError):
        return arguments[-1]
    try:
        return step(*arguments)
    except PamError as error:
        part: BaseException | None = error
        while part is not None:  # its frames would keep the pair and what was computed of it
            # They are not cleared: an error that came with its job names that of the jobs' generator.
            part.__traceback__ = None
            part = part.__cause__ or part.__context__
        return error
    except MemoryError:
        return DeviceError("not enough memory for this pair", "reduce the pictures")
    except Exception as error:  # noqa: BLE001 - a batch goes on past any bad pair
        said = f"unexpected {type(error).__name__}: {error}"
        unexpected = convert_system_error(error) or PamError(said, "PAM_TRACEBACK=1 shows where")
        unexpected.__cause__ = error
        traceback.clear_frames(error.__traceback__)  # they would keep the pair
        return unexpected
