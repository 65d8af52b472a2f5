"""DrivingStereo: 16-bit PNG truth, 256 levels a pixel at half size and 128 at full size, 0 = unknown.

train and test have folders <split>-left-image, <split>-right-image, <split>-disparity-map; the weather sets
<weather>/left-image-half-size and so on. Archives unpack with folders such as left-image-half-size in
between, or without them; so files are compared by their paths without such folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pamcli.data.decoding import read_scaled_disparity
from pamcli.data.listing import (
    Files,
    Listed,
    Truth,
    absent_line,
    folders_below,
    root_of,
    truth_of_both_views,
    unpaired_lines,
)

_WRAPPER = re.compile(r"(?:left-image|right-image|disparity-map)-(half|full)-size$")
_LEVELS = {"half": 256, "full": 128}


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    size = keys.get("size", "half")
    lefts, rights, truths = (
        _files(root, split, kind, size) for kind in ("left-image", "right-image", "disparity-map")
    )
    found = [
        Files(key, lefts[key], rights[key], {"disparity": truths[key]} if key in truths else {})
        for key in lefts.keys() & rights.keys()
    ]
    absent = absent_line("truth (disparity-map)", found, lambda files: "disparity" in files.parts)
    truth = partial(_truth, levels_per_pixel=_LEVELS[size])
    return Listed(found, truth, absent=absent, unpaired=unpaired_lines(lefts, rights))


def _files(root: Path, split: str, kind: str, size: str) -> dict[str, Path]:
    top = f"{split}-{kind}"
    home = root_of(root, "DrivingStereo", holds=[top, split])
    home = home / top if split in ("train", "test") else home / split
    found = {}
    for below, folder, names in folders_below(home, depth=4):
        between = [part for part in below.split("/") if part]
        wrappers = [part for part in between if _WRAPPER.match(part)]
        if any(not part.startswith(kind) or f"-{size}-" not in part for part in wrappers):
            continue
        if split not in ("train", "test") and not wrappers:
            continue  # a weather's own folder holds those of all kinds
        inside = [part for part in between if part not in wrappers and part != split]
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix.lower() in (".jpg", ".png"):
                found["/".join([*inside, stem])] = folder / name
    return found


def _truth(files: Files, levels_per_pixel: int) -> Truth:
    return truth_of_both_views(files, partial(read_scaled_disparity, levels_per_pixel=levels_per_pixel))
