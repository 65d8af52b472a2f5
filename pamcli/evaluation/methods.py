"""Whose results are measured: those of a network, or files that any program wrote, by name.

A result of the sample "a/b" is `a/b` below the folder with a suffix, `.pfm .png .npy .tif .tiff`, where it is
a disparity; `a/b_left.png` and `a/b_right.png` (or another picture suffix) where it is an enlarged pair. So
pam itself calls them.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.superres_metrics import SuperresPair
from pamcli.files.finding import listed, shown
from pamcli.files.suffixes import DISPARITY_SUFFIXES, PICTURE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_picture
from pamcli.registry.catalog import sha256

Views = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Left and right, (H, W, 3) RGB each."""

Enlarge = Callable[[str, SuperresPair], tuple[Views, float | None] | None]
"""From name and low-resolution pair to both enlarged views and the seconds it took; None = nothing for it."""


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
        described = self.network.compute.describe()
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

    def enlarged(self, source: Source) -> tuple[Enlarge, list[str]]:
        """Both views of each pair, enlarged; and notes."""

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
        return np.asarray(self.network.left_only(pair.low_left, pair.low_left))


@dataclass(frozen=True)
class FilesMethod:
    """Files in a folder, named as the samples are. Raises UsageError: a scale that makes no pixels."""

    folder: Path
    scale: float = 1.0
    """What the numbers in files of disparity are multiplied by to be pixels."""
    allow_missing: bool = False
    """Samples without a file are left out, and that is said."""

    def __post_init__(self) -> None:
        if not 1e-9 <= self.scale <= 1e9:
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

    def enlarged(self, source: Source) -> tuple[Enlarge, list[str]]:
        """As of a network. Raises UsageError, InputError as `find_views`."""
        files = find_views(self.folder, source.names, allow_missing=self.allow_missing)

        def enlarge(name: str, pair: SuperresPair) -> tuple[Views, None] | None:
            return (load_views(files[name], pair.left.shape), None) if name in files else None

        return enlarge, _left_out(source, files)


Method = NetworkMethod | FilesMethod


def _left_out(source: Source, files: Mapping[str, object]) -> list[str]:
    names = [name for name in source.names if name not in files]
    return [f"{len(names)} without a prediction, left out: {listed(names)}"] if names else []


def find_disparities(folder: Path, names: Sequence[str], *, allow_missing: bool = False) -> dict[str, Path]:
    """A disparity file for each sample, by its name. Nothing is decoded yet.

    allow_missing: leave out samples without a file. Raises UsageError: no such folder, files missing (all,
    even when some may be), two files of one name. InputError: a folder that cannot be read.
    """
    found = _found(folder, {name: [name] for name in names}, DISPARITY_SUFFIXES, allow_missing)
    return {name: file for name, (file,) in found.items()}


def find_views(
    folder: Path, names: Sequence[str], *, allow_missing: bool = False
) -> dict[str, tuple[Path, Path]]:
    """Both enlarged views of each sample, left and right, by its name. Raises as `find_disparities`."""
    stems = {name: [f"{name}_left", f"{name}_right"] for name in names}
    found = _found(folder, stems, PICTURE_SUFFIXES, allow_missing)
    return {name: (left, right) for name, (left, right) in found.items()}


def load_disparity(path: Path, name: str, shape: tuple[int, ...], scale: float = 1) -> NDArray[np.float32]:
    """The disparity of one sample: (H, W) float32, pixels of the left view, NaN = unknown.

    shape: the (H, W) it has to have. scale: what the numbers in the file are multiplied by (a program that
    stores 64 for a pixel in a 16-bit PNG, which is read as KITTI's 256, needs 4). Raises InputError:
    unreadable, another size.
    """
    disparity = read_disparity(path)
    if disparity.shape != tuple(shape[:2]):
        raise InputError(
            f"{shown(path)} is {_size(disparity.shape)} pixels, the sample {shown(name)} {_size(shape)}",
            "a prediction has the size of the left picture; nothing is resized silently",
        )
    return np.asarray(disparity * np.float32(scale), np.float32)


def load_views(paths: tuple[Path, Path], shape: tuple[int, ...]) -> Views:
    """Both views of one sample: (H, W, 3) RGB uint8.

    shape: the (H, W) they have to have. Raises InputError: unreadable, 16 bits, another size.
    """
    left, right = (read_picture(path).pixels for path in paths)
    for path, pixels in zip(paths, (left, right), strict=True):
        if pixels.dtype != np.uint8:
            raise InputError(
                f"{shown(path)} has 16 bits a channel; PSNR and SSIM are defined here on 8 bits",
                "convert it to 8 bits first",
            )
        if pixels.shape[:2] != tuple(shape[:2]):
            raise InputError(
                f"{shown(path)} is {_size(pixels.shape)} pixels, the truth is {_size(shape)}",
                "the truth is cut at the right and the bottom to a multiple of the scale",
            )
    return left.astype(np.uint8), right.astype(np.uint8)


def _found(
    folder: Path, stems: Mapping[str, Sequence[str]], suffixes: tuple[str, ...], allow_missing: bool
) -> dict[str, list[Path]]:
    """Files of samples that have all of theirs. stems: of each sample, by its name."""
    if not folder.is_dir():
        raise UsageError(f"no such folder: {shown(folder)}", "predictions are files in a folder")
    folders = {stem.rpartition("/")[0] for wanted in stems.values() for stem in wanted}
    present = {stem: files for below in folders for stem, files in _by_stem(folder, below, suffixes).items()}
    wanted = [stem for each in stems.values() for stem in each]
    if twice := [stem for stem in wanted if len(present.get(stem, [])) > 1]:
        files = present[twice[0]]
        raise UsageError(
            f"two predictions for {shown(twice[0])} in {shown(files[0].parent)}: "
            f"{listed(sorted(file.name for file in files))}",
            "keep one of them",
        )
    missing = [stem for stem in wanted if stem not in present]
    found = {
        name: [present[stem][0] for stem in each] for name, each in stems.items() if present.keys() >= {*each}
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


def _by_stem(folder: Path, below: str, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    """Files of a sub-folder that have one of the suffixes (in either case), by their paths without it."""
    found: dict[str, list[Path]] = {}
    try:
        names = os.listdir(folder / below)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InputError(f"the folder {shown(folder / below)} cannot be read: {error.strerror}") from None
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in suffixes:
            found.setdefault(f"{below}/{stem}" if below else stem, []).append(folder / below / name)
    return found


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]}"
