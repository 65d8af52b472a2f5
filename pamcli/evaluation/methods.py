"""Whose results are measured: those of a network, or files that any program wrote."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source
from pamcli.errors import UsageError
from pamcli.evaluation.predictions import Views, find_disparities, find_views, load_disparity, load_views
from pamcli.evaluation.superres_metrics import SuperresPair
from pamcli.files.finding import listed, shown
from pamcli.registry.catalog import sha256

if TYPE_CHECKING:
    from pamcli.inference.device import Compute


@dataclass(frozen=True)
class Estimate:
    """What a method says of a sample."""

    disparity: NDArray[np.float32]
    """(H, W) pixels, NaN = no estimate."""
    visible: NDArray[np.bool_] | None = None
    confidence: NDArray[np.float32] | None = None
    seconds: float | None = None
    """What the network took."""


@dataclass(frozen=True)
class NetworkMethod:
    """A network that is loaded: a `StereoMatcher` or a `StereoUpscaler`."""

    network: Any
    name: str = "network"
    weights: Path | None = None
    """Their file, to state its sha256."""
    right_view: Literal["both", "right", "left"] = "right"
    """Super-resolution: what it gets for the right view. left: the left view again; both: the right one, and
    then the left again, so that `alone` tells what the second view is worth."""
    keep: Callable[[str, NDArray[np.uint8], NDArray[np.uint8]], None] | None = None
    """Super-resolution: is given name, left and right view of every pair that was enlarged."""
    remark: str = ""
    """Behind its name in tables: how it is run."""

    def facts(self) -> list[tuple[str, str]]:
        """Name and value."""
        compute: Compute = self.network.compute
        described = compute.describe()
        found = [("network", self.name)]
        if self.weights is not None:
            found.append(("weights", f"{self.weights.name}, sha256 {sha256(self.weights)}"))
        return [*found, ("device", f"{described['device']}, {described['precision']}")]

    def disparities(self, source: Source) -> tuple[Callable[[Sample], Estimate | None], list[str]]:
        """The estimate of each sample, and what a reader of the figures must know."""

        def estimate(sample: Sample) -> Estimate:
            extras = {"confidence"} if sample.visible is None else {"confidence", "visible"}
            start = time.perf_counter()
            result = self.network(sample.left, sample.right, extras=extras)
            seconds = time.perf_counter() - start
            return Estimate(result.disparity, result.visible, result.confidence, seconds)

        return estimate, []

    def disparities_of(self, left: NDArray[np.generic], right: NDArray[np.generic]) -> Estimate:
        """The disparity of a pair alone."""
        start = time.perf_counter()
        disparity = self.network(left, right, extras=()).disparity
        return Estimate(disparity, seconds=time.perf_counter() - start)

    def enlarged(
        self, source: Source
    ) -> tuple[Callable[[str, SuperresPair], tuple[Views, float | None] | None], list[str]]:
        """Both views of each pair, enlarged, with the seconds that took; and notes."""

        def enlarge(name: str, pair: SuperresPair) -> tuple[Views, float]:
            start = time.perf_counter()
            left, right = self.network(
                pair.low_left, pair.low_left if self.right_view == "left" else pair.low_right
            )
            seconds = time.perf_counter() - start
            if self.keep is not None:
                self.keep(name, left, right)
            return (left, right), seconds

        return enlarge, []

    def alone(self, pair: SuperresPair) -> NDArray[np.uint8]:
        """The left view, enlarged without a second one: it is given twice."""
        enlarged: NDArray[np.uint8] = self.network.left_only(pair.low_left, pair.low_left)
        return enlarged


@dataclass(frozen=True)
class FilesMethod:
    """Files in a folder, named as the samples are; see `predictions`. Raises UsageError: a scale of 0."""

    folder: Path
    scale: float = 1.0
    """What the numbers in files of disparity are multiplied by to be pixels."""
    allow_missing: bool = False
    """Samples without a file are left out, and that is said."""

    def __post_init__(self) -> None:
        if not (self.scale > 0 and math.isfinite(self.scale)):
            raise UsageError(f"a scale of {self.scale:g}", "1 means that the files hold pixels")

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def facts(self) -> list[tuple[str, str]]:
        """Name and value."""
        return [("predictions", shown(self.folder))]

    def disparities(self, source: Source) -> tuple[Callable[[Sample], Estimate | None], list[str]]:
        """As of a network. Raises UsageError, InputError as `find_disparities`."""
        files = find_disparities(self.folder, source.names, allow_missing=self.allow_missing)

        def estimate(sample: Sample) -> Estimate | None:
            if sample.name not in files:
                return None
            return Estimate(load_disparity(files[sample.name], sample.name, sample.left.shape, self.scale))

        notes = _left_out(source, files)
        if self.scale != 1:
            notes.append(f"the numbers in the files are multiplied by {self.scale:g}")
        return estimate, notes

    def enlarged(
        self, source: Source
    ) -> tuple[Callable[[str, SuperresPair], tuple[Views, float | None] | None], list[str]]:
        """As of a network. Raises UsageError, InputError as `find_views`."""
        files = find_views(self.folder, source.names, allow_missing=self.allow_missing)

        def enlarge(name: str, pair: SuperresPair) -> tuple[Views, None] | None:
            return (load_views(files[name], pair.left.shape), None) if name in files else None

        return enlarge, _left_out(source, files)


Method = NetworkMethod | FilesMethod


def _left_out(source: Source, files: Mapping[str, object]) -> list[str]:
    names = [name for name in source.names if name not in files]
    return [f"{len(names)} without a prediction, left out: {listed(names)}"] if names else []
