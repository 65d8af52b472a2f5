"""Any pairs: folders `left` and `right`, paired by equal stem, and perhaps `disparity` in any format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pamcli.data.listing import Listed, by_stem, paired, truths
from pamcli.data.source import Files, SourceInfo
from pamcli.files.finding import pictures_by_stem
from pamcli.files.suffixes import DISPARITY_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    # Two pictures of one stem in a folder are refused, not chosen from.
    sides = (root / "left", root / "right")
    lefts, rights = (pictures_by_stem(side) if side.is_dir() else {} for side in sides)
    truth = by_stem(root / "disparity", DISPARITY_SUFFIXES)
    unpaired: list[str] = []
    found = [
        Files(stem, left, right, {"disparity": truth[stem]} if stem in truth else {})
        for stem, left, right in paired(lefts, rights, unpaired)
    ]
    return Listed(found, truths(read_disparity, "disparity"), unpaired=unpaired)


INFO = SourceInfo(
    "pairs",
    "any pairs, paired by equal names without suffix",
    ("all",),
    (
        "left/NAME.png",
        "right/NAME.png",
        "disparity/NAME.pfm  (optional; .png in 1/256 px, .npy, .tif)",
    ),
    open_source,
)
