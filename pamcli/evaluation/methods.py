"""Define the methods to measure: loaded networks, bicubic upscaling, and result files of any program.

The result of sample "a/b" is the file `a/b.pfm` (or another suffix), or `a/b_left.png` and `a/b_right.png`.
Disparity may also lie as in the archives for KITTI and Middlebury: `disp_0/b.png`, `a/b/disp0NAME.pfm`.
"""

import copy
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source, format_size
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.loop import Answer, Case, Method, Watch
from pamcli.evaluation.results import Fact
from pamcli.evaluation.superres_metrics import SuperresPair, Upscaled
from pamcli.files.paths import join_names, list_entries, pluralize, quote
from pamcli.files.suffixes import DISPARITY_INPUT_SUFFIXES, IMAGE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity_file
from pamcli.imaging.images import read_image
from pamcli.imaging.resize import imresize_to, resize_nearest
from pamcli.registry.catalog import sha256
from pamcli.registry.description import SUFFIX, read_description

BICUBIC = "bicubic"

Result = TypeVar("Result")
Keep = Callable[[str, NDArray[np.uint8], NDArray[np.uint8]], None]


def measure_peak(run: Callable[[], Result], *, gpu: Any = None) -> tuple[Result, int | None]:
    """Run a function; return its result and its peak memory in bytes (None if unknown), on `gpu` if given."""
    from pamcli.inference.device import measure_gpu_peak, release_freed_memory, remember_peak

    if gpu is not None:
        return measure_gpu_peak(run, gpu)
    release_freed_memory()  # it would be reused without being counted
    remember_peak()
    status, peak = Path("/proc/self/status"), re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current size
        before = peak.search(status.read_text())
    except OSError:
        return run(), None
    result = run()
    after = peak.search(status.read_text())
    return result, 1024 * max(0, int(after[1]) - int(before[1])) if before and after else None


@dataclass(frozen=True)
class NetworkMethod(Method[Case, Answer]):
    """A loaded network."""

    network: Any  # a `StereoMatcher` or a `StereoUpscaler`
    name: str = "network"
    weights: Path | None = None  # the weights file, whose sha256 is reported

    def facts(self) -> list[Fact]:
        compute = self.network.compute.describe()
        facts = [("network", self.name)]
        if self.weights is not None:
            facts.append(("weights", f"{self.weights.name}, sha256 {sha256(self.weights)}"))
        facts.append(("device", f"{compute['device']}, {compute['precision']}"))
        if hasattr(self.network, "max_disparity"):
            limit = self.network.max_disparity
            facts.append(("maximum disparity", "none" if limit is None else f"{limit} px"))
        return facts

    def _measure(
        self, left: NDArray[np.generic], right: NDArray[np.generic], watch: Watch | None, **options: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Run the network on a pair; return its result, and the fields of a `MethodResult`."""
        if watch is not None:
            options["progress"] = watch(len(left))
        device = self.network.compute.device
        gpu = device if device.type == "cuda" else None
        departure = self.network.adaptation_note(*left.shape[:2])
        start = time.perf_counter()
        found, memory = measure_peak(partial(self.network, left, right, **options), gpu=gpu)
        seconds = time.perf_counter() - start
        return found, {"seconds": seconds, "memory": memory, "remarks": [departure] if departure else []}


@dataclass(frozen=True)
class MatcherMethod(NetworkMethod[Sample, Estimate]):
    """A loaded `StereoMatcher`."""

    extras: bool = True  # also return confidence, and visibility where it can be measured

    def run(self, case: Sample, watch: Watch | None = None) -> Estimate:
        visible = {"visible"} if case.visible is not None else set()
        sure = {"confidence"} if self.network.model.has_confidence else set()
        extras = sure | visible if self.extras else ()
        found, measured = self._measure(case.left, case.right, watch, extras=extras)
        again = partial(self.network, case.left, case.right)
        maps = found.disparity, found.visible, found.confidence
        return Estimate(*maps, again, of_network=True, **measured)

    def match_at(self, factor: float, case: Sample) -> Estimate:
        """Match images resized by a factor, and resize the disparity map back."""
        height, width = case.left.shape[:2]
        sides = [max(16, round(side * factor)) for side in (width, height)]
        left, right = (imresize_to(view, *sides) for view in (case.left, case.right))
        found, measured = self._measure(left, right, None)
        back = resize_nearest(found.disparity, width, height) * np.float32(width / sides[0])
        return Estimate(back, of_network=True, **measured)

    def with_limit(self, limit: int) -> "MatcherMethod":
        """Return the same method with a maximum disparity, px, for the disparity alone."""
        limited = copy.copy(self.network)
        limited.max_disparity = limit
        return replace(self, network=limited, extras=False)


@dataclass(frozen=True)
class UpscalerMethod(NetworkMethod[SuperresPair, Upscaled]):
    """A loaded `StereoUpscaler`."""

    right_view: Literal["both", "right", "left"] = "right"
    """Right input. "left" repeats the left image; "both" runs the right image and then the left image again,
    which measures the gain from the second image."""
    keep: Keep | None = None
    """Called with name, left image and right image of every upscaled pair."""

    def run(self, case: SuperresPair, watch: Watch | None = None) -> Upscaled:
        second = case.low_left if self.right_view == "left" else case.low_right
        (left, right), measured = self._measure(case.low_left, second, watch)
        if self.keep is not None:
            self.keep(case.name, left, right)
        alone = self.network.upscale_left(case.low_left, case.low_left) if self.right_view == "both" else None
        return Upscaled(left, right, alone, **measured)


@dataclass(frozen=True)
class Bicubic(Method[SuperresPair, Upscaled]):
    """Bicubic upscaling as in MATLAB, the baseline of super-resolution."""

    name: str = BICUBIC

    def run(self, case: SuperresPair, watch: Watch | None = None) -> Upscaled:
        return case.bicubic()


@dataclass
class FilesMethod(Method[Case, Answer]):
    """Result files in a folder, named like the samples."""

    folder: Path
    allow_missing: bool = False  # skip samples without a file, with a note
    name: str = ""  # name in tables; the folder's by default
    files: dict[str, list[Path]] = field(default_factory=dict, init=False)  # of the open data set, by sample

    fits_one_set = True
    endings: ClassVar[tuple[str, ...]] = ("",)  # of the names of the files of a sample
    suffixes: ClassVar[tuple[str, ...]] = DISPARITY_INPUT_SUFFIXES

    def __post_init__(self) -> None:
        self.name = self.name or self.folder.resolve().name or "(files)"

    def facts(self) -> list[Fact]:
        return [("predictions", quote(self.folder))]

    def open_set(self, source: Source) -> None:
        """Find the files of each sample by name. Raises UsageError."""
        folder, has_views = self.folder, len(self.endings) > 1
        if not folder.is_dir():
            if folder.exists():
                raise UsageError(f"{quote(folder)} is not a folder", "unpack an archive of predictions first")
            raise UsageError(f"no such folder: {quote(folder)}", "predictions must be files in a folder")
        if not has_views and (folder / "disp_0").is_dir():
            folder /= "disp_0"
        present: dict[str, list[Path]] = {}
        for below in {name.rpartition("/")[0] for name in source.names}:
            for file, _ in list_entries(folder / below):
                stem, suffix = os.path.splitext(file)
                if suffix.lower() in self.suffixes:
                    present.setdefault(f"{below}/{stem}".lstrip("/"), []).append(folder / below / file)
        for name in () if has_views else {*source.names} - present.keys():
            maps = [folder / name / file for file, _ in list_entries(folder / name)]
            # "_s" marks the sparse version of a map; the ground truth of the data set is no prediction.
            dense = [file for file in maps if re.fullmatch(r"(?s)disp0.*(?<!_s)(?<!GT)\.pfm", file.name)]
            present |= {name: dense} if dense else {}
        self.files, missing = {}, []
        for name in source.names:
            files = {name + ending: present.get(name + ending, []) for ending in self.endings}
            for several in (each for each in files.values() if len(each) > 1):
                both = join_names(sorted(file.name for file in several))
                message = f"two predictions for {quote(name)} in {quote(several[0].parent)}: {both}"
                raise UsageError(message, "keep only one of them")
            missing += [stem for stem, each in files.items() if not each]
            if all(files.values()):
                self.files[name] = [each[0] for each in files.values()]
        if missing and not (self.allow_missing and self.files):
            hint = f"name them like the samples, for example {quote(missing[0] + self.suffixes[0])}"
            if not self.files:
                raise UsageError(f"{quote(folder)} contains no prediction for any sample of the data", hint)
            raise UsageError(
                f"{quote(folder)} lacks {pluralize(len(missing), 'prediction')}: {join_names(missing)}",
                f"{hint}; or skip these samples with `allow_missing`",
            )


@dataclass
class DisparityFiles(FilesMethod[Sample, Estimate]):
    """Disparity maps in a folder."""

    scale: float | None = None  # units per pixel of disparity in the files; None = as their formats define
    seconds: float | None = None  # run time of the program per pair, s

    def __post_init__(self) -> None:
        super().__post_init__()
        self.notes = [] if self.scale is None else [f"the files have {self.scale:g} units per pixel"]

    def run(self, case: Sample, watch: Watch | None = None) -> Estimate | None:
        if case.name not in self.files:
            return None
        (path,) = self.files[case.name]
        found = read_disparity_file(path, scale=self.scale)
        if found.disparity.shape != case.left.shape[:2]:
            raise InputError(
                f"{quote(path)} is {format_size(found.disparity.shape)}, "
                f"but {quote(case.name)} is {format_size(case.left.shape)}",
                "a prediction must have the size of the left image; pam does not resize it",
            )
        remarks = [f"{case.name}: {line}" for line in found.warnings]
        return Estimate(found.disparity, seconds=self.seconds, units=found.units, remarks=remarks)


class UpscaledFiles(FilesMethod[SuperresPair, Upscaled]):
    """Upscaled images in a folder."""

    endings = ("_left", "_right")
    suffixes = IMAGE_SUFFIXES

    def run(self, case: SuperresPair, watch: Watch | None = None) -> Upscaled | None:
        if case.name not in self.files:
            return None
        views = []
        for path in self.files[case.name]:
            pixels = read_image(path).pixels
            if pixels.dtype != np.uint8:
                raise InputError(
                    f"{quote(path)} has 16 bits per channel, but PSNR and SSIM are defined on 8 bits",
                    "convert it to 8 bits first",
                )
            if pixels.shape[:2] != case.left.shape[:2]:
                sizes = f"{format_size(pixels.shape)}, but the ground truth is {format_size(case.left.shape)}"
                hint = "the ground truth is cropped at the right and bottom to a multiple of the scale"
                raise InputError(f"{quote(path)} is {sizes}", hint)
            views.append(pixels.astype(np.uint8))
        left, right = views
        return Upscaled(left, right)


def list_built(pairs: Iterable[tuple[str, str]], network_from: str | None) -> list[str]:
    """Return the descriptions of PyTorch networks that `network_from` builds; raise UsageError if none."""
    if network_from is None:
        return []
    described = [Path(what) for _, what in pairs if what.endswith(SUFFIX)]
    built = [str(path) for path in described if not read_description(path).network]
    if not built:
        problem = "`network_from` requires a `method` whose description (.toml) names no network file"
        raise UsageError(problem)
    return built
