"""A data set as a list of files: what every data source is made of.

A source's own file says which files belong together, by `Patterns` or for `paired`, and how each of them is
read (`Part`); everything else - order, lazy reading, sizes, what is lacking, `first` - is here.
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

from pamcli.calibration.rectified import Calibration
from pamcli.data.source import FRAMES, Files, Key, Sample, Source, SourceInfo
from pamcli.errors import InputError
from pamcli.files.finding import entries_of, folders_below, listed, natural, shown
from pamcli.files.suffixes import PICTURE_SUFFIXES
from pamcli.imaging.images import read_picture
from pamcli.imaging.resize import area_mean, nearest


@dataclass(frozen=True)
class Part:
    """One thing that a data set knows about its pairs, in a file of its own."""

    name: str
    """Key in `Files.parts`; where it is read, a field of `Sample`, too."""
    called: str = ""
    """How it is called where it is lacking: "truth (disp0GT.pfm)"; "" = its lack is not reported."""
    read: Callable[[Path], Any] | None = None
    """A module's function, so that a source can be pickled. None: for others to read; its result None: there
    is nothing after all; a dictionary: several fields of `Sample`, by their names."""
    file: str = ""
    """File of `Patterns` that holds it."""


def truths(read: Callable[[Path], Any], left: str, right: str = "") -> tuple[Part, ...]:
    """Disparity of the left view and, unless it has no name, of the right one, in files of one kind.

    left, right: how they are called, and their files.
    """
    both = (("disparity", "truth", left), ("right_disparity", "right truth", right))
    return tuple(Part(name, f"{what} ({of})", read, of) for name, what, of in both if of)


class Listed(Source):
    """Samples that are files, in natural order of their names."""

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
        """parts: beside the pictures. absent: what else of the published tree is not there, a line each.

        unpaired: views without the other one, a line each. calibration: of all pairs, where no file tells it.
        Raises InputError: two samples of one name.
        """
        self._files = tuple(sorted(files, key=lambda files: natural(files.name)))
        self.names = tuple(files.name for files in self._files)
        self.parts, self._calibration = tuple(parts), calibration
        self._elsewhere, self.unpaired = tuple(absent), tuple(unpaired)
        if len(set(self.names)) < len(self.names):
            twice = next(a for a, b in itertools.pairwise(self._files) if a.name == b.name)
            raise InputError(f"two pairs are called {twice.name}, one of them {shown(twice.left)}")

    @property
    def files(self) -> tuple[Files, ...]:
        return self._files[: len(self)]

    @property
    def absent(self) -> tuple[str, ...]:
        """What was named so, and a line for each part that some of the files, or all, lack."""
        lines = list(self._elsewhere)
        for part in filter(lambda part: part.called, self.parts):
            lacking = [each.name for each in self.files if part.name not in each.parts]
            if lacking:
                some = f" for {len(lacking)} of {len(self)} pairs: {listed(lacking)}"
                lines.append(f"no {part.called}{some if len(lacking) < len(self) else ''}")
        return tuple(lines)

    def load(self, index: int) -> Sample:
        """Load a pair and what is known of it.

        Raises InputError naming the file: missing, damaged, or of another size than the left picture.
        """
        files = self.files[index]
        left, right = (read_picture(path).pixels for path in (files.left, files.right))
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
        """Whether any pair has disparities to learn from: as its first sample says, or by its files."""
        truths = {"disparity", "right_disparity"}
        return super().has_truth() or any(truths & each.parts.keys() for each in self.files)

    def without_truth(self) -> "Listed":
        pairs = Listed(Files(files.name, files.left, files.right) for files in self.files)
        pairs.spec, pairs.times = self.spec, self.times
        return pairs


def _check_size(
    values: Any, left: NDArray[np.generic], path: Path, of_left: Path, *, finer: bool = False
) -> None:
    """Raise InputError where an array is not of the left picture's size, or finer by no whole number."""
    if not isinstance(values, np.ndarray):
        return
    height, width = left.shape[:2]
    times = max(1, values.shape[0] // height) if finer else 1
    if values.shape[:2] != (times * height, times * width):
        here, there = (f"{shape[1]} x {shape[0]}" for shape in (values.shape, left.shape))
        raise InputError(f"{shown(path)} is {here}, the left picture {shown(of_left)} is {there}")


def resized(
    sample: Sample, width: int, height: int, picture: Callable[[NDArray[Any], int, int], NDArray[Any]]
) -> Sample:
    """Bring a sample to pictures of `width` x `height` pixels, which `picture` makes of those that are there.

    Disparities by the nearest pixel, never by a mean across an edge, and times the ratio of the widths; masks
    by the nearest pixel; the calibration (focal length and offset) by the ratio of the widths. Without a
    finer truth. Raises ValueError: a side below 1.
    """
    ratio = width / sample.left.shape[1]

    def picked(values: NDArray[Any] | None) -> Any:
        return None if values is None else nearest(values, width, height)

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
        calibration=sample.calibration and sample.calibration.of_width(lambda side: side * ratio),
    )


def reduced(sample: Sample, times: int) -> Sample:
    """Make both pictures a whole number of times smaller on each side, by the means of areas.

    Truth and masks of the new size are those of the pixels in the middle of each area, disparities in pixels
    of the new size; the whole truth is `fine`. Raises InputError: a side that is no multiple.
    """
    height, width = (side // times for side in sample.left.shape[:2])
    if (height * times, width * times) != sample.left.shape[:2]:
        raise InputError(f"{sample.name} is no multiple of {times} pixels on each side")
    return replace(
        resized(sample, width, height, area_mean),
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
    """A source of the pairs whose pictures, by the pairs' names, are both there; see `Listed`.

    places: by the names of parts and of pairs; a pair has those of its parts that are there.
    """
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
            unpaired.append(f"{shown(only)} has no {other} picture")
    unpaired.sort(key=natural)
    return Listed(files, parts, absent=absent, unpaired=unpaired, calibration=calibration)


def by_stem(folder: Path, suffixes: Sequence[str] = PICTURE_SUFFIXES, ending: str = "") -> dict[str, Path]:
    """The files of a folder by their names without suffix; none where there is no such folder.

    ending: what the stem must end in ("_L"); it is cut off the key. Of several files of one stem the one
    whose suffix comes first in `suffixes` is taken. Raises InputError: the folder cannot be read.
    """
    found: dict[str, Path] = {}
    for name, _ in entries_of(folder):
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in suffixes and stem.endswith(ending) and len(stem) > len(ending):
            key = stem[: len(stem) - len(ending)]
            other = found.get(key)
            if other is None or suffixes.index(suffix.lower()) < suffixes.index(other.suffix.lower()):
                found[key] = folder / name
    return found


@dataclass(frozen=True)
class Patterns:
    """A data set whose files are found by patterns of their paths below its top folder.

    Between "/" a pattern is a regular expression, but for a dot, which is a dot, `*`, any text, and `**`, any
    folders, up to three deep. `{split}` and `{key}` stand for what is asked for; where "all" of a key are,
    for any of its values. Pairs go by the texts that `*`, `**`, such keys and groups stand for.
    """

    left: str
    right: str
    parts: tuple[Part, ...] = ()
    """The texts of the pair are `{0}`, `{1}` ... of a file; "|" separates places, of which one is there."""
    tops: tuple[str, ...] = ()
    """Folders that archives unpack into: the top folder, where it is not the one that is given."""
    labelled: str = ""
    """The split that has truth; "" = all."""
    calibration: Calibration | None = None
    """Calibration of all pairs, where no file tells it."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """How many times smaller pictures are made, by what the key "size" may say."""
    name: str = "{}"
    """What a pair is called: its texts are put into the braces."""

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
        """Make its row of the table of data sets."""
        return SourceInfo(name, about, splits, tree, partial(self.open, keys), keys, unverified, scene)

    def open(self, known: tuple[Key, ...], root: Path, split: str, keys: Mapping[str, str]) -> Listed:
        """The pairs below a folder. known: keys that can be asked for; keys: what is asked for."""
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
    """What is called so, by the texts that the groups of a pattern stand for; see `Patterns`."""
    found: dict[tuple[str, ...], Path] = {(): home}
    for part in pattern.split("/"):
        found = dict(_entered(found, part))
    return found


def _entered(found: Mapping[tuple[str, ...], Path], part: str) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Whatever fits one part of a pattern in some folders, in the order of names."""
    rule = re.compile(re.sub(r"\.(?!\+)", r"\.", part).replace("*", "(.+)"), re.IGNORECASE)
    for texts, folder in found.items():
        if part == "**":
            yield from (((*texts, below), path) for below, path, _ in folders_below(folder, 3))
            continue
        for name in sorted(name for name, _ in entries_of(folder)):
            if match := rule.fullmatch(name):
                yield (*texts, *match.groups()), folder / name


def root_of(root: Path, *below: str, holds: Sequence[str]) -> Path:
    """The folder that holds one of `holds`: `root` itself or one of `below` in it; else `root`.

    Archives unpack with or without their top folder, so both are taken.
    """
    for candidate in (root, *(root / name for name in below)):
        if any((candidate / name).is_dir() for name in holds):
            return candidate
    return root
