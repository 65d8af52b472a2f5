"""InStereo2K: a folder a pair; 16-bit PNG truth, 100 levels a pixel, 0 = unknown (the publisher's README).

Other code divides by 1024 or 256; 100 is what the publisher says.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pamcli.data.decoding import read_scaled_disparity
from pamcli.data.listing import (
    Files,
    Listed,
    Truth,
    absent_line,
    existing,
    folders_below,
    root_of,
    truth_of_both_views,
)
from pamcli.files.finding import shown


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "InStereo2k", "InStereo2K", holds=[split]) / split
    found, unpaired = [], []
    for below, folder, names in folders_below(home, depth=3):  # train is split into part1, part2 ...
        if {"left.png", "right.png"} <= names:
            parts = existing(
                {"disparity": folder / "left_disp.png", "right_disparity": folder / "right_disp.png"}
            )
            found.append(Files(below, folder / "left.png", folder / "right.png", parts))
        elif {"left.png", "right.png"} & names:
            there, other = ("left", "right") if "left.png" in names else ("right", "left")
            unpaired.append(f"{shown(folder / there)}.png has no {other} picture")
    absent = absent_line("truth (left_disp.png)", found, lambda files: "disparity" in files.parts)
    absent += absent_line("right truth (right_disp.png)", found, lambda f: "right_disparity" in f.parts)
    return Listed(found, _truth, absent=absent, unpaired=unpaired)


def _truth(files: Files) -> Truth:
    return truth_of_both_views(files, partial(read_scaled_disparity, levels_per_pixel=100))
