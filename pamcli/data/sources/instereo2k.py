"""InStereo2K: a folder a pair; 16-bit PNG truth, 100 levels a pixel, 0 = unknown (the publisher's README).

Other code divides by 1024 or 256; 100 is what the publisher says.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pamcli.data.decoding import read_scaled_disparity
from pamcli.data.listing import Listed, Tree, folders_below, root_of, truths
from pamcli.data.source import SourceInfo

_PARTS = truths(partial(read_scaled_disparity, levels_per_pixel=100), "left_disp.png", "right_disp.png")


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "InStereo2k", "InStereo2K", holds=[split]) / split
    tree = Tree(_PARTS)
    for below, folder, _ in folders_below(home, depth=3):  # train is split into part1, part2 ...
        tree.add(below, folder / "left.png", folder / "right.png", folder)
    return tree.listed()


INFO = SourceInfo(
    "instereo2k",
    "InStereo2K, indoor scenes",
    ("train", "test"),
    (
        "train/part1/000000/left.png",
        "train/part1/000000/right.png",
        "train/part1/000000/left_disp.png, right_disp.png",
    ),
    open_source,
    unverified="the names of folders and files",
)
