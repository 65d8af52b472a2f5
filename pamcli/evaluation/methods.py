"""Define the methods to measure: loaded networks, and result files of any program.

The result of sample "a/b" is the file `a/b.pfm` (or another suffix), or `a/b_left.png` and `a/b_right.png`.
Disparity may also lie as in the archives for KITTI and Middlebury: `disp_0/b.png`, `a/b/disp0NAME.pfm`.
"""

import ctypes
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source, format_size
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.results import Fact
from pamcli.evaluation.superres_metrics import SuperresPair, Upscaled
from pamcli.files.paths import join_names, list_entries, pluralize, quote
from pamcli.files.suffixes import DISPARITY_SUFFIXES, IMAGE_SUFFIXES
from pamcli.imaging.disparity_units import DisparityFile, read_disparity_file
from pamcli.imaging.images import read_image
from pamcli.registry.catalog import sha256

Result = TypeVar("Result")

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")

Matching = Callable[[Sample], Estimate | None]  # None if there is no result
Upscaling = Callable[[SuperresPair], Upscaled | None]  # None if there is no result
Watch = Callable[[int], Callable[[float], None]]  # rows of a pair -> callback for the completed fraction


def measure_peak(run: Callable[[], Result], *, gpu: Any = None) -> tuple[Result, int | None]:
    """Run a function; return its result and its peak memory in bytes (None if unknown), on `gpu` if given."""
    from pamcli.inference.device import measure_gpu_peak, remember_peak

    if gpu is not None:
        return measure_gpu_peak(run, gpu)
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)  # freed but cached memory would be reused without being counted
    remember_peak()
    try:
        _RESET.write_text("5")  # resets the peak to the current size
        before = _read_memory_size("VmRSS")
    except (OSError, ValueError):
        return run(), None
    result = run()
    return result, max(0, _read_memory_size("VmHWM") - before)


def _read_memory_size(name: str) -> int:
    """Return a memory size in bytes; raise OSError or ValueError if it is not available."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"no {name}")
    return int(found[1]) * 1024


class Method(ABC):
    """A method to measure: it estimates disparity, upscales images, or both."""

    name: str  # in tables

    @abstractmethod
    def facts(self) -> list[Fact]:
        """Return facts about the method as (name, value), the method itself first."""

    def take_notes(self) -> list[str]:
        """Return notes on the measurements since the last call."""
        return []

    def prepare_matching(self, source: Source, watch: Watch | None = None, extras: bool = True) -> Matching:
        """Prepare to match a data set. `extras`: also return confidence and visibility if useful."""
        raise UsageError(f"{self.name} does not estimate disparity")

    def prepare_upscaling(self, source: Source, watch: Watch | None = None) -> Upscaling:
        """Prepare to upscale a data set."""
        raise UsageError(f"{self.name} does not upscale images")


@dataclass(frozen=True)
class NetworkMethod(Method):
    """A loaded network: a `StereoMatcher` or a `StereoUpscaler`."""

    network: Any
    name: str = "network"
    weights: Path | None = None  # the weights file, whose sha256 is reported
    right_view: Literal["both", "right", "left"] = "right"
    """Right input of super-resolution. "left" repeats the left image; "both" runs the right image and then
    the left image again, which measures the gain from the second image."""
    keep: Callable[[str, NDArray[np.uint8], NDArray[np.uint8]], None] | None = None
    """Super-resolution: called with name, left image and right image of every upscaled pair."""
    departures: dict[str, None] = field(default_factory=dict, init=False)
    """Preprocessing that an exported network needs and the original network does not, in words."""

    def facts(self) -> list[Fact]:
        compute = self.network.compute.describe()
        facts = [("network", self.name)]
        if self.weights is not None:
            facts.append(("weights", f"{self.weights.name}, sha256 {sha256(self.weights)}"))
        return [*facts, ("device", f"{compute['device']}, {compute['precision']}")]

    def take_notes(self) -> list[str]:
        notes = [join_names(self.departures, "; ", most=2)] if self.departures else []
        self.departures.clear()
        return notes

    def prepare_matching(self, source: Source, watch: Watch | None = None, extras: bool = True) -> Matching:
        def match(sample: Sample) -> Estimate:
            visible = {"visible"} if sample.visible is not None else set()
            sure = {"confidence"} if self.network.model.has_confidence else set()
            return self.match(sample.left, sample.right, sure | visible if extras else (), watch=watch)

        return match

    def match(
        self,
        left: NDArray[np.generic],
        right: NDArray[np.generic],
        extras: Iterable[str] = (),
        *,
        watch: Watch | None = None,
    ) -> Estimate:
        """Match one pair and measure time and memory. `extras`: further outputs to request."""
        run = partial(self.network, left, right)
        device = self.network.compute.device
        gpu = device if device.type == "cuda" else None
        options = self._options(left, watch)
        start = time.perf_counter()
        found, memory = measure_peak(partial(run, extras=extras, **options), gpu=gpu)
        seconds = time.perf_counter() - start
        maps = found.disparity, found.visible, found.confidence
        return Estimate(*maps, seconds, memory, run, of_network=True)

    def prepare_upscaling(self, source: Source, watch: Watch | None = None) -> Upscaling:
        return partial(self.upscale, watch=watch)

    def upscale(self, pair: SuperresPair, *, watch: Watch | None = None) -> Upscaled:
        """Upscale one pair and measure the time."""
        second = pair.low_left if self.right_view == "left" else pair.low_right
        options = self._options(pair.low_left, watch)
        start = time.perf_counter()
        left, right = self.network(pair.low_left, second, **options)
        seconds = time.perf_counter() - start
        if self.keep is not None:
            self.keep(pair.name, left, right)
        alone = self.network.upscale_left(pair.low_left, pair.low_left) if self.right_view == "both" else None
        return Upscaled(left, right, seconds, alone)

    def _options(self, left: NDArray[np.generic], watch: Watch | None) -> dict[str, Any]:
        """Note a departure from the original network, and return the options of a run."""
        if departure := self.network.adaptation_note(*left.shape[:2]):
            self.departures[departure] = None
        return {} if watch is None else {"progress": watch(len(left))}


@dataclass(frozen=True)
class FilesMethod(Method):
    """Result files in a folder, named like the samples."""

    folder: Path
    scale: float | None = None  # units per pixel of disparity in the files; None = as their formats define
    allow_missing: bool = False  # skip samples without a file, with a note
    seconds: float | None = None  # run time of the program per pair, s
    name: str = ""  # name in tables; the folder's by default
    warnings: dict[str, None] = field(default_factory=dict, init=False)  # warnings about the files

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.folder.resolve().name)

    def facts(self) -> list[Fact]:
        return [("predictions", quote(self.folder))]

    def take_notes(self) -> list[str]:
        notes = [join_names(self.warnings, "; ", most=2)] if self.warnings else []
        self.warnings.clear()
        return notes + ([] if self.scale is None else [f"the files have {self.scale:g} units per pixel"])

    def prepare_matching(self, source: Source, watch: Watch | None = None, extras: bool = True) -> Matching:
        files = find_files(self.folder, source.names, allow_missing=self.allow_missing)

        def match(sample: Sample) -> Estimate | None:
            if sample.name not in files:
                return None
            (file,), shape = files[sample.name], sample.left.shape
            found = load_disparity(file, sample.name, shape, self.scale)
            self.warnings.update(dict.fromkeys(f"{sample.name}: {line}" for line in found.warnings))
            return Estimate(found.disparity, seconds=self.seconds, units=found.units)

        return match

    def prepare_upscaling(self, source: Source, watch: Watch | None = None) -> Upscaling:
        files = find_files(self.folder, source.names, views=True, allow_missing=self.allow_missing)

        def upscale(pair: SuperresPair) -> Upscaled | None:
            return Upscaled(*load_views(files[pair.name], pair.left.shape)) if pair.name in files else None

        return upscale


def find_files(
    folder: Path, names: Sequence[str], *, views: bool = False, allow_missing: bool = False
) -> dict[str, list[Path]]:
    """Find the files of each sample by name; `views`: both upscaled images. Raises UsageError, InputError."""
    if not folder.is_dir():
        if folder.exists():
            raise UsageError(f"{quote(folder)} is not a folder", "unpack an archive of predictions first")
        raise UsageError(f"no such folder: {quote(folder)}", "predictions must be files in a folder")
    endings, suffixes = (("_left", "_right"), IMAGE_SUFFIXES) if views else (("",), DISPARITY_SUFFIXES)
    if not views and (folder / "disp_0").is_dir():
        folder /= "disp_0"
    present: dict[str, list[Path]] = {}
    for below in {name.rpartition("/")[0] for name in names}:
        for file, _ in list_entries(folder / below):
            stem, suffix = os.path.splitext(file)
            if suffix.lower() in suffixes:
                present.setdefault(f"{below}/{stem}".lstrip("/"), []).append(folder / below / file)
    for name in () if views else {*names} - present.keys():
        maps = [folder / name / file for file, _ in list_entries(folder / name) if file.startswith("disp0")]
        # "_s" marks the sparse version of a map; the ground truth of the data set is no prediction.
        dense = [file for file in maps if not file.stem.endswith(("_s", "GT")) and file.suffix == ".pfm"]
        present |= {name: dense} if dense else {}
    found, missing = {}, []
    for name in names:
        stems = [name + ending for ending in endings]
        for files in (present.get(stem, []) for stem in stems):
            if len(files) > 1:
                both = join_names(sorted(file.name for file in files))
                message = f"two predictions for {quote(name)} in {quote(files[0].parent)}: {both}"
                raise UsageError(message, "keep only one of them")
        missing += [stem for stem in stems if stem not in present]
        if present.keys() >= {*stems}:
            found[name] = [present[stem][0] for stem in stems]
    if missing and not (allow_missing and found):
        hint = f"name them like the samples, for example {quote(missing[0] + suffixes[0])}"
        if not found:
            raise UsageError(f"{quote(folder)} contains no prediction for any sample of the data", hint)
        raise UsageError(
            f"{quote(folder)} lacks {pluralize(len(missing), 'prediction')}: {join_names(missing)}",
            f"{hint}; or skip these samples with `allow_missing`",
        )
    return found


def load_disparity(
    path: Path, name: str, shape: tuple[int, ...], scale: float | None = None
) -> DisparityFile:
    """Read the disparity map of one sample: `shape` (H, W), px, NaN = unknown; `scale`: units per px."""
    found = read_disparity_file(path, scale=scale)
    if found.disparity.shape != tuple(shape[:2]):
        raise InputError(
            f"{quote(path)} is {format_size(found.disparity.shape)}, "
            f"but {quote(name)} is {format_size(shape)}",
            "a prediction must have the size of the left image; pam does not resize it",
        )
    return found


def load_views(paths: Iterable[Path], shape: tuple[int, ...]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read both upscaled images of one sample: (H, W, 3) RGB uint8 of this `shape`."""
    views = {path: read_image(path).pixels for path in paths}
    for path, pixels in views.items():
        if pixels.dtype != np.uint8:
            raise InputError(
                f"{quote(path)} has 16 bits per channel, but PSNR and SSIM are defined on 8 bits",
                "convert it to 8 bits first",
            )
        if pixels.shape[:2] != tuple(shape[:2]):
            raise InputError(
                f"{quote(path)} is {format_size(pixels.shape)}, but the ground truth is {format_size(shape)}",
                "the ground truth is cropped at the right and bottom to a multiple of the scale",
            )
    left, right = (pixels.astype(np.uint8) for pixels in views.values())
    return left, right
