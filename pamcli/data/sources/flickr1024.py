"""Flickr1024: pictures, or the patches that the scripts of PASSRnet's and iPASSR's authors cut from them.

Pictures are 0001_L.png and 0001_R.png in Train, Validation and Test, or all in one folder. Patches are
folders 000001 with hr0.png, hr1.png (left and right, high resolution: what a sample holds), lr0.png, lr1.png.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pamcli.data.listing import Files, Listed, by_stem, folders, root_of, unpaired_lines
from pamcli.errors import UsageError
from pamcli.files.finding import shown

_SPLITS = {"train": "Train", "validation": "Validation", "test": "Test"}


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "Flickr1024", holds=tuple(_SPLITS.values()))
    folder = home / _SPLITS[split]
    if not folder.is_dir():
        folder = root  # all in one folder, or the folder of a split itself
        if patches := _patches(root, keys.get("scale")):
            return Listed(patches)
    lefts, rights = by_stem(folder, ending="_L"), by_stem(folder, ending="_R")
    found = [Files(stem, lefts[stem], rights[stem]) for stem in lefts.keys() & rights.keys()]
    return Listed(found, unpaired=unpaired_lines(lefts, rights))


def _patches(root: Path, scale: str | None) -> list[Files]:
    """One for each folder of patches. There are 300,000 of them, so only the first is looked into."""
    homes = [f"patches_x{x}" for x in ("2", "4") if scale in (None, x) and (root / f"patches_x{x}").is_dir()]
    if len(homes) > 1:
        raise UsageError(f"{shown(root)} has {' and '.join(homes)}", "say which: ?scale=2 or ?scale=4")
    inner = folders(root / homes[0] if homes else root)
    first = next(iter(inner.values()), None)
    if first is None or not (first / "hr0.png").is_file():
        return []
    return [Files(name, folder / "hr0.png", folder / "hr1.png") for name, folder in inner.items()]
