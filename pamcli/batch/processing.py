"""Read, compute and write a pair with a `PairProcessor`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pamcli.batch.jobs import Job, Result
from pamcli.errors import DeviceError, InputError, PamError
from pamcli.files.atomic import check_writable, require_folder, write_atomically
from pamcli.files.outputs import Encoded
from pamcli.files.pairing import STDIN, PairPaths, open_stdin
from pamcli.files.paths import STDIN_NAME
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.preflight import check_pair
from pamcli.imaging.stereo_pair import ALL_LEVELS, StereoPair, read_packed_pair, read_pair, split_packed

Outcome = tuple[Any, Mapping[str, Any], Sequence[str]]
"""The return value of `PairProcessor.apply`: the computed result, facts, and warnings."""


class PairProcessor:
    """The steps of a command for each pair of a batch. Other processes get a copy without the network."""

    packed: PackedLayout | None = None
    """Layout of images that hold both views."""
    recording: Any = None
    """The `Recording` that holds the pairs; None for files."""
    rectifies_recording = True
    """True if images of a recording are rectified with its `camera_info`."""
    videos: Mapping[str, Path] = MappingProxyType({})
    """Videos to write, by the kind of result."""
    bar: Any = None
    """A `Progress` of this process, or None."""
    max_memory: int | None = None
    """Memory of the network, bytes, if it differs from the settings."""
    needs_whole_batch = False
    """True if some results can only be encoded after the whole batch."""
    needs_first_pair = False
    """True if `prepare_batch` must see the first pair before other processes begin."""
    cores: int | None = None
    """Default number of cores of a Ray worker."""
    uses_gpu = False
    stretches_contrast = False
    """True if 16-bit images of low contrast are stretched first."""
    _is_stretch_reported = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.folders: set[Path] = set()
        """Folders that hold results of this run; they must exist until its end."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which loads the network itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("network", "bar")}

    @cached_property
    def network(self) -> Any:
        """A `StereoMatcher` or `StereoUpscaler`, loaded on first use; None if not needed."""
        return None

    def start(self) -> Mapping[str, Any]:
        """Load the network; return the facts that hold for all pairs. Raises PamError."""
        return {} if self.network is None else self.network.compute.describe()

    # --- the steps, which may run in different threads --------------------------------------------------

    def load(self, job: Job) -> tuple[StereoPair, Sequence[str]] | None:
        """Read a pair and check it; return None if its results exist. Raises PamError."""
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
        if self.stretches_contrast:
            pair = pair.stretch_contrast()
        for name, path in job.places.items():
            self.check_result(name, path, pair)
        return pair, self.find_problems(pair)

    def compute(self, job: Job, loaded: tuple[StereoPair, Sequence[str]] | None) -> Any:
        """Process a pair. Raises PamError."""
        if loaded is None:
            return None
        (pair, warnings), start = loaded, time.perf_counter()
        computed, facts, doubts = self.apply(job, pair)
        seconds = round(time.perf_counter() - start, 3)
        facts = {"width": pair.width, "height": pair.height, "seconds": seconds, **self.start(), **facts}
        result = Result(job, warnings=warnings or doubts, facts=facts, remarks=self.remarks(pair, facts))
        return pair, computed, result

    def save(self, job: Job, computed: Any) -> Result:
        """Write the results of a pair. Raises PamError."""
        if computed is None:
            return Result(job)
        pair, computed, result = computed
        return self.write(result, partial(self.encode, pair=pair, computed=computed))

    def save_delayed(self, result: Result) -> Result:
        """Write the results of a pair that need the whole batch."""
        if result.error is not None or result.job.done:
            return result
        try:
            return self.write(result, self.encode_delayed)
        except PamError as error:
            return Result(result.job, error, facts=result.facts)

    def write(self, result: Result, encode: Callable[[str, Path], Encoded | None]) -> Result:
        """Encode and write each file of a result. Raises PamError."""
        warnings, data = [*result.warnings], result.data
        # With `skip_existing`, a pair of which one result is missing is processed again as a whole.
        overwrites = self.settings.overwrite or self.settings.skip_existing or result.job.is_repeated
        for name, path in result.job.places.items():
            encoded = encode(name, path)
            if encoded is None:
                continue
            warnings += encoded.warnings
            if name in result.job.returned:
                data = encoded.data
                continue
            if path.parent in self.folders:
                require_folder(path.parent)
            write_atomically(path, encoded.data, overwrite=overwrites)
            self.folders.add(path.parent)
        return replace(result, warnings=warnings, data=data)

    # --- what commands change ---------------------------------------------------------------------------

    def read(self, job: Job) -> StereoPair:
        """Read the input of a job. Raises InputError."""
        paths, max_pixels = job.pair, self.settings.max_pixels
        assert paths is not None
        if paths.frames is not None:
            pair = self.read_frames(paths)
        elif self.packed is None:
            assert paths.right is not None
            pair = read_pair(paths.left, paths.right, max_pixels=max_pixels)
        elif paths.left == STDIN:
            with open_stdin() as stdin:
                image = stdin.read()
            pair = read_packed_pair(image, self.packed, max_pixels=max_pixels, name=STDIN_NAME)
        else:
            pair = read_packed_pair(paths.left, self.packed, max_pixels=max_pixels, name=str(paths.left))
        return pair.make_rectilinear(getattr(self.settings, "vr180", None))

    def read_frames(self, pair: PairPaths) -> StereoPair:
        """Read a pair of video frames. Raises InputError."""
        assert pair.frames is not None
        max_pixels = self.settings.max_pixels
        if self.recording is not None:
            rectify = self.rectifies_recording
            recorded: StereoPair = self.recording.read(pair.frames, max_pixels=max_pixels, rectify=rectify)
            return recorded
        left = self.input_videos[pair.left].frame(pair.frames[0], max_pixels=max_pixels)
        if pair.right is None:
            return split_packed(left, self.packed or "lr", str(pair))
        right = self.input_videos[pair.right].frame(pair.frames[1], max_pixels=max_pixels)
        return StereoPair(left, right, str(pair))

    @cached_property
    def input_videos(self) -> Any:
        from pamcli.imaging.videos import Videos

        return Videos()

    def rotate(self, pixels: np.ndarray, turns: int = 1) -> np.ndarray:
        """Rotate an image of cameras one above the other (`vertical`) by 90 degrees, or back with -1."""
        vertical = getattr(self.settings, "vertical", False)
        return np.ascontiguousarray(np.rot90(pixels, turns)) if vertical else pixels

    def find_problems(self, pair: StereoPair) -> Sequence[str]:
        """List what looks wrong with a rectified pair. Raises InputError for an unusable pair."""
        settings = self.settings
        check = check_pair(self.rotate(pair.left.pixels), self.rotate(pair.right.pixels))
        problems = check.problems(getattr(settings, "min_disparity", None))
        vertical = getattr(settings, "vertical", False)
        if check.upright:
            hint = "drop `vertical`" if vertical else problems[0].do
            raise InputError(f"{pair.title}: {problems[0].text}", hint)
        rotated = "after rotation by 90 degrees, " if vertical else ""
        return [f"{rotated}{each.text}: {each.do}" for each in problems]

    def remarks(self, pair: StereoPair, facts: Mapping[str, Any]) -> list[str]:
        """Return notes on the processing of a pair; each is reported once per batch."""
        remarks = [pair.note]
        if self.network is not None:
            size = (pair.width, pair.height) if getattr(self.settings, "vertical", False) else None
            remarks.append(self.network.adaptation_note(*(size or (pair.height, pair.width))))
        if pair.levels != ALL_LEVELS and not self._is_stretch_reported:
            self._is_stretch_reported = True
            levels = "levels {} to {} become 0 to 65535".format(*pair.levels)
            remarks.append(f"16-bit images of low contrast are stretched: {levels}")
        return [*filter(None, remarks)]

    def check_result(self, name: str, path: Path, pair: StereoPair) -> None:
        """Raise PamError if a result cannot be encoded, before the network runs."""

    def skip(self, job: Job) -> None:
        """Handle a job that is skipped because its results exist."""

    def apply(self, job: Job, pair: StereoPair) -> Outcome:
        """Compute the results of a pair. Raises PamError."""
        raise NotImplementedError

    def encode(self, name: str, path: Path, pair: StereoPair, computed: Any) -> Encoded | None:
        """Return a result as the bytes of a file; None if it needs the whole batch."""
        raise NotImplementedError

    def prepare_batch(self, job: Job, pair: StereoPair) -> None:
        """Determine the values that all pairs share from the first pair. Raises InputError on failure."""

    def collect(self, facts: Mapping[str, Any]) -> None:
        """Collect the facts about a pair that any process computed."""

    def encode_delayed(self, name: str, path: Path) -> Encoded | None:
        """Return a result that needed the whole batch; None for those that `encode` returned."""
        return None

    def render_video(self, name: str, frames: Any) -> Iterable[tuple[Fraction, np.ndarray]]:
        """Yield the frames of a video from `StoredFrames`."""
        frames_of: Iterable[tuple[Fraction, np.ndarray]] = frames
        return frames_of

    def end_batch(self) -> None:
        """Finish the batch after its last pair, even if pairs failed."""

    def close(self) -> None:
        """Release the resources of the batch."""


def prepare_from_first(processor: PairProcessor, jobs: Iterator[Job]) -> Iterator[Job]:
    """Let `prepare_batch` see the first readable pair, then yield all jobs in their order."""
    read: list[Job] = []
    for job in jobs if processor.needs_first_pair else ():
        read.append(job)
        try:
            loaded = processor.load(job)
        except PamError:
            continue
        if loaded is not None:
            with suppress(InputError, DeviceError):  # the job fails when it is processed
                processor.prepare_batch(job, loaded[0])
                break
    return itertools.chain(read, jobs)
