"""CREStereo's rendered pairs (README and dataset.py of its authors): 16-bit PNG truth, 32 levels a pixel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pamcli.data.decoding import read_scaled_disparity
from pamcli.data.listing import Listed, by_stem, existing, folders_below, paired, root_of, truths
from pamcli.data.source import Files, Key, SourceInfo

_SETS = ("tree", "shapenet", "reflective", "hole")
_PARTS = truths(partial(read_scaled_disparity, levels_per_pixel=32), "_left.disp.png", "_right.disp.png")


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "CREStereo", "crestereo", "stereo_trainset/crestereo", holds=_SETS)
    wanted = keys.get("part", "all")
    found: list[Files] = []
    unpaired: list[str] = []
    for part in _SETS if wanted == "all" else (wanted,):
        for below, folder, names in folders_below(home / part, depth=2):
            if not names:
                continue
            lefts, rights = (by_stem(folder, (".jpg",), f"_{side}") for side in ("left", "right"))
            for stem, left, right in paired(lefts, rights, unpaired):
                parts = existing(
                    disparity=folder / f"{stem}_left.disp.png",
                    right_disparity=folder / f"{stem}_right.disp.png",
                )
                found.append(Files("/".join(filter(None, (part, below, stem))), left, right, parts))
    absent = [] if wanted != "all" else [f"no part {part}" for part in _SETS if not (home / part).is_dir()]
    return Listed(found, _PARTS, absent=absent, unpaired=unpaired)


INFO = SourceInfo(
    "crestereo",
    "CREStereo's rendered pairs",
    ("train",),
    (
        "tree/0_left.jpg",
        "tree/0_right.jpg",
        "tree/0_left.disp.png, 0_right.disp.png",
    ),
    open_source,
    (Key("part", "one of the four sets", ("all", *_SETS), "all"),),
)
