"""A data set as a list of files: what every data source is made of.

A source's own file says which files belong together (`Files`) and how its truth is stored (a function from
`Files` to `Truth`); everything else - order, lazy reading, sizes, `first` - is here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.sample import Calibration, Sample
from pamcli.data.warping import judge
from pamcli.errors import InputError
from pamcli.files.finding import listed, natural, shown
from pamcli.imaging.images import PICTURE_SUFFIXES, read_picture


@dataclass(frozen=True)
class Files:
    """Where the parts of one sample lie."""

    name: str
    left: Path
    right: Path
    parts: Mapping[str, Path] = field(default_factory=dict)
    """Whatever else is there, by the words of the source: "disparity", "noc", "calibration" ..."""


@dataclass(frozen=True)
class Truth:
    """What a data set knows about a pair; see `Sample` for shapes and units."""

    disparity: NDArray[np.float32] | None = None
    right_disparity: NDArray[np.float32] | None = None
    visible: NDArray[np.bool_] | None = None
    foreground: NDArray[np.bool_] | None = None
    calibration: Calibration | None = None


def no_truth(files: Files) -> Truth:
    """For sets of pictures alone."""
    return Truth()


def truth_of_both_views(files: Files, read: Callable[[Path], NDArray[np.float32]]) -> Truth:
    """For sets whose parts are "disparity" and "right_disparity" in files of one kind, or one of them."""
    left, right = files.parts.get("disparity"), files.parts.get("right_disparity")
    return Truth(
        disparity=read(left) if left else None,
        right_disparity=read(right) if right else None,
    )


class Listed:
    """A `Source`: samples in natural order of their names, read when they are asked for."""

    def __init__(
        self,
        files: Iterable[Files],
        truth: Callable[[Files], Truth] = no_truth,
        *,
        absent: Iterable[str] = (),
        unpaired: Iterable[str] = (),
    ) -> None:
        """truth: reads what is known about a pair; a module's function, so that a source can be pickled.

        absent: parts of the published tree that are not there, a line each. unpaired: views without the
        other one, a line each. Raises InputError: two samples of one name.
        """
        self.files = tuple(sorted(files, key=lambda files: natural(files.name)))
        self.names = tuple(files.name for files in self.files)
        self.absent = tuple(absent)
        self.unpaired = tuple(unpaired)
        self.missing = self.absent + self.unpaired
        self._truth = truth
        if len(set(self.names)) < len(self.names):
            twice = next(a for a, b in zip(self.files, self.files[1:], strict=False) if a.name == b.name)
            raise InputError(f"two pairs are called {twice.name}, one of them {shown(twice.left)}")

    def __len__(self) -> int:
        return len(self.files)

    def load(self, index: int) -> Sample:
        """Read one sample.

        Raises InputError naming the file: missing, damaged, or of another size than the left picture.
        """
        files = self.files[index]
        left = read_picture(files.left).pixels
        size = left.shape[:2]
        right = read_picture(files.right).pixels
        _same_size(right, size, files.right, files.left)
        truth = self._truth(files)
        for part, values in (
            ("disparity", truth.disparity),
            ("right_disparity", truth.right_disparity),
            ("visible", truth.visible),
            ("foreground", truth.foreground),
        ):
            if values is not None:
                _same_size(values, size, files.parts.get(part), files.left, part.replace("_", " "))
        return Sample(
            name=files.name,
            left=left,
            right=right,
            disparity=truth.disparity,
            right_disparity=truth.right_disparity,
            visible=truth.visible,
            foreground=truth.foreground,
            calibration=truth.calibration,
        )

    def check(self, index: int) -> str | None:
        """What is wrong with one sample, on a line; None where nothing is, or nothing can be told.

        Raises InputError as `load` does.
        """
        return judge(self.load(index))

    def without_truth(self) -> Listed:
        """The pairs alone: no file of a truth is opened, nor has to be there."""
        return Listed(Files(files.name, files.left, files.right) for files in self.files)

    def first(self, count: int) -> Listed:
        """The same source with its first `count` samples alone."""
        return Listed(self.files[:count], self._truth, absent=self.absent, unpaired=self.unpaired)


def _same_size(
    values: np.ndarray, size: tuple[int, ...], path: Path | None, left: Path, part: str = "truth"
) -> None:
    if values.shape[:2] != size:
        here, there = (f"{shape[1]} x {shape[0]}" for shape in (values.shape, size))
        subject = shown(path) if path else f"the {part}"
        raise InputError(f"{subject} is {here}, the left picture {shown(left)} is {there}")


def by_stem(folder: Path, suffixes: Sequence[str] = PICTURE_SUFFIXES, ending: str = "") -> dict[str, Path]:
    """The files of a folder by their names without suffix; none where there is no such folder.

    ending: what the stem must end in ("_L"); it is cut off the key. Of several files of one stem the one
    whose suffix comes first in `suffixes` is taken. Raises InputError: the folder cannot be read.
    """
    found: dict[str, Path] = {}
    for name in _names(folder):
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in suffixes and stem.endswith(ending) and len(stem) > len(ending):
            key = stem[: len(stem) - len(ending)]
            other = found.get(key)
            if other is None or suffixes.index(suffix.lower()) < suffixes.index(other.suffix.lower()):
                found[key] = folder / name
    return found


def folders(folder: Path) -> dict[str, Path]:
    """The sub-folders of a folder by their names, in natural order; none where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InputError(f"the folder {shown(folder)} cannot be read: {error.strerror}") from None
    return {name: folder / name for name in sorted(names, key=natural)}


def _names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"the folder {shown(folder)} cannot be read: {error.strerror}") from None


def folders_below(folder: Path, depth: int = 8) -> Iterator[tuple[str, Path, frozenset[str]]]:
    """The folder itself and all below it: path relative to it ("" for itself), path, names of what it holds.

    depth: levels below `folder`; so a circle of links ends, and a wrong path to a whole disk soon does.
    """
    waiting = [("", folder, depth)]
    while waiting:
        below, path, left = waiting.pop()
        yield below, path, frozenset(_names(path))
        if left:
            inner = [(f"{below}/{name}".lstrip("/"), sub, left - 1) for name, sub in folders(path).items()]
            waiting += reversed(inner)


def existing(parts: Mapping[str, Path]) -> dict[str, Path]:
    """Those parts whose files are there."""
    return {part: path for part, path in parts.items() if path.is_file()}


def root_of(root: Path, *below: str, holds: Sequence[str]) -> Path:
    """The folder that holds one of `holds`: `root` itself or one of `below` in it; else `root`.

    Archives unpack with or without their top folder, so both are taken.
    """
    for candidate in (root, *(root / name for name in below)):
        if any((candidate / name).is_dir() for name in holds):
            return candidate
    return root


def unpaired_lines(lefts: Mapping[str, Path], rights: Mapping[str, Path]) -> list[str]:
    """A line for every view without the other one."""
    lonely = [(lefts[key], "right") for key in lefts.keys() - rights.keys()]
    lonely += [(rights[key], "left") for key in rights.keys() - lefts.keys()]
    lonely.sort(key=lambda item: natural(str(item[0])))
    return [f"{shown(path)} has no {other} picture" for path, other in lonely]


def absent_line(part: str, files: Sequence[Files], have: Callable[[Files], bool]) -> list[str]:
    """One line where some of the files, or all, lack a part; none where nothing is lacking.

    part: how to call it ("truth of all pixels (disp_occ_0)").
    """
    lacking = sorted((each.name for each in files if not have(each)), key=natural)
    if not lacking:
        return []
    if len(lacking) == len(files):
        return [f"no {part}"]
    return [f"no {part} for {len(lacking)} of {len(files)} pairs: {listed(lacking)}"]
