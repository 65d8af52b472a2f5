"""Methods whose results are measured: networks, and files that any program wrote, found by name.

A result of the sample "a/b" is `a/b` below the folder with a suffix, `.pfm .png .npy .tif .tiff`, where it is
a disparity; `a/b_left.png` and `a/b_right.png` (or another picture suffix) where it is an enlarged pair. So
pam itself calls them.
"""

import ctypes
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.figures import size_of
from pamcli.evaluation.results import Fact
from pamcli.evaluation.superres_metrics import Enlarged, SuperresPair
from pamcli.files.finding import entries_of, listed, shown
from pamcli.files.suffixes import DISPARITY_SUFFIXES, PICTURE_SUFFIXES
from pamcli.imaging.disparity_units import Measured, read_measured
from pamcli.imaging.images import read_picture
from pamcli.registry.catalog import sha256

Result = TypeVar("Result")

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_of(run: Callable[[], Result], *, gpu: Any = None) -> tuple[Result, int | None]:
    """Run something: what it returns, and the bytes that it took at most beyond those held before.

    gpu: a torch.device, whose memory counts instead of this process's. None: this system does not tell it, as
    others than Linux.
    """
    from pamcli.inference.memory import gpu_peak_of, remember_peak

    if gpu is not None:
        return gpu_peak_of(run, gpu)
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)  # what is free but kept would be taken again unseen
    remember_peak()
    try:
        _RESET.write_text("5")  # the peak becomes what is held now
        held = _status("VmRSS")
    except (OSError, ValueError):
        return run(), None
    result = run()
    return result, max(0, _status("VmHWM") - held)


def _status(name: str) -> int:
    """Read a number of bytes. Raises OSError, ValueError: it is not told."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"no {name}")
    return int(found[1]) * 1024


Estimates = Callable[[Sample], Estimate | None]
"""Finds the disparity of a sample; None: there is nothing for it."""
Enlarges = Callable[[SuperresPair], Enlarged | None]
"""Enlarges the low-resolution views of a pair; None: there is nothing for it."""
Watch = Callable[[int], Callable[[float], None]]
"""Gives, for a pair of so many rows, what is told the share of the work on it that is done."""


class Method(ABC):
    """What is measured: it finds disparity, or enlarges pictures, or both."""

    name: str

    @property
    def row(self) -> str:
        """Its name in tables."""
        return self.name

    @abstractmethod
    def facts(self) -> list[Fact]:
        """State what was measured, name and value, the method itself first."""

    def notes(self) -> list[str]:
        """State what a reader of the figures must know of what was measured since the last call."""
        return []

    def disparities(self, source: Source, *, extras: bool = True) -> Estimates:
        """Make ready to match a data set. Raises UsageError: it cannot; files raise as `find_files`.

        extras: with confidence, unless it takes the network a second run, and visibility where the truth
        knows it.
        """
        raise UsageError(f"{self.row} finds no disparity")

    def enlarged(self, source: Source) -> Enlarges:
        """Make ready to enlarge a data set. Raises UsageError: it cannot; files raise as `find_files`."""
        raise UsageError(f"{self.row} enlarges no pictures")


@dataclass(frozen=True)
class NetworkMethod(Method):
    """A network that is loaded: a `StereoMatcher` or a `StereoUpscaler`."""

    network: Any
    name: str = "network"
    weights: Path | None = None
    """Their file, to state its sha256."""
    right_view: Literal["both", "right", "left"] = "right"
    """Super-resolution: what it gets for the right view. left: the left view again; both: the right one, and
    then the left again, which tells what the second view is worth."""
    keep: Callable[[str, NDArray[np.uint8], NDArray[np.uint8]], None] | None = None
    """Super-resolution: is given name, left and right view of every pair that was enlarged."""
    watch: Watch | None = None
    departures: dict[str, None] = field(default_factory=dict, init=False)
    """What an exported network did to pictures that the network itself does not do, in words."""

    @property
    def row(self) -> str:
        return f"{self.name}, left view twice" if self.right_view == "left" else self.name

    def facts(self) -> list[Fact]:
        described = self.network.compute.describe()
        found = [("network", self.row)]
        if self.weights is not None:
            found.append(("weights", f"{self.weights.name}, sha256 {sha256(self.weights)}"))
        return [*found, ("device", f"{described['device']}, {described['precision']}")]

    def notes(self) -> list[str]:
        said = [listed(self.departures, "; ", most=2)] if self.departures else []
        self.departures.clear()
        return said

    def _note_departure(self, picture: NDArray[np.generic]) -> None:
        height, width = picture.shape[:2]
        if said := self.network.departure(height, width):
            self.departures[said] = None

    def disparities(self, source: Source, *, extras: bool = True) -> Estimates:
        def estimate(sample: Sample) -> Estimate:
            visible = {"visible"} if sample.visible is not None else set()
            sure = {"confidence"} if getattr(self.network, "sure_at_once", True) else set()
            return self.disparity(sample.left, sample.right, sure | visible if extras else ())

        return estimate

    def disparity(
        self, left: NDArray[np.generic], right: NDArray[np.generic], extras: Iterable[str] = ()
    ) -> Estimate:
        """Match one pair, and take the time. extras: what is asked for beside the disparity."""
        self._note_departure(left)
        run = partial(self.network, left, right)
        device = self.network.compute.device
        gpu = device if device.type == "cuda" else None
        start = time.perf_counter()
        found, memory = peak_of(partial(run, extras=extras, **self._watched(left)), gpu=gpu)
        seconds = time.perf_counter() - start
        return Estimate(found.disparity, found.visible, found.confidence, seconds, memory, run)

    def enlarged(self, source: Source) -> Enlarges:
        return self.enlarge

    def enlarge(self, pair: SuperresPair) -> Enlarged:
        """Enlarge one pair, and take the time."""
        self._note_departure(pair.low_left)
        start = time.perf_counter()
        second = pair.low_left if self.right_view == "left" else pair.low_right
        left, right = self.network(pair.low_left, second, **self._watched(pair.low_left))
        seconds = time.perf_counter() - start
        if self.keep is not None:
            self.keep(pair.name, left, right)
        alone = self.network.left_only(pair.low_left, pair.low_left) if self.right_view == "both" else None
        return Enlarged(left, right, seconds, alone)

    def _watched(self, view: NDArray[np.generic]) -> dict[str, Any]:
        return {} if self.watch is None else {"progress": self.watch(len(view))}


@dataclass(frozen=True)
class FilesMethod(Method):
    """Files in a folder, named as the samples are. Raises UsageError: a scale that makes no pixels."""

    folder: Path
    scale: float | None = None
    """Units per pixel of disparity in the files; None: as their formats have it."""
    allow_missing: bool = False
    """Samples without a file are left out, and that is said."""
    seconds: float | None = None
    """What the program took for a pair."""
    name: str = ""
    """Its name in tables; by default the folder's."""

    said: dict[str, None] = field(default_factory=dict, init=False)
    """Warnings about the files."""

    @property
    def row(self) -> str:
        return self.name or self.folder.resolve().name

    def facts(self) -> list[Fact]:
        return [("predictions", shown(self.folder))]

    def notes(self) -> list[str]:
        said = [listed(self.said, "; ", most=2)] if self.said else []
        self.said.clear()
        return said + ([] if self.scale is None else [f"{self.scale:g} units in the files are one pixel"])

    def disparities(self, source: Source, *, extras: bool = True) -> Estimates:
        files = find_files(self.folder, source.names, allow_missing=self.allow_missing)

        def estimate(sample: Sample) -> Estimate | None:
            if sample.name not in files:
                return None
            (file,), shape = files[sample.name], sample.left.shape
            found = load_disparity(file, sample.name, shape, self.scale)
            self.said.update(dict.fromkeys(f"{sample.name}: {line}" for line in found.warnings))
            return Estimate(found.disparity, seconds=self.seconds, units=found.units)

        return estimate

    def enlarged(self, source: Source) -> Enlarges:
        files = find_files(self.folder, source.names, views=True, allow_missing=self.allow_missing)

        def enlarge(pair: SuperresPair) -> Enlarged | None:
            return Enlarged(*load_views(files[pair.name], pair.left.shape)) if pair.name in files else None

        return enlarge


def watched(methods: Sequence[Method], watch: Watch | None) -> Sequence[Method]:
    """The methods, where networks tell how far they are with a pair. watch: as of `NetworkMethod`."""
    if watch is None:
        return methods
    return [replace(each, watch=watch) if isinstance(each, NetworkMethod) else each for each in methods]


def find_files(
    folder: Path, names: Sequence[str], *, views: bool = False, allow_missing: bool = False
) -> dict[str, list[Path]]:
    """Find the files of each sample, by its name: its disparity, or both enlarged views, left and right.

    Nothing is decoded. allow_missing: leave out samples without their files. Raises UsageError: no such
    folder, files missing (all, even when some may be), two files of one name. InputError: a folder that
    cannot be read.
    """
    if not folder.is_dir():
        raise UsageError(f"no such folder: {shown(folder)}", "predictions are files in a folder")
    endings, suffixes = (("_left", "_right"), PICTURE_SUFFIXES) if views else (("",), DISPARITY_SUFFIXES)
    present: dict[str, list[Path]] = {}
    for below in {name.rpartition("/")[0] for name in names}:
        for file, _ in entries_of(folder / below):
            stem, suffix = os.path.splitext(file)
            if suffix.lower() in suffixes:
                present.setdefault(f"{below}/{stem}".lstrip("/"), []).append(folder / below / file)
    wanted = {name: [name + ending for ending in endings] for name in names}
    stems = [stem for each in wanted.values() for stem in each]
    if twice := [stem for stem in stems if len(present.get(stem, [])) > 1]:
        files = present[twice[0]]
        raise UsageError(
            f"two predictions for {shown(twice[0])} in {shown(files[0].parent)}: "
            f"{listed(sorted(file.name for file in files))}",
            "keep one of them",
        )
    missing = [stem for stem in stems if stem not in present]
    found = {
        name: [present[stem][0] for stem in each]
        for name, each in wanted.items()
        if present.keys() >= {*each}
    }
    if missing and not (allow_missing and found):
        called = f"they are called as the samples are, for example {shown(missing[0] + suffixes[0])}"
        if not found:
            raise UsageError(f"no prediction in {shown(folder)} for any sample of the data", called)
        raise UsageError(
            f"{len(missing)} missing in {shown(folder)}: {listed(missing)}",
            f"{called}; `allow_missing` measures without them",
        )
    return found


def load_disparity(path: Path, name: str, shape: tuple[int, ...], scale: float | None = None) -> Measured:
    """Read the disparity of one sample: pixels of the left view, NaN = unknown.

    shape: the (H, W) it has to have. scale: units per pixel in the file, as of `read_disparity`. Raises
    InputError: unreadable, another size.
    """
    found = read_measured(path, scale=scale)
    disparity = found.disparity
    if disparity.shape != tuple(shape[:2]):
        raise InputError(
            f"{shown(path)} is {size_of(disparity.shape)} pixels, "
            f"the sample {shown(name)} {size_of(shape[:2])}",
            "a prediction has the size of the left picture; nothing is resized silently",
        )
    return found


def load_views(paths: Iterable[Path], shape: tuple[int, ...]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read both views of one sample: (H, W, 3) RGB uint8.

    shape: the (H, W) they have to have. Raises InputError: unreadable, 16 bits, another size.
    """
    views = {path: read_picture(path).pixels for path in paths}
    for path, pixels in views.items():
        if pixels.dtype != np.uint8:
            raise InputError(
                f"{shown(path)} has 16 bits a channel; PSNR and SSIM are defined here on 8 bits",
                "convert it to 8 bits first",
            )
        if pixels.shape[:2] != tuple(shape[:2]):
            raise InputError(
                f"{shown(path)} is {size_of(pixels.shape[:2])} pixels, the truth is {size_of(shape[:2])}",
                "the truth is cut at the right and the bottom to a multiple of the scale",
            )
    left, right = (pixels.astype(np.uint8) for pixels in views.values())
    return left, right
