"""Read DrivingStereo: 16-bit PNG ground truth, 256 (half size) or 128 (full size) levels per px.

Level 0 is unknown. train and test have folders <split>-left-image, <split>-right-image,
<split>-disparity-map; the weather sets have <weather>/left-image-half-size and so on. Archives unpack with or
without such folders in between, so files are compared by their paths without them.
"""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pamcli.data.listing import Listed, Part, find_root, pair_files, read_scaled_disparity
from pamcli.data.source import make_info
from pamcli.files.paths import walk_folders

_WRAPPER = re.compile(r"(?:left-image|right-image|disparity-map)-(half|full)-size$")
_LEVELS = {"half": 256, "full": 128}


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    size = keys.get("size", "half")
    lefts, rights, truth = (
        _list_files(root, split, kind, size) for kind in ("left-image", "right-image", "disparity-map")
    )
    read = partial(read_scaled_disparity, levels_per_pixel=_LEVELS[size])
    return pair_files(
        lefts, rights, [Part("disparity", "ground truth (disparity-map)", read)], {"disparity": truth}
    )


def _list_files(root: Path, split: str, kind: str, size: str) -> dict[str, Path]:
    top = f"{split}-{kind}"
    home = find_root(root, "DrivingStereo", holds=[top, split])
    home = home / top if split in ("train", "test") else home / split
    found = {}
    for below, folder, names in walk_folders(home, depth=4):
        between = [part for part in below.split("/") if part]
        wrappers = [part for part in between if _WRAPPER.match(part)]
        if any(not part.startswith(kind) or f"-{size}-" not in part for part in wrappers):
            continue
        if split not in ("train", "test") and not wrappers:
            continue  # the folder of a weather set holds folders of every kind
        inside = [part for part in between if part not in wrappers and part != split]
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix.lower() in (".jpg", ".png"):
                found["/".join([*inside, stem])] = folder / name
    return found


INFO = make_info("drivingstereo", open_source)
