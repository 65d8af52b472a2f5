"""Results that another program wrote, found by the names of the samples.

A result of the sample "a/b" is `a/b` below the folder with a suffix, `.pfm .png .npy .tif .tiff`, where it is
a disparity; `a/b_left.png` and `a/b_right.png` (or another picture suffix) where it is an enlarged pair. So
pam itself calls them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError, UsageError
from pamcli.files.finding import listed, shown
from pamcli.files.suffixes import DISPARITY_SUFFIXES, PICTURE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_picture

_VIEWS = ("left", "right")


@dataclass(frozen=True)
class DisparityPredictions:
    """Disparity maps of any program; opened with `open_disparities`."""

    folder: Path
    files: dict[str, Path]
    """By the name of the sample; samples without a file are absent."""
    missing: tuple[str, ...]
    """Samples without a file."""
    scale: float = 1.0
    """What the numbers in the files are multiplied by to be pixels."""

    def load(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The disparity of one sample: (H, W) float32, pixels of the left view, NaN = unknown.

        shape: the (H, W) it has to have. Raises InputError: unreadable, another size. KeyError: missing.
        """
        path = self.files[name]
        disparity = read_disparity(path)
        if disparity.shape != tuple(shape[:2]):
            raise InputError(
                f"{shown(path)} is {_size(disparity.shape)} pixels, the sample {shown(name)} {_size(shape)}",
                "a prediction has the size of the left picture; nothing is resized silently",
            )
        scaled: NDArray[np.float32] = (disparity * np.float32(self.scale)).astype(np.float32)
        return scaled


@dataclass(frozen=True)
class SuperresPredictions:
    """Enlarged pairs of any program; opened with `open_pictures`."""

    folder: Path
    files: dict[str, tuple[Path, Path]]
    """Left and right, by the name of the sample; samples of which a view is missing are absent."""
    missing: tuple[str, ...]
    """Views that are missing: "a/b_left"."""

    def load(self, name: str, shape: tuple[int, ...]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Both views of one sample: (H, W, 3) RGB uint8.

        shape: the (H, W) they have to have. Raises InputError: unreadable, 16 bits, another size.
        KeyError: missing.
        """
        views = []
        for path in self.files[name]:
            pixels = read_picture(path).pixels
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
            views.append(pixels)
        return views[0], views[1]


def open_disparities(
    folder: Path, names: Sequence[str], *, scale: float = 1.0, allow_missing: bool = False
) -> DisparityPredictions:
    """Find a disparity file for each sample. Nothing is decoded yet.

    scale: what the numbers in the files are multiplied by (a program that stores 64 for a pixel in a 16-bit
    PNG, which is read as KITTI's 256, needs 4). allow_missing: leave out samples without a file.
    Raises UsageError: no such folder, files missing (all, even when some may be), a scale that is not above
    0, two files of one name. InputError: a folder that cannot be read.
    """
    if not (scale > 0 and math.isfinite(scale)):
        raise UsageError(
            f"a scale of predictions of {scale:g} is not above 0", "1 means that the files hold pixels"
        )
    files, missing = _found(folder, names, DISPARITY_SUFFIXES)
    _refuse_missing(folder, missing, bool(files), allow_missing, DISPARITY_SUFFIXES)
    return DisparityPredictions(folder, files, tuple(missing), scale)


def open_pictures(folder: Path, names: Sequence[str], *, allow_missing: bool = False) -> SuperresPredictions:
    """Find both enlarged views of each sample. Nothing is decoded yet. Raises as `open_disparities`."""
    stems = [f"{name}_{view}" for name in names for view in _VIEWS]
    found, missing = _found(folder, stems, PICTURE_SUFFIXES)
    pairs = {}
    for name in names:
        left, right = (found.get(f"{name}_{view}") for view in _VIEWS)
        if left is not None and right is not None:
            pairs[name] = (left, right)
    _refuse_missing(folder, missing, bool(pairs), allow_missing, ("_left.png", "_right.png"))
    return SuperresPredictions(folder, pairs, tuple(missing))


def _found(
    folder: Path, stems: Sequence[str], suffixes: tuple[str, ...]
) -> tuple[dict[str, Path], list[str]]:
    if not folder.is_dir():
        raise UsageError(f"no such folder: {shown(folder)}", "predictions are files in a folder")
    present: dict[str, dict[str, list[str]]] = {}
    found, missing = {}, []
    for stem in stems:
        below, _, last = stem.rpartition("/")
        if below not in present:
            present[below] = _by_stem(folder / below, suffixes)
        files = present[below].get(last, [])
        if len(files) > 1:
            raise UsageError(
                f"two predictions for {shown(stem)} in {shown(folder / below)}: {listed(sorted(files))}",
                "keep one of them",
            )
        if files:
            found[stem] = folder / below / files[0]
        else:
            missing.append(stem)
    return found, missing


def _by_stem(folder: Path, suffixes: tuple[str, ...]) -> dict[str, list[str]]:
    """Names of the files of a folder that have one of the suffixes (in either case), by their stems."""
    found: dict[str, list[str]] = {}
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InputError(f"the folder {shown(folder)} cannot be read: {error.strerror}") from None
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in suffixes:
            found.setdefault(stem, []).append(name)
    return found


def _refuse_missing(
    folder: Path, missing: list[str], any_found: bool, allow_missing: bool, suffixes: tuple[str, ...]
) -> None:
    if not missing or (allow_missing and any_found):
        return
    example = f"{missing[0]}{suffixes[0]}"
    if not any_found:
        raise UsageError(
            f"no prediction in {shown(folder)} for any sample of the data",
            f"they are called as the samples are, for example {shown(example)}",
        )
    raise UsageError(
        f"{len(missing)} missing in {shown(folder)}: {listed(missing)}",
        f"they are called as the samples are, for example {shown(example)}; "
        "`allow_missing` measures without them",
    )


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]}"
