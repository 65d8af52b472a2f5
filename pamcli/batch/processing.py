"""Read, compute and write a pair with a `PairProcessor`."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.batch.jobs import Job, Result
from pamcli.batch.plan import Plan
from pamcli.batch.reading import PairReader
from pamcli.errors import InputError
from pamcli.files.atomic import check_writable, require_folder, write_atomically
from pamcli.files.outputs import Encoded
from pamcli.imaging.preflight import check_pair
from pamcli.imaging.stereo_pair import ALL_LEVELS, StereoPair
from pamcli.settings.batches import BatchSettings, MatchSettings, UpscaleSettings

Results = Generator[Result, None, None]
Outcome = tuple[Any, Mapping[str, Any], Sequence[str]]
"""The return value of `PairProcessor.apply`: the computed result, facts, and warnings."""


class PairProcessor:
    """The steps of a command for each pair of a batch. Other processes get a copy without the network."""

    settings: BatchSettings
    network: Any = None
    """A `StereoMatcher` or `StereoUpscaler`; None if not needed."""
    bar: Any = None
    """A `Progress` of this process, or None."""
    sequential: str | None = None
    """The option that requires all pairs to be processed by one process in their order, if any."""
    needs_whole_batch = False
    """True if some results can only be written after the whole batch."""
    cores: int | None = None
    """Default number of cores of a Ray worker."""
    uses_gpu = False

    def __init__(self, settings: BatchSettings, plan: Plan) -> None:
        self.settings, self.many, self.videos = settings, plan.many, plan.videos
        self.reader = PairReader(settings.max_pixels, plan.packed, plan.recording)
        self.folders: set[Path] = set()
        """Folders that hold results of this run; they must exist until its end."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which loads the network itself."""
        own = ("network", "camera_network", "bar")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def start(self) -> Mapping[str, Any]:
        """Load the network; return the facts that hold for all pairs. Raises PamError."""
        return {} if self.network is None else self.network.compute.describe()

    # --- the steps, which may run in different threads --------------------------------------------------

    def load(self, job: Job) -> tuple[Any, Sequence[str]] | None:
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
        for name, path in job.places.items():
            self.check_result(name, path, pair)
        return pair, self.find_problems(pair)

    def compute(self, job: Job, loaded: tuple[Any, Sequence[str]] | None) -> Any:
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
        result: Result
        pair, computed, result = computed
        warnings, data = [*result.warnings], result.data
        for name, path in job.places.items():
            if (encoded := self.encode(name, path, pair, computed)) is None:
                continue
            warnings += encoded.warnings
            if name in job.returned:
                data = encoded.data
            else:
                self.write(job, path, encoded.data)
        return replace(result, warnings=warnings, data=data)

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

    def skip(self, job: Job) -> None:
        """Handle a job that is skipped because its results exist."""

    def read(self, job: Job) -> Any:
        """Read the input of a job. Raises InputError."""
        assert job.pair is not None
        return self.reader.read(job.pair)

    def check_result(self, name: str, path: Path, pair: Any) -> None:
        """Raise PamError if a result cannot be encoded, before the network runs."""

    def find_problems(self, pair: Any) -> Sequence[str]:
        """List what looks wrong with an input. Raises InputError for an unusable one."""
        return ()

    def apply(self, job: Job, pair: Any) -> Outcome:
        """Compute the results of a pair. Raises PamError."""
        raise NotImplementedError

    def remarks(self, pair: Any, facts: Mapping[str, Any]) -> list[str]:
        """Return notes on the processing of a pair; each is reported once per batch."""
        return [pair.note] if pair.note else []

    def encode(self, name: str, path: Path, pair: Any, computed: Any) -> Encoded | None:
        """Return a result as the bytes of a file; None if `finish` writes it."""
        raise NotImplementedError

    def finish(self, results: Results) -> Results:
        """Yield the results of the batch, and complete it after the last one."""
        return results

    def write_video(self, kind: str, video: Path, frames: Any) -> None:
        """Write a video of `StoredFrames`. Raises OutputError, InputError."""
        from pamcli.batch.video_results import write_frames

        write_frames(video, frames, frames.clock, kind)


class NetworkProcessor(PairProcessor):
    """The steps of a command that runs a network on rectified pairs."""

    settings: MatchSettings | UpscaleSettings
    min_disparity: int | None = None
    """Smallest disparity that is searched, px, if limited."""
    _is_stretch_reported = False

    def __init__(self, settings: MatchSettings | UpscaleSettings, plan: Plan) -> None:
        super().__init__(settings, plan)
        self.uses_gpu = settings.device != "cpu"

    def read(self, job: Job) -> StereoPair:
        pair: StereoPair = super().read(job)
        return pair.make_rectilinear(self.settings.vr180).stretch_contrast()

    def rotate(self, pixels: np.ndarray, turns: int = 1) -> np.ndarray:
        """Rotate an image of cameras one above the other (`vertical`) by 90 degrees, or back with -1."""
        return np.ascontiguousarray(np.rot90(pixels, turns)) if self.settings.vertical else pixels

    def find_problems(self, pair: StereoPair) -> Sequence[str]:
        check = check_pair(self.rotate(pair.left.pixels), self.rotate(pair.right.pixels))
        problems = check.problems(self.min_disparity)
        if check.upright:
            hint = "drop `vertical`" if self.settings.vertical else problems[0].do
            raise InputError(f"{pair.title}: {problems[0].text}", hint)
        rotated = "after rotation by 90 degrees, " if self.settings.vertical else ""
        return [f"{rotated}{each.text}: {each.do}" for each in problems]

    def remarks(self, pair: StereoPair, facts: Mapping[str, Any]) -> list[str]:
        size = (pair.width, pair.height) if self.settings.vertical else (pair.height, pair.width)
        remarks = [pair.note, self.network.adaptation_note(*size)]
        if pair.levels != ALL_LEVELS and not self._is_stretch_reported:
            self._is_stretch_reported = True
            levels = "levels {} to {} become 0 to 65535".format(*pair.levels)
            remarks.append(f"16-bit images of low contrast are stretched: {levels}")
        return [*filter(None, remarks)]
