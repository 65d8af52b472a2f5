"""What a data set is: its row in the table, what it can do once it is opened, and what it gives of a pair.

Neither numpy nor any reader is imported here.
"""

from __future__ import annotations

import copy
import hashlib
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pamcli.calibration.rectified import Calibration
    from pamcli.scenes.hard_cases import HardCases

FRAMES = r"(.+)/[^/]*\d{3}[^/]*"
"""Pattern of names: frames with numbers, of a folder of one scene, which is its group."""

LARGEST_SEED = 2**63 - 1  # of training. Series of an endless data set beyond it are for checks


@dataclass(frozen=True)
class Sample:
    """A rectified pair. Masks and truths have the size of the pictures."""

    name: str
    """Unique within its source, without suffix; "/" separates folders. Predictions go by this name."""
    left: NDArray[np.generic]
    """(H, W, 3) RGB, uint8 or uint16."""
    right: NDArray[np.generic]
    disparity: NDArray[np.float32] | None = None
    """(H, W) truth of the left view, pixels, NaN = unknown; where the source has all pixels, all of them."""
    right_disparity: NDArray[np.float32] | None = None
    """(H, W) truth of the right view, pixels, positive too, NaN = unknown."""
    visible: NDArray[np.bool_] | None = None
    """(H, W) left pixels that the right view sees too (non-occluded); None = not known."""
    foreground: NDArray[np.bool_] | None = None
    """(H, W) KITTI's object map: pixels of cars; None = not known."""
    calibration: Calibration | None = None
    low_left: NDArray[np.uint8] | None = None
    """(H / s, W / s, 3) RGB: the left picture reduced by a whole number s, where the source stores it, as do
    sets of training patches; None = to be made. Both views have it, or none."""
    low_right: NDArray[np.uint8] | None = None
    masks: Mapping[str, NDArray[np.bool_]] | None = None
    """(H, W) other parts that the source tells apart, by the names of `evaluation.regions.REGIONS`."""
    fine: NDArray[np.float32] | None = None
    """(s * H, s * W) truth of the left view on a grid s times finer, in pixels of the pictures,
    NaN = unknown; None = there is none."""
    fine_visible: NDArray[np.bool_] | None = None
    """(s * H, s * W) `visible` on that grid; None = not known there."""
    units: float | None = None
    """Units per pixel by which the file of the truth was read, where the key `scale` can state others."""


@dataclass(frozen=True)
class Files:
    """Where the parts of one sample lie."""

    name: str
    left: Path
    right: Path
    parts: dict[str, Path] = field(default_factory=dict)
    """Whatever else is there, by the words of the source: "disparity", "noc", "calibration" ..."""


class Source(ABC):
    """A data set. Opening one lists it; pictures are read by `load` alone. Can be pickled."""

    names: tuple[str, ...] = ()
    """Names of the samples, in a stable natural order."""
    unpaired: tuple[str, ...] = ()
    """Views without the other one, a line each."""
    checks_itself = False
    """Whether `check` tells more than a trial of the truth on the pictures (`verify`)."""
    spec: DataSpec | None = None
    """What was asked for; set by `open_data`."""
    endless = False
    """Training draws ever new samples (`draw`) instead of passing over those that are listed."""
    of_pictures = False
    """Every sample is two picture files."""
    times = 1
    """How many times smaller the pictures are made than on disk; their truth stays as fine as it is."""
    full_size = False
    """The pictures are known to be of the size that a benchmark measures in."""
    of_patches = False
    """Every sample is a window of a picture."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def label(self) -> str:
        """NAME/SPLIT, for tables; "" where it was not opened by a name."""
        return "" if self.spec is None else self.spec.label

    @property
    def files(self) -> Sequence[Files]:
        """The files of each sample, in the order of `names`."""
        return ()

    @property
    def view_files(self) -> Iterator[Path]:
        """The pictures of all samples."""
        return (view for each in self.files for view in (each.left, each.right))

    @property
    def absent(self) -> tuple[str, ...]:
        """Parts of the published tree that are not there, a line each ("no object maps (obj_map)")."""
        return ()

    @property
    def missing(self) -> tuple[str, ...]:
        """What is absent or unpaired."""
        return self.absent + self.unpaired

    @abstractmethod
    def load(self, index: int) -> Sample:
        """Read one sample. Raises InputError naming the file that is missing or damaged."""

    def first(self, count: int) -> Source:
        """Limit the data set to its first `count` samples."""
        fewer = copy.copy(self)
        fewer.names = self.names[:count]
        return fewer

    def spread(self, count: int) -> list[int]:
        """Indices of at most `count` samples, evenly spaced, the first and the last one among them."""
        count = min(count, len(self))
        return [round(index * (len(self) - 1) / max(count - 1, 1)) for index in range(count)]

    def draw(self, series: int, number: int, height: int, width: int) -> Sample:
        """Draw sample `number` of a series of an endless data set, in pictures of height x width."""
        raise NotImplementedError

    def with_hard_cases(self, hard: HardCases) -> Source:
        """An endless data set with these hard cases among its samples, unless it was asked for others."""
        return self

    def check(self, index: int) -> str | None:
        """Say what is wrong with one sample, where the set `checks_itself`. Raises InputError."""
        return None

    def scene(self, name: str) -> str:
        """Name the scene that a sample shows; those of one scene are alike."""
        rule = self.spec.info.scene if self.spec else FRAMES
        found = re.fullmatch(rule, name)
        return found[1] if found else name

    def has_truth(self) -> bool:
        """Whether there are disparities to learn from, in its first sample at least. Raises InputError."""
        sample = self.load(0)
        return sample.disparity is not None or sample.right_disparity is not None

    def without_truth(self) -> Source:
        """The pairs alone: no file of a truth is opened, nor has to be there."""
        return self

    def pictures(self) -> Source:
        """The whole pictures, where these are patches that are kept with them; else this data set itself."""
        return self

    def fingerprint(self) -> str:
        """Changes with the samples that there are: a digest of their names."""
        return digest(self.names)


def digest(names: Sequence[str]) -> str:
    """16 hexadecimal digits."""
    return hashlib.sha256("\n".join(names).encode(errors="surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True)
class Key:
    """What can be asked of a data set behind "?": NAME:PATH?key=value."""

    name: str
    meaning: str
    choices: tuple[str, ...]
    """() = any text."""
    default: str | None = None
    """None: whatever the tree holds."""


@dataclass(frozen=True)
class SourceInfo:
    """A row of the table of data sets. It stands beside the reader, in a file of `pamcli.data.sources`."""

    name: str
    about: str
    splits: tuple[str, ...]
    """The first is the default."""
    tree: tuple[str, ...]
    """Files of one sample as the publisher's archives unpack; left and right picture come first."""
    open: Callable[[Any, str, Mapping[str, str]], Source]
    """Lists the samples of a folder (None only where none is needed), a split and keys. A tree that is not
    recognised gives none. Raises InputError, UsageError."""
    keys: tuple[Key, ...] = ()
    unverified: str = ""
    """What was not read in the publisher's own text or tool kit; "" = all was."""
    scene: str = FRAMES
    """Pattern of samples' names whose first group is the scene; a name that does not match is a scene."""
    needs_folder: bool = True
    """False: NAME alone, without a path, means something, too."""

    def described(self, width: int) -> Iterator[str]:
        """Say what can be asked for and what tree is expected, in lines of at most so many characters."""

        def entry(word: str, text: str) -> Iterator[str]:
            for index, line in enumerate(textwrap.wrap(text, width - 14, break_on_hyphens=False)):
                yield f"  {'' if index else word:12}{line}"

        yield f"{self.name}: {self.about}"
        yield from entry("splits", ", ".join(self.splits))
        for key in self.keys:
            choices = ", ".join(f"{each} (default)" if each == key.default else each for each in key.choices)
            choices += "" if key.default else "; default: whatever is there"
            said = f": {choices}" if choices else f" (default {key.default})"
            yield from entry(f"?{key.name}=", f"{key.meaning}{said}")
        for index, line in enumerate(self.tree):
            yield f"  {'' if index else 'tree':12}{line}"
        yield from entry("unverified", self.unverified)

    def expected(self, split: str) -> str:
        """The pictures of one sample, on one line."""
        pictures = ", ".join(line.split("  ")[0] for line in self.tree[:2])
        if split.startswith(("test", "val")):
            default = self.splits[0]
            for form in (str, str.capitalize, str.upper):
                pictures = pictures.replace(form(default), form(split))
        return pictures


@dataclass(frozen=True)
class DataSpec:
    """A data set that was asked for, checked against the table of sources, not yet looked for on disk."""

    text: str
    """The specification as it was given."""
    info: SourceInfo
    split: str
    path: Path | None
    """None where a data set that needs no folder was given without one."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of the source itself, defaults not filled in."""
    first: int | None = None
    weight: float = 1.0

    @property
    def label(self) -> str:
        """NAME/SPLIT, for tables."""
        return self.info.name if len(self.info.splits) == 1 else f"{self.info.name}/{self.split}"
