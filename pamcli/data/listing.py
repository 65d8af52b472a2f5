"""List and read the files of a data set: order, lazy loading, size checks and missing files."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.files import read_calibration
from pamcli.calibration.geometry import Calibration
from pamcli.data.source import Files, Sample, Source, format_size
from pamcli.errors import InputError
from pamcli.files.paths import join_names, list_entries, natural_key, quote
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import StereoPair, read_image, stretch_levels
from pamcli.imaging.resize import resize_area, resize_nearest


class Part(NamedTuple):
    """A kind of file that a data set has for each pair, such as ground truth or calibration."""

    name: str  # key in `Files.parts`; also a field of `Sample` if the file is read
    title: str = ""  # name in reports of missing files, as "ground truth (disp0GT.pfm)"; "" = not reported
    read: Callable[[Path], Any] | None = None  # returns the field's value, or a dictionary of several


def read_levels(path: Path) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return the levels (H, W) of a grey image of 8 or 16 bits. Raises InputError for a colour image."""
    image = read_image(path)
    if not image.grey and (np.ptp(image.pixels, axis=2) > 0).any():
        raise InputError(f"{quote(path)} must be a grey image, but has colours")
    return np.ascontiguousarray(image.pixels[..., 0])


def read_mask(path: Path, white: int = 1) -> NDArray[np.bool_]:
    """Return a mask (H, W) of the pixels of a grey image that are at least `white`."""
    return np.asarray(read_levels(path) >= white)


def read_scaled_disparity(path: Path, levels_per_pixel: float) -> NDArray[np.float32]:
    """Return the disparity map (H, W), px, of a grey image; level 0 becomes NaN (unknown)."""
    levels = read_levels(path).astype(np.float32)
    return np.where(levels > 0, levels / np.float32(levels_per_pixel), np.float32(np.nan))


def read_positive_disparity(path: Path) -> NDArray[np.float32]:
    """Return a disparity map (H, W), px, NaN = unknown; its sign differs between releases of a data set."""
    disparity = read_disparity(path)
    known = disparity[np.isfinite(disparity)]
    return -disparity if known.size and known.max() <= 0 else disparity


def read_rectified_calibration(path: Path, cameras: tuple[int, int] | None = None) -> Calibration:
    """Return the rectified calibration of a file. Raises InputError if a number is missing or impossible."""
    rectified = read_calibration(path, cameras=cameras).rectified
    if rectified is None:
        raise InputError(f"{quote(path)} does not contain the calibration of a rectified pair")
    return rectified


class Listed(Source):
    """A data source of images in files, sorted naturally by name."""

    def __init__(
        self,
        files: Iterable[Files],
        parts: Sequence[Part] = (),
        *,
        absent: Iterable[str] = (),
        unpaired: Iterable[str] = (),
        calibration: Calibration | None = None,
        read: Callable[[Files], StereoPair] | None = None,
    ) -> None:
        """List files as samples with further `parts`. Raises InputError if two samples have one name.

        `read` returns the images of a sample whose two views are in one file.
        """
        by_name: dict[str, Files] = {}
        for each in files:
            if each.name in by_name:
                raise InputError(f"two pairs have the name {each.name}, one of them {quote(each.left)}")
            by_name[each.name] = each
        self.names = tuple(sorted(by_name, key=natural_key))
        self._files = tuple(map(by_name.__getitem__, self.names))
        self.parts, self._calibration = tuple(parts), calibration
        self._read, self.has_image_files = read, read is None
        self._absent, self.unpaired = tuple(absent), tuple(unpaired)

    @property
    def files(self) -> tuple[Files, ...]:
        return self._files[: len(self.names)]

    @property
    def absent(self) -> tuple[str, ...]:
        """Missing parts of the tree, and a line for each part that some or all pairs lack."""
        lines = list(self._absent)
        for part in filter(attrgetter("title"), self.parts):
            missing = [each.name for each in self.files if part.name not in each.parts]
            if missing:
                some = f" for {len(missing)} of {len(self)} pairs: {join_names(missing)}"
                lines.append(f"no {part.title}{some if len(missing) < len(self) else ''}")
        return tuple(lines)

    def load(self, index: int) -> Sample:
        """Load a pair, 16-bit images of low contrast stretched as for matching.

        Raises InputError if a file is damaged or its size differs from the left image.
        """
        files = self.files[index]
        known: dict[str, Any] = {"calibration": self._calibration}
        if self._read is None:
            left, right = read_image(files.left).pixels, read_image(files.right).pixels
        else:
            pair = self._read(files)
            left, right = pair.left.pixels, pair.right.pixels
            known["calibration"] = Calibration(**pair.stated) if pair.stated else None
        _check_shape(right, left, files.right, files.left)
        left, right, _ = stretch_levels(left, right)
        for part in self.parts:
            if part.read is not None and (path := files.parts.get(part.name)) is not None:
                values = part.read(path)
                fields = values if isinstance(values, dict) else {part.name: values}
                for name, each in fields.items():
                    for array in each.values() if isinstance(each, dict) else (each,):
                        _check_shape(array, left, path, files.left, finer=name.startswith("fine"))
                known |= fields
        sample = Sample(files.name, left, right, **known)
        return sample if self.downscaling == 1 else downscale_sample(sample, self.downscaling)

    def has_truth(self) -> bool:
        """Return True if any pair has ground truth, according to its first sample or its files."""
        truths = {"disparity", "right_disparity"}
        return super().has_truth() or any(truths & each.parts.keys() for each in self.files)

    def without_truth(self) -> "Listed":
        pairs = Listed((files._replace(parts={}) for files in self.files), read=self._read)
        pairs.spec, pairs.downscaling = self.spec, self.downscaling
        return pairs


def _check_shape(
    values: Any, left: NDArray[np.generic], path: Path, left_path: Path, *, finer: bool = False
) -> None:
    """Raise InputError if an array differs in size from the left image, or, if finer, is not a multiple."""
    if not isinstance(values, np.ndarray):
        return
    height, width = left.shape[:2]
    times = max(1, values.shape[0] // height) if finer else 1
    if values.shape[:2] != (times * height, times * width):
        sizes = f"is {format_size(values.shape)}, but the left image {quote(left_path)} is {width}x{height}"
        hint = "all files of a pair must have the size of the left image"
        raise InputError(f"{quote(path)} {sizes}", hint)


def resize_sample(
    sample: Sample, width: int, height: int, resize: Callable[[NDArray[Any], int, int], NDArray[Any]]
) -> Sample:
    """Resize a sample (px) and drop `fine`; ground truth and masks are resampled by the nearest pixel."""
    ratio = width / sample.left.shape[1]
    changes: dict[str, Any] = {"fine": None, "fine_visible": None}
    for name in ("left", "right"):
        changes[name] = resize(getattr(sample, name), width, height)
    for name in ("disparity", "right_disparity", "visible", "foreground"):
        if (values := getattr(sample, name)) is not None:
            values = resize_nearest(values, width, height)
            changes[name] = values * np.float32(ratio) if name.endswith("disparity") else values
    if sample.masks is not None:
        changes["masks"] = {key: resize_nearest(mask, width, height) for key, mask in sample.masks.items()}
    if sample.calibration is not None:
        changes["calibration"] = sample.calibration.scale_width(ratio)
    return replace(sample, **changes)


def downscale_sample(sample: Sample, times: int) -> Sample:
    """Downscale a sample by area means; its full-size ground truth becomes `fine`. Raises InputError."""
    height, width = sample.left.shape[:2]
    if height % times or width % times:
        raise InputError(f"{sample.name}: both sides must be multiples of {times} px, got {width}x{height}")
    return replace(
        resize_sample(sample, width // times, height // times, resize_area),
        fine=None if sample.disparity is None else sample.disparity / np.float32(times),
        fine_visible=sample.visible,
    )


def pair_files(
    lefts: Mapping[str, Path],
    rights: Mapping[str, Path],
    parts: Sequence[Part] = (),
    places: Mapping[str, Mapping[str, Path]] | None = None,
    absent: Iterable[str] = (),
    calibration: Calibration | None = None,
    read: Callable[[Files], StereoPair] | None = None,
) -> Listed:
    """Return a source of the pairs (by name) whose files exist. `places`: their files by part and name."""
    files, unpaired = [], []
    for name in lefts.keys() | rights.keys():
        left, right = lefts.get(name, Path()), rights.get(name, Path())
        if left.is_file() and right.is_file():
            found = {}
            for part, paths in (places or {}).items():
                if name in paths and paths[name].is_file():
                    found[part] = paths[name]
            files.append(Files(name, left, right, found))
        elif left.is_file():
            unpaired.append(f"{quote(left)} has no right image")
        elif right.is_file():
            unpaired.append(f"{quote(right)} has no left image")
    unpaired.sort(key=natural_key)
    return Listed(files, parts, absent=absent, unpaired=unpaired, calibration=calibration, read=read)


def list_by_stem(folder: Path, suffixes: Sequence[str] = IMAGE_SUFFIXES, ending: str = "") -> dict[str, Path]:
    """Return the files of a folder by stem without `ending`; of equal stems, the earliest suffix wins."""
    found: dict[str, Path] = {}
    ranks: dict[str, int] = {}
    for name, _ in list_entries(folder):
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in suffixes and stem.endswith(ending) and stem != ending:
            rank, key = suffixes.index(suffix.lower()), stem.removesuffix(ending)
            if rank <= ranks.get(key, rank):
                found[key], ranks[key] = folder / name, rank
    return found


def find_root(root: Path, *below: str, holds: Sequence[str]) -> Path:
    """Return the folder that contains one of `holds`: `root`, one of `below` in it, else `root`."""
    for candidate in (root, *(root / name for name in below)):
        if any((candidate / name).is_dir() for name in holds):
            return candidate
    return root
