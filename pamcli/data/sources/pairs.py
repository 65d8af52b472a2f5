"""Any pairs: folders `left` and `right`, paired by equal stem, and perhaps `disparity` in any format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.listing import (
    Files,
    Listed,
    Truth,
    absent_line,
    by_stem,
    truth_of_both_views,
    unpaired_lines,
)
from pamcli.files.finding import pictures_by_stem
from pamcli.files.suffixes import DISPARITY_SUFFIXES
from pamcli.imaging.disparity_files import read_disparity


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    # Two pictures of one stem in a folder are refused, not chosen from.
    lefts, rights = (pictures_by_stem(root / side) if (root / side).is_dir() else {} for side in _SIDES)
    truths = by_stem(root / "disparity", DISPARITY_SUFFIXES)
    found = [
        Files(stem, lefts[stem], rights[stem], {"disparity": truths[stem]} if stem in truths else {})
        for stem in lefts.keys() & rights.keys()
    ]
    absent = absent_line("truth (disparity)", found, lambda files: "disparity" in files.parts)
    return Listed(found, _truth, absent=absent, unpaired=unpaired_lines(lefts, rights))


_SIDES = ("left", "right")


def _truth(files: Files) -> Truth:
    return truth_of_both_views(files, _read)


def _read(path: Path) -> NDArray[np.float32]:
    disparity: NDArray[np.float32] = read_disparity(path)
    return disparity
