"""Define a data set: its row in the table, its interface once it is opened, and its samples."""

from __future__ import annotations

import copy
import hashlib
import re
import textwrap
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pamcli.calibration.geometry import Calibration
    from pamcli.scenes.hard_cases import HardCases

FRAMES = r"(.+)/[^/]*\d{3}[^/]*"
"""Default pattern for sample names: numbered frames in a folder per scene; the group is the scene."""

LARGEST_SEED = 2**63 - 1  # for training; larger seeds of an endless data set are reserved for validation


@dataclass(frozen=True)
class Sample:
    """A rectified image pair with its ground truth. Masks and ground truth have the size of the images."""

    name: str  # unique in its source, without suffix; "/" separates folders
    left: NDArray[np.generic]  # (H, W, 3) RGB, uint8 or uint16
    right: NDArray[np.generic]
    disparity: NDArray[np.float32] | None = None  # (H, W) px, NaN = unknown
    right_disparity: NDArray[np.float32] | None = None  # (H, W) px, positive
    visible: NDArray[np.bool_] | None = None  # (H, W) pixels visible in both images; None = unknown
    foreground: NDArray[np.bool_] | None = None  # (H, W) object map of KITTI: pixels of cars; None = unknown
    calibration: Calibration | None = None
    low_left: NDArray[np.uint8] | None = None  # (H / s, W / s, 3), downscaled by a whole s, if stored
    low_right: NDArray[np.uint8] | None = None
    masks: Mapping[str, NDArray[np.bool_]] | None = None  # (H, W), by the names of `REGIONS`
    fine: NDArray[np.float32] | None = None  # (s * H, s * W) ground truth on a finer grid, px of the images
    fine_visible: NDArray[np.bool_] | None = None  # (s * H, s * W); None = unknown
    units: float | None = None  # units per pixel of the file, if the key `scale` can override them


class Files(NamedTuple):
    """Paths of the parts of one sample."""

    name: str
    left: Path
    right: Path
    parts: Mapping[str, Path] = {}  # further files by part name: "disparity", "noc", "calibration" ...


class Source(ABC):
    """A data set. Opening it lists the samples; only `load` reads images. Can be pickled."""

    names: tuple[str, ...] = ()  # names of the samples, in a stable natural order
    unpaired: tuple[str, ...] = ()  # images without a counterpart, a line each
    checks_itself = False  # True if `check` finds more than `verify` does by warping with the ground truth
    spec: DataSpec | None = None  # the parsed specification; set by `open_data`
    endless = False  # True if training renders new samples without end (`render`)
    has_image_files = False  # True if every sample is two image files
    downscaling = 1  # downscaling factor of the images; their ground truth keeps its full size
    full_size = False  # True if the images have the size that the benchmark is measured at
    has_patches = False  # True if every sample is a window of an image

    def __len__(self) -> int:
        return len(self.names)

    @property
    def files(self) -> Sequence[Files]:
        """Files of each sample, in the order of `names`."""
        return ()

    @property
    def view_files(self) -> Iterator[Path]:
        """Paths of all images."""
        return (view for each in self.files for view in (each.left, each.right))

    @property
    def absent(self) -> tuple[str, ...]:
        """Missing parts of the published tree, a line each, as "no object maps (obj_map)"."""
        return ()

    @abstractmethod
    def load(self, index: int) -> Sample:
        """Load one sample. Raises InputError, naming the file, if one is missing or damaged."""

    def first(self, count: int) -> Source:
        """Limit the data set to its first `count` samples."""
        fewer = copy.copy(self)
        fewer.names = self.names[:count]
        return fewer

    def spread(self, count: int) -> list[int]:
        """Return the indices of at most `count` evenly spaced samples, including the first and the last."""
        count = min(count, len(self))
        return [round(index * (len(self) - 1) / max(count - 1, 1)) for index in range(count)]

    def render(self, series: int, number: int, height: int, width: int) -> Sample:
        """Render sample `number` of a series of an endless data set, with images of height x width."""
        raise NotImplementedError

    def with_hard_cases(self, hard: HardCases) -> Source:
        """Return an endless data set with these hard cases, unless its specification sets others."""
        return self

    def check(self, index: int) -> str | None:
        """Return an error message for one sample, or None, if the set `checks_itself`. Raises InputError."""
        return None

    def scene(self, name: str) -> str:
        """Return the name of the scene that a sample belongs to; samples of one scene look alike."""
        found = re.fullmatch(self.spec.info.scene if self.spec else FRAMES, name)
        return found[1] if found else name

    def has_truth(self) -> bool:
        """Return True if the first sample (at least) has ground truth. Raises InputError."""
        sample = self.load(0)
        return sample.disparity is not None or sample.right_disparity is not None

    def without_truth(self) -> Source:
        """Return the same pairs without ground truth; its files are never opened and may be missing."""
        return self

    def whole_images(self) -> Source:
        """Return the whole images stored with a set of patches, else this data set itself."""
        return self

    def fingerprint(self) -> str:
        """Return a digest of the sample names, which changes with the samples."""
        return digest(self.names)


def format_size(shape: Sequence[int]) -> str:
    """Format a shape (H, W, ...) for messages as WIDTHxHEIGHT."""
    return f"{shape[1]}x{shape[0]}"


def digest(names: Sequence[str]) -> str:
    """Return a digest of 16 hexadecimal digits."""
    return hashlib.sha256("\n".join(names).encode(errors="surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True)
class Key:
    """An option of a data set behind "?", as in NAME:PATH?key=value."""

    name: str
    meaning: str
    choices: tuple[str, ...]  # allowed values; () = any text
    default: str | None = None  # None = determined by the files


@dataclass(frozen=True)
class SourceInfo:
    """A row of the table of data sets, declared next to its reader in `pamcli.data.sources`."""

    name: str
    about: str
    splits: tuple[str, ...]  # the first one is the default
    tree: tuple[str, ...]  # files of one sample; left and right image come first
    open: Callable[[Any, str, Mapping[str, str]], Source]
    """Function that lists the samples for a folder (None only if none is needed), split and keys. It
    returns an empty source if the layout is not recognised. Raises InputError, UsageError."""
    keys: tuple[Key, ...] = ()
    unverified: str = ""  # facts that were not checked against the publisher's own documentation; "" = none
    scene: str = FRAMES  # pattern of sample names whose first group is the scene
    needs_folder: bool = True  # False if NAME alone, without a path, is valid too
    may_be_file: bool = False  # True if the path may name a file

    def describe(self, width: int) -> list[str]:
        """Return lines of at most `width` characters about the options and the expected layout."""
        entries = [("splits", ", ".join(self.splits))]
        for key in self.keys:
            choices = ", ".join(f"{each} (default)" if each == key.default else each for each in key.choices)
            choices += "" if key.default else "; default: whatever exists"
            text = f"{key.meaning}: {choices}" if key.choices else key.meaning
            text += "" if key.choices or key.default is None else f" (default {key.default})"
            entries.append((f"?{key.name}=", text))
        lines = [f"{self.name}: {self.about}"]
        for word, text in entries:
            lines += _wrap(word, text, width)
        lines += [f"  {'' if index else 'tree':12}{line}" for index, line in enumerate(self.tree)]
        return lines + _wrap("unverified", self.unverified, width)

    def expected(self, split: str) -> str:
        """Return the names of the images of one sample, on one line."""
        images = ", ".join(line.split("  ")[0] for line in self.tree[:2])
        if split.startswith(("test", "val")):
            for form in (str, str.capitalize, str.upper):
                images = images.replace(form(self.splits[0]), form(split))
        return images


def _wrap(word: str, text: str, width: int) -> list[str]:
    """Wrap a text into lines that are indented below the word."""
    lines = textwrap.wrap(text, width - 14, break_on_hyphens=False)
    return [f"  {'' if index else f'{word} ':12}{line}" for index, line in enumerate(lines)]


_TEXT = resources.files("pamcli.data").joinpath("data_sets.toml").read_text(encoding="utf-8")
DATA_SETS: Mapping[str, dict[str, Any]] = tomllib.loads(_TEXT)


def make_info(name: str, open: Callable[[Any, str, Mapping[str, str]], Source], *keys: Key) -> SourceInfo:
    """Return the row of a data set, with its texts in `data_sets.toml` and further keys."""
    row = DATA_SETS[name]
    stored = [
        Key(key, meaning, tuple(choices.split()), *default)
        for key, (meaning, choices, *default) in row.get("keys", {}).items()
    ]
    texts = row["about"], tuple(row["splits"]), tuple(row["tree"].split("\n"))
    others = {key: row[key] for key in ("unverified", "scene", "needs_folder", "may_be_file") if key in row}
    return SourceInfo(name, *texts, open, (*stored, *keys), **others)


class DataSpec(NamedTuple):
    """A specification checked against the table of data sets, but not yet against the disk."""

    text: str  # the specification as the user wrote it
    label: str  # NAME/SPLIT for tables; NAME if the data set has one split
    info: SourceInfo
    split: str
    path: Path | None  # folder of the data set; None for a data set without one, such as procedural scenes
    keys: Mapping[str, str] = {}  # keys of the source itself, without defaults
    first: int | None = None
    weight: float = 1.0
