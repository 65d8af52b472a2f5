"""Read, compute and write a pair with a `PairProcessor`."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pamcli.batch.plan import Job, Plan, Result
from pamcli.errors import DeviceError, InputError, PamError, convert_system_error
from pamcli.files.atomic import check_writable, require_folder, write_atomically
from pamcli.files.outputs import Encoded
from pamcli.files.pairing import STDIN, PairPaths, open_stdin
from pamcli.files.paths import STDIN_NAME
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.images import ALL_LEVELS, StereoPair, read_pair
from pamcli.imaging.packed_views import make_rectilinear, read_packed_pair, split_packed
from pamcli.imaging.preflight import check_pair
from pamcli.settings.batches import BatchSettings, MatchSettings, UpscaleSettings
from pamcli.settings.shared import Engine

Results = Generator[Result, None, None]
Answers = Generator[tuple[Job, Result | PamError], None, None]


class Computed(NamedTuple):
    """The results of a pair, before they are encoded."""

    encode: Callable[[str, Path], Encoded | None]
    """Encodes a kind of result for a file with the suffix of a path; None: `finish` writes it."""
    facts: Mapping[str, Any] = {}
    warnings: Sequence[str] = ()
    remarks: Sequence[str] = ()  # notes on the processing of a pair; each is reported once per batch


class PairReader:
    """Reads both views of pairs."""

    max_pixels: int | None = None
    packed: PackedLayout | None = None  # layout of images that hold both views
    recording: Any = None  # the `Recording` that holds the pairs; None for files
    rectifies_recording = True  # True if images of a recording are rectified with its `camera_info`
    same_size = True  # False if a calibration permits views of two sizes

    @cached_property
    def input_videos(self) -> Any:
        """The input videos by their paths."""
        from pamcli.imaging.videos import Videos

        return Videos()

    def read_views(self, pair: PairPaths) -> StereoPair:
        """Read both views of a pair. Raises InputError."""
        limit, packed = self.max_pixels, self.packed
        if pair.frames is not None and self.recording is not None:
            rectify = self.rectifies_recording
            recorded: StereoPair = self.recording.read(pair.frames, max_pixels=limit, rectify=rectify)
            return recorded
        if pair.frames is not None:
            left = self.input_videos[pair.left].frame(pair.frames[0], max_pixels=limit)
            if pair.right is None:
                return split_packed(left, packed or "lr", str(pair))
            right = self.input_videos[pair.right].frame(pair.frames[1], max_pixels=limit)
            return StereoPair(left, right, str(pair))
        if packed is None:
            assert pair.right is not None
            return read_pair(pair.left, pair.right, max_pixels=limit, same_size=self.same_size)
        if pair.left != STDIN:
            return read_packed_pair(pair.left, packed, max_pixels=limit, name=str(pair.left))
        with open_stdin() as stdin:
            return read_packed_pair(stdin.read(), packed, max_pixels=limit, name=STDIN_NAME)


class PairProcessor(PairReader):
    """The steps of a command for each pair; other processes get a copy without the network."""

    settings: BatchSettings
    network: Any = None  # a `StereoMatcher` or `StereoUpscaler`; None if not needed
    facts: Mapping[str, Any] = {}  # device and precision of the network, once it is loaded in this process
    bar: Any = None  # a `Progress` of this process, or None
    sequential: str | None = None
    """The option that requires all pairs to be processed by one process in their order, if any."""
    resume_hint: str | None = None  # hint for an interrupted batch that cannot be resumed
    cores: int | None = None  # default number of cores of a Ray worker
    made: Sequence[Path] = ()  # files that describe the whole batch, after the last pair
    skipped: Job | None = None  # the last job that was skipped because its results exist

    def __init__(self, settings: BatchSettings, plan: Plan) -> None:
        self.settings, self.many, self.videos = settings, plan.many, plan.videos
        self.max_pixels, self.packed, self.recording = settings.max_pixels, plan.packed, plan.recording
        self.uses_gpu = isinstance(settings, Engine) and settings.device != "cpu"
        self.folders: set[Path] = set()
        """Folders that hold results of this run; they must exist until its end."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which loads the network itself."""
        own = ("network", "camera_network", "facts", "bar")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def start(self) -> Mapping[str, Any]:
        """Load the network; return the facts that hold for all pairs. Raises PamError."""
        if self.network is not None:
            self.facts = self.network.compute.describe()
        return self.facts

    # --- the steps, which may run in different threads --------------------------------------------------

    def load(self, job: Job) -> tuple[Any, Sequence[str]] | None:
        """Read a pair and check it; return None if its results exist. Raises PamError."""
        if job.error is not None:
            raise job.error
        if job.done:
            self.skipped = job
            for name, path in job.files.items():
                self.folders.add((path if path.exists() else job.videos.get(name, path)).parent)
            return None
        for path in job.files.values():
            check_writable(path)
        return self.read(job)

    def compute(self, job: Job, loaded: tuple[Any, Sequence[str]] | None) -> Computed | None:
        """Process a pair. Raises PamError."""
        if loaded is None:
            return None
        (pair, warnings), start = loaded, time.perf_counter()
        computed = self.apply(job, pair)
        seconds = round(time.perf_counter() - start, 3)
        facts = {"width": pair.width, "height": pair.height, "seconds": seconds, **self.start()}
        return computed._replace(facts={**facts, **computed.facts}, warnings=warnings or computed.warnings)

    def save(self, job: Job, computed: Computed | None) -> Result:
        """Write the results of a pair. Raises PamError."""
        if computed is None:
            return Result(job)
        warnings, video_warnings, data = [*computed.warnings], list[str](), None
        for kind, path in job.places.items():
            if (encoded := computed.encode(kind, path)) is None:
                continue
            if kind in self.videos:
                video_warnings += [f"{self.videos[kind]}: {text}" for text in encoded.warnings]
            else:
                warnings += encoded.warnings
            if kind in job.files:
                self.write(job, path, encoded.data)
            else:
                data = encoded.data
        return Result(job, None, warnings, computed.facts, computed.remarks, data, video_warnings)

    def write(self, job: Job, path: Path, data: bytes) -> None:
        """Write the file of a result. Raises OutputError."""
        if path.parent in self.folders:
            require_folder(path.parent)
        # With `skip_existing`, a pair of which one result is missing is processed again as a whole.
        overwrite = self.settings.overwrite or self.settings.skip_existing or job.is_repeated
        write_atomically(path, data, overwrite=overwrite)
        self.folders.add(path.parent)

    # --- what commands change ---------------------------------------------------------------------------

    def prepare(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Determine what other processes must know before they begin; return all jobs."""
        return jobs

    def read(self, job: Job) -> tuple[Any, Sequence[str]]:
        """Return an input, which has a width and a height, and what looks wrong with it.

        Raises InputError: it is unusable; PamError: a result cannot be encoded.
        """
        raise NotImplementedError

    def apply(self, job: Job, pair: Any) -> Computed:
        """Compute the results of a pair. Raises PamError."""
        raise NotImplementedError

    def finish(self, results: Results) -> Results:
        """Yield the results of the batch, and complete it after the last one."""
        return results

    def write_video(self, video: Path, frames: Any) -> None:
        """Write a video of `StoredFrames`. Raises OutputError, InputError."""
        from pamcli.batch.video_results import write_frames

        write_frames(video, frames)


class NetworkProcessor(PairProcessor):
    """The steps of a command that runs a network on rectified pairs."""

    settings: MatchSettings | UpscaleSettings
    min_disparity: int | None = None  # smallest disparity that is searched, px, if limited
    stretches_eight_bits = False  # True if 8-bit images of low contrast are stretched, too
    is_stretch_reported = False
    video_frames: Iterable[PairPaths] = ()
    """Frames of a video, until the first readable one was searched for faults."""
    video_fault: Any = "detect"
    """The fault of a video's first readable frame, after which all frames, shards and machines process the
    video in the same way, or None; "detect" for other pairs."""

    def read_rectified(self, paths: PairPaths) -> StereoPair:
        """Read a pair as the network sees it; at first, find the fault of a video. Raises InputError."""
        frames, self.video_frames = self.video_frames, ()
        for frame in frames:
            with suppress(InputError):  # reported for that frame
                self.video_fault = self.detect_fault(self.read_rectified(frame))
                break
        pair = self.read_views(paths)
        if self.settings.vr180 or pair.span:
            pair = make_rectilinear(pair, self.settings.vr180)
        return pair.stretch_contrast(eight_bits=self.stretches_eight_bits)

    def detect_fault(self, pair: StereoPair) -> Any:
        """Return the fault of the images that changes how they are processed, or None."""
        raise NotImplementedError

    def rotate(self, *images: np.ndarray, turns: int = 1) -> list[np.ndarray]:
        """Rotate images of cameras one above the other (`vertical`) by 90 degrees, or back with -1."""
        if not self.settings.vertical:
            return [*images]
        return [np.ascontiguousarray(np.rot90(pixels, turns)) for pixels in images]

    def find_problems(self, pair: StereoPair) -> Sequence[str]:
        """List what looks wrong with a rectified pair. Raises InputError for an unusable one."""
        left, right = self.rotate(pair.left.pixels, pair.right.pixels)
        check = check_pair(left, right)
        problems = check.problems(self.min_disparity)
        if not problems:
            return ()
        if check.upright:
            hint = "drop `vertical`" if self.settings.vertical else problems[0].do
            raise InputError(f"{pair.title}: {problems[0].text}", hint)
        rotated = "after rotation by 90 degrees, " if self.settings.vertical else ""
        return [f"{rotated}{each.text}: {each.do}" for each in problems]

    def list_remarks(self, pair: StereoPair) -> list[str]:
        """Return notes on what is done to the images of a pair."""
        size = (pair.width, pair.height) if self.settings.vertical else (pair.height, pair.width)
        remarks = [pair.note, self.network.adaptation_note(*size)]
        if pair.levels != ALL_LEVELS and not self.is_stretch_reported:
            self.is_stretch_reported = True
            largest = np.iinfo(pair.left.pixels.dtype).max
            levels = f"levels {pair.levels[0]} to {pair.levels[1]} become 0 to {largest}"
            remarks.append(f"images of low contrast are stretched: {levels}")
        return [*filter(None, remarks)]


def run_one(steps: PairProcessor, job: Job, computing: AbstractContextManager[Any] | None = None) -> Any:
    """Run all steps of a job; return its result or error. computing: a lock of jobs that run at once."""
    loaded = attempt(steps.load, job)
    with computing or nullcontext():
        computed = attempt(steps.compute, job, loaded)
    del loaded
    return attempt(steps.save, job, computed)


def attempt(step: Callable[..., Any], *arguments: Any) -> Any:
    """Run a step and return its result or its error; if the last argument is an error, return that one."""
    if arguments and isinstance(arguments[-1], PamError):
        return arguments[-1]
    try:
        return step(*arguments)
    except PamError as error:
        part: BaseException | None = error
        while part is not None:  # its frames would keep the pair in memory
            # They are not cleared: the error of a job also refers to the frame of the jobs' generator.
            part.__traceback__ = None
            part = part.__cause__ or part.__context__
        return error
    except MemoryError:
        return DeviceError("not enough memory for this pair", "use smaller images, or `max_memory`")
    except Exception as error:  # noqa: BLE001 - a batch continues after any failed pair
        message = f"unexpected {type(error).__name__}: {error}"
        unexpected = convert_system_error(error) or PamError(message, "PAM_TRACEBACK=1 shows where")
        unexpected.__cause__ = error
        traceback.clear_frames(error.__traceback__)  # they would keep the pair in memory
        return unexpected
