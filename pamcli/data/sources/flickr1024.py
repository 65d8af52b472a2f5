"""Read Flickr1024: image pairs, or patches cut by `pam dataset prepare-flickr1024` or the authors' scripts.

Images are 0001_L.png and 0001_R.png in Train, Validation and Test, or all in one folder. Patches are
folders 000001 with hr0.png, hr1.png (left and right, high resolution), lr0.png, lr1.png, or packed.
"""

import bisect
import itertools
import os
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pamcli.data.listing import find_root, list_by_stem, pair_files
from pamcli.data.source import Files, Sample, Source, make_info
from pamcli.errors import InputError, UsageError
from pamcli.files.paths import list_folders, natural_key, quote
from pamcli.flickr1024 import stores
from pamcli.flickr1024.stores import Index, Patch, StoreName, StorePaths, Views
from pamcli.imaging.images import read_image

_SPLITS = {"train": "Train", "validation": "Validation", "test": "Test"}


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Source:
    home = find_root(root, "Flickr1024", holds=tuple(_SPLITS.values()))
    folder = home / _SPLITS[split]
    if not folder.is_dir():
        folder = root  # all images in one folder, or the folder of a split
        if patches := _open_patches(root, split, keys):
            return patches
        if (root / "pairs").is_dir():  # from stereograms
            folder = root / "pairs"
    return pair_files(list_by_stem(folder, ending="_L"), list_by_stem(folder, ending="_R"))


class _Patches(Source):
    """A large set of patches; no object is created for a patch before it is loaded."""

    has_patches = True

    def __init__(self, paths: StorePaths, names: tuple[str, ...]) -> None:
        self._paths, self.names = paths, names

    @property
    def absent(self) -> tuple[str, ...]:
        return () if self._paths.manifest.is_file() else ("no list of checksums",)

    @abstractmethod
    def patch(self, index: int) -> Patch:
        """Return the pixels of one patch. Raises InputError naming the damaged file."""

    def load(self, index: int) -> Sample:
        left, right, low_left, low_right = self.patch(index)
        return Sample(self.names[index], left, right, low_left=low_left, low_right=low_right)

    checks_itself = True

    def check(self, index: int) -> str | None:
        checksum = self.patch(index).checksum()
        if self.absent or self._checksums.get(self.names[index]) == checksum:
            return None
        return f"its pixels differ from the checksum in {quote(self._paths.manifest)}"

    @cached_property
    def _checksums(self) -> dict[str, str]:
        return stores.read_checksums(self._paths.manifest)


class PatchFolders(_Patches):
    """Patches as PNG files, each in its own folder."""

    @property
    def files(self) -> tuple[Files, ...]:
        def of(name: str) -> Files:
            left, right, low_left, low_right = (self._paths.store / name / file for file in stores.VIEW_FILES)
            return Files(name, left, right, {"low_left": low_left, "low_right": low_right})

        return tuple(map(of, self.names))

    def patch(self, index: int) -> Patch:
        paths = [self._paths.store / self.names[index] / file for file in stores.VIEW_FILES]
        high_left, high_right, low_left, low_right = views = [read_image(path).pixels for path in paths]
        for view, other, path in ((high_right, high_left, paths[1]), (low_right, low_left, paths[3])):
            if view.shape != other.shape:
                raise InputError(f"{quote(path)} must have the size of the left image")
        scale = high_left.shape[0] // low_left.shape[0]
        if tuple(side * scale for side in low_left.shape[:2]) != high_left.shape[:2]:
            raise InputError(f"{quote(paths[0])} must be a whole multiple of the size of {quote(paths[2])}")
        if any(view.dtype != np.uint8 for view in views):
            raise InputError(f"{quote(paths[0].parent)} contains 16-bit images; patches must have 8 bits")
        return Patch(high_left, high_right, low_left, low_right)


class _Packed(Source):
    """Samples stored in one file of pixels, which each process maps into memory at the first read."""

    def __init__(self, paths: StorePaths, index: Index) -> None:
        self._paths, self.index = paths, index
        self._opened: list[Views] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": []}

    @property
    def files(self) -> tuple[Files, ...]:
        pixels = self._paths.store / "pixels.npy"
        return tuple(Files(name, pixels, pixels) for name in self.names)

    @property
    def _views(self) -> list[Views]:
        """All image pairs, mapped but not yet read. Raises InputError if the file is damaged or too short."""
        if not self._opened:
            path = self._paths.store / "pixels.npy"
            pixels = stores.open_pixels(path)
            try:
                pictures = self.index.pictures
                self._opened = [stores.get_views(pixels, picture, self.index.scale) for picture in pictures]
            except ValueError:
                message = f"{quote(path)} is damaged: it does not match {quote(self._paths.index)}"
                raise InputError(message) from None
        return self._opened


class PackedPatches(_Packed, _Patches):
    """Patches stored in one file."""

    def __init__(self, paths: StorePaths, index: Index) -> None:
        _Packed.__init__(self, paths, index)
        _Patches.__init__(self, paths, index.names())
        self._ends = list(itertools.accumulate(picture.patches for picture in index.pictures))
        self._boxes = [picture.list_corners(index.scale) for picture in index.pictures]

    def patch(self, index: int) -> Patch:
        picture = bisect.bisect_right(self._ends, index)
        boxes = self._boxes[picture]
        row, column = boxes[index - self._ends[picture] + len(boxes)]
        return stores.cut_patch(self._views[picture], row, column)

    def whole_images(self) -> "PackedImages":
        """Return the whole image pairs that the patches are windows of."""
        return PackedImages(self._paths, self.index)


class PackedImages(_Packed):
    """The whole images of a packed store of patches."""

    def __init__(self, paths: StorePaths, index: Index) -> None:
        super().__init__(paths, index)
        names = [f"{picture.source}/{picture.name}" for picture in index.pictures]
        self.names = tuple(sorted(names, key=natural_key))
        self._order = {name: number for number, name in enumerate(names)}

    def load(self, index: int) -> Sample:
        views = self._views[self._order[self.names[index]]]
        high, low = (np.ascontiguousarray(pixels.transpose(1, 0, 2, 3)) for pixels in (views.high, views.low))
        return Sample(self.names[index], high[0], high[1], low_left=low[0], low_right=low[1])


def _open_patches(root: Path, split: str, keys: Mapping[str, str]) -> Source | None:
    """Return the patches below an output folder, or in `root` itself; None if there are none."""
    wanted = [scale for scale in stores.SCALES if keys.get("scale") in (None, str(scale))]
    there = [StorePaths.of(root, scale, store) for scale in wanted for store in get_args(StoreName)]
    there = [paths for paths in there if paths.store.is_dir()]
    if len(there) > 1:
        both = " and ".join(paths.store.name for paths in there)
        raise UsageError(
            f"{quote(root)} contains {both}", "choose one: ?scale=2 or ?scale=4, or give its folder"
        )
    if there:
        (paths,) = there
    elif (root / "pixels.npy").is_file():
        paths = StorePaths(root, root / "manifest.csv", root / "index.json")
    else:
        store = Path(os.path.abspath(root))
        paths = StorePaths(root, *(store.parent / f"{store.name}{suffix}" for suffix in (".csv", ".json")))
        if unfinished := sorted(root.glob("*x[24].unfinished")):
            raise InputError(
                f"{quote(unfinished[0])} was not completed", "repeat the command that started it"
            )
    whole = keys.get("view") == "pictures"
    index = stores.read_index(paths.index) if paths.index.is_file() else None
    if index is not None and keys.get("scale") not in (None, str(index.scale)):
        raise InputError(f"{quote(paths.store)} contains patches of x{index.scale}, not x{keys['scale']}")
    if index is not None and split not in (index.split, "train"):
        raise InputError(
            f"{quote(paths.store)} contains patches of the split {quote(index.split)}, not {split}"
        )
    if (paths.store / "pixels.npy").is_file():
        if index is None:
            raise InputError(f"{quote(paths.index)} is missing", "prepare the folder again")
        return PackedImages(paths, index) if whole else PackedPatches(paths, index)
    names = index.names() if index else tuple(list_folders(paths.store))
    # A store has 300,000 patches, so only the first is checked.
    if not names or not (index or (paths.store / names[0] / stores.VIEW_FILES[0]).is_file()):
        return None
    if whole:
        raise UsageError(f"{quote(paths.store)} contains no whole images", "only packed stores contain them")
    return PatchFolders(paths, names)


INFO = make_info("flickr1024", open_source)
