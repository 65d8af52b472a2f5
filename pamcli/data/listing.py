"""List the files of a data set: the base of all data sources.

The file of a source declares which files belong together (`Patterns` or `paired`) and how each is read
(`Part`). Order, lazy loading, size checks, missing files and `first` are handled here.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.geometry import Calibration
from pamcli.data.source import FRAMES, Files, Key, Sample, Source, SourceInfo
from pamcli.errors import InputError
from pamcli.files.paths import join_names, list_entries, natural_key, quote, walk_folders
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.imaging.images import read_image
from pamcli.imaging.resize import resize_area, resize_nearest


@dataclass(frozen=True)
class Part:
    """A kind of file that a data set has for each pair, such as ground truth or calibration."""

    name: str
    """Key in `Files.parts`; also a field of `Sample` if the file is read."""
    called: str = ""
    """Name in reports of missing files, as "truth (disp0GT.pfm)"; "" = not reported."""
    read: Callable[[Path], Any] | None = None
    """Function at module level (so that a source can be pickled) that reads the file, or None. It returns
    the value of the field, None if there is no value, or a dictionary of several fields of `Sample`."""
    file: str = ""
    """Pattern of the file in `Patterns`."""


def truths(read: Callable[[Path], Any], left: str, right: str = "") -> tuple[Part, ...]:
    """Return the parts for left ground truth and, unless `right` is "", for right ground truth."""
    both = (("disparity", "truth", left), ("right_disparity", "right truth", right))
    return tuple(Part(name, f"{what} ({of})", read, of) for name, what, of in both if of)


class Listed(Source):
    """A data source of image files, sorted naturally by name."""

    of_pictures = True

    def __init__(
        self,
        files: Iterable[Files],
        parts: Sequence[Part] = (),
        *,
        absent: Iterable[str] = (),
        unpaired: Iterable[str] = (),
        calibration: Calibration | None = None,
    ) -> None:
        """List files as samples. Raises InputError if two of them have the same name.

        Args:
            files: Files of each sample.
            parts: Parts besides the images.
            absent: Missing parts of the published tree, a line each.
            unpaired: Images without a counterpart, a line each.
            calibration: Calibration of all pairs, if no file contains one.
        """
        self._files = tuple(sorted(files, key=lambda files: natural_key(files.name)))
        self.names = tuple(files.name for files in self._files)
        self.parts, self._calibration = tuple(parts), calibration
        self._elsewhere, self.unpaired = tuple(absent), tuple(unpaired)
        if len(set(self.names)) < len(self.names):
            twice = next(a for a, b in itertools.pairwise(self._files) if a.name == b.name)
            raise InputError(f"two pairs are called {twice.name}, one of them {quote(twice.left)}")

    @property
    def files(self) -> tuple[Files, ...]:
        return self._files[: len(self)]

    @property
    def absent(self) -> tuple[str, ...]:
        """Missing parts of the tree, and a line for each part that some or all pairs lack."""
        lines = list(self._elsewhere)
        for part in filter(lambda part: part.called, self.parts):
            lacking = [each.name for each in self.files if part.name not in each.parts]
            if lacking:
                some = f" for {len(lacking)} of {len(self)} pairs: {join_names(lacking)}"
                lines.append(f"no {part.called}{some if len(lacking) < len(self) else ''}")
        return tuple(lines)

    def load(self, index: int) -> Sample:
        """Load a pair. Raises InputError if a file is damaged or its size differs from the left image."""
        files = self.files[index]
        left, right = (read_image(path).pixels for path in (files.left, files.right))
        known: dict[str, Any] = {"calibration": self._calibration}
        _check_size(right, left, files.right, files.left)
        for part in self.parts:
            if part.read is not None and (path := files.parts.get(part.name)) is not None:
                values = part.read(path)
                fields = values if isinstance(values, dict) else {part.name: values}
                for name, each in fields.items():
                    for array in each.values() if isinstance(each, dict) else (each,):
                        _check_size(array, left, path, files.left, finer=name.startswith("fine"))
                known |= fields
        sample = Sample(files.name, left, right, **known)
        return sample if self.times == 1 else reduced(sample, self.times)

    def has_truth(self) -> bool:
        """Return True if any pair has ground truth, according to its first sample or its files."""
        truths = {"disparity", "right_disparity"}
        return super().has_truth() or any(truths & each.parts.keys() for each in self.files)

    def without_truth(self) -> "Listed":
        pairs = Listed(Files(files.name, files.left, files.right) for files in self.files)
        pairs.spec, pairs.times = self.spec, self.times
        return pairs


def _check_size(
    values: Any, left: NDArray[np.generic], path: Path, of_left: Path, *, finer: bool = False
) -> None:
    """Raise InputError if an array differs in size from the left image, or, if finer, is not a multiple."""
    if not isinstance(values, np.ndarray):
        return
    height, width = left.shape[:2]
    times = max(1, values.shape[0] // height) if finer else 1
    if values.shape[:2] != (times * height, times * width):
        here, there = (f"{shape[1]} x {shape[0]}" for shape in (values.shape, left.shape))
        raise InputError(f"{quote(path)} is {here}, the left picture {quote(of_left)} is {there}")


def resized(
    sample: Sample, width: int, height: int, picture: Callable[[NDArray[Any], int, int], NDArray[Any]]
) -> Sample:
    """Return a sample with images of `width` x `height` px, made by `picture`, without `fine`.

    Disparities and masks take the nearest pixel, never a mean across an edge. Disparities and the calibration
    are scaled by the ratio of the widths. Raises ValueError if a side is below 1.
    """
    ratio = width / sample.left.shape[1]

    def picked(values: NDArray[Any] | None) -> Any:
        return None if values is None else resize_nearest(values, width, height)

    def truth(values: NDArray[np.float32] | None) -> Any:
        return None if values is None else picked(values) * np.float32(ratio)

    return replace(
        sample,
        left=picture(sample.left, width, height),
        right=picture(sample.right, width, height),
        disparity=truth(sample.disparity),
        right_disparity=truth(sample.right_disparity),
        visible=picked(sample.visible),
        foreground=picked(sample.foreground),
        masks=sample.masks and {name: picked(mask) for name, mask in sample.masks.items()},
        fine=None,
        fine_visible=None,
        calibration=sample.calibration and sample.calibration.scale_width(ratio),
    )


def reduced(sample: Sample, times: int) -> Sample:
    """Downscale the images of a sample by area means; see `resized`.

    Ground truth and masks take the pixel in the middle of each area, with disparities in new pixels. The
    full-size ground truth becomes `fine`. Raises InputError if a side is not a multiple of `times`.
    """
    height, width = (side // times for side in sample.left.shape[:2])
    if (height * times, width * times) != sample.left.shape[:2]:
        raise InputError(f"{sample.name} is no multiple of {times} pixels on each side")
    return replace(
        resized(sample, width, height, resize_area),
        fine=None if sample.disparity is None else sample.disparity / np.float32(times),
        fine_visible=sample.visible,
    )


def paired(
    lefts: Mapping[str, Path],
    rights: Mapping[str, Path],
    parts: Sequence[Part] = (),
    places: Mapping[str, Mapping[str, Path]] | None = None,
    absent: Iterable[str] = (),
    calibration: Calibration | None = None,
) -> Listed:
    """Return a source of the pairs (by name) whose left and right file both exist; see `Listed`."""
    files, unpaired = [], []
    for name in lefts.keys() | rights.keys():
        left, right = lefts.get(name, Path()), rights.get(name, Path())
        here, there = left.is_file(), right.is_file()
        if here and there:
            beside = {part: of[name] for part, of in (places or {}).items() if name in of}
            known = {part: path for part, path in beside.items() if path.is_file()}
            files.append(Files(name, left, right, known))
        elif here or there:
            only, other = (left, "right") if here else (right, "left")
            unpaired.append(f"{quote(only)} has no {other} picture")
    unpaired.sort(key=natural_key)
    return Listed(files, parts, absent=absent, unpaired=unpaired, calibration=calibration)


def by_stem(folder: Path, suffixes: Sequence[str] = IMAGE_SUFFIXES, ending: str = "") -> dict[str, Path]:
    """Return the files of a folder by stem; empty if the folder does not exist.

    Of several files with one stem, the earliest in `suffixes` wins. Stems must end in `ending` (as "_L"),
    which is removed from the key. Raises InputError if the folder cannot be read.
    """
    found: dict[str, Path] = {}
    for name, _ in list_entries(folder):
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in suffixes and stem.endswith(ending) and len(stem) > len(ending):
            key = stem[: len(stem) - len(ending)]
            other = found.get(key)
            if other is None or suffixes.index(suffix.lower()) < suffixes.index(other.suffix.lower()):
                found[key] = folder / name
    return found


@dataclass(frozen=True)
class Patterns:
    """A data set whose files match path patterns below its top folder.

    Between "/", a pattern is a regular expression, except that a dot is literal, `*` matches any text and
    `**` up to three levels of folders. `{split}` and `{key}` are replaced by the chosen values, "all" by any
    value. Files with equal texts for `*`, `**`, such keys and groups form a pair.
    """

    left: str
    right: str
    parts: tuple[Part, ...] = ()
    """In a file pattern, `{0}`, `{1}` ... are the texts of the pair; "|" separates alternatives."""
    tops: tuple[str, ...] = ()
    """Folders that archives unpack into; one of them may be the top folder."""
    labelled: str = ""
    """The split with ground truth; "" = every split."""
    calibration: Calibration | None = None
    """Calibration of all pairs, if no file contains one."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Downscaling factor of the images for each value of the key "size"."""
    name: str = "{}"
    """Template of a pair's name; the braces are replaced by its texts."""

    def row(
        self,
        name: str,
        about: str,
        splits: tuple[str, ...],
        tree: tuple[str, ...],
        keys: tuple[Key, ...] = (),
        unverified: str = "",
        scene: str = FRAMES,
    ) -> SourceInfo:
        """Return the row of this data set for the table of data sets."""
        return SourceInfo(name, about, splits, tree, partial(self.open, keys), keys, unverified, scene)

    def open(self, known: tuple[Key, ...], root: Path, split: str, keys: Mapping[str, str]) -> Listed:
        """Return the pairs below a folder, for the chosen values `keys` of the `known` keys."""
        said = {"split": split} | {key.name: keys.get(key.name, key.default or "") for key in known}
        sets = {key.name: key.choices[1:] for key in known if key.choices[0] == "all"}
        sets = {name: values if said[name] == "all" else (said[name],) for name, values in sets.items()}
        filled = said | {name: f"({'|'.join(values)})" for name, values in sets.items()}
        left, right = self.left.format(**filled), self.right.format(**filled)
        tops = [root, *(root / name for name in self.tops)]
        first = left.partition("/")[0]
        home = next((top for top in tops if any(_entered({(): top}, first))), root)
        lefts, rights = matching(home, left), matching(home, right)
        names = {texts: self.name.format("/".join(filter(None, texts))) for texts in {**lefts, **rights}}
        parts = [p for p in self.parts if self.labelled in ("", split) or p.name == "calibration"]
        places: dict[str, dict[str, Path]] = {part.name: {} for part in parts}
        for part, (texts, name) in itertools.product(parts, names.items()):
            there = [home / place for place in part.file.format(*texts, **said).split("|")]
            places[part.name][name] = next(filter(Path.is_file, there), home)
        in_front = [name for name in sets if self.left.startswith(f"{{{name}}}")]
        lacking = [(name, each) for name in in_front for each in sets[name] if not (home / each).is_dir()]
        found = paired(
            {names[texts]: path for texts, path in lefts.items()},
            {names[texts]: path for texts, path in rights.items()},
            *(parts, places, [f"no {name} {each}" for name, each in lacking], self.calibration),
        )
        found.times = self.sizes.get(said.get("size", ""), 1)
        found.full_size = bool(self.sizes) and found.times == 1
        return found


def matching(home: Path, pattern: str) -> dict[tuple[str, ...], Path]:
    """Return the paths that match a pattern, by the texts of its groups; see `Patterns`."""
    found: dict[tuple[str, ...], Path] = {(): home}
    for part in pattern.split("/"):
        found = dict(_entered(found, part))
    return found


def _entered(found: Mapping[tuple[str, ...], Path], part: str) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the entries of some folders that match one part of a pattern, sorted by name."""
    rule = re.compile(re.sub(r"\.(?!\+)", r"\.", part).replace("*", "(.+)"), re.IGNORECASE)
    for texts, folder in found.items():
        if part == "**":
            yield from (((*texts, below), path) for below, path, _ in walk_folders(folder, 3))
            continue
        for name in sorted(name for name, _ in list_entries(folder)):
            if match := rule.fullmatch(name):
                yield (*texts, *match.groups()), folder / name


def root_of(root: Path, *below: str, holds: Sequence[str]) -> Path:
    """Return the folder that contains one of `holds`: `root`, one of `below` in it, else `root`.

    Archives unpack with or without their top folder, so both layouts are accepted.
    """
    for candidate in (root, *(root / name for name in below)):
        if any((candidate / name).is_dir() for name in holds):
            return candidate
    return root
