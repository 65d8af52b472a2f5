"""CREStereo's rendered pairs (README and dataset.py of its authors): 16-bit PNG truth, 32 levels a pixel."""

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
    by_stem,
    existing,
    folders_below,
    root_of,
    truth_of_both_views,
    unpaired_lines,
)

_PARTS = ("tree", "shapenet", "reflective", "hole")


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "CREStereo", "crestereo", "stereo_trainset/crestereo", holds=_PARTS)
    wanted = keys.get("part", "all")
    found: list[Files] = []
    unpaired: list[str] = []
    for part in _PARTS if wanted == "all" else (wanted,):
        for below, folder, names in folders_below(home / part, depth=2):
            if not names:
                continue
            lefts, rights = (by_stem(folder, (".jpg",), f"_{side}") for side in ("left", "right"))
            unpaired += unpaired_lines(lefts, rights)
            for stem in lefts.keys() & rights.keys():
                parts = {
                    "disparity": folder / f"{stem}_left.disp.png",
                    "right_disparity": folder / f"{stem}_right.disp.png",
                }
                name = "/".join(filter(None, (part, below, stem)))
                found.append(Files(name, lefts[stem], rights[stem], existing(parts)))
    absent = [] if wanted != "all" else [f"no part {part}" for part in _PARTS if not (home / part).is_dir()]
    absent += absent_line("truth (_left.disp.png)", found, lambda files: "disparity" in files.parts)
    absent += absent_line("right truth (_right.disp.png)", found, lambda f: "right_disparity" in f.parts)
    return Listed(found, _truth, absent=absent, unpaired=unpaired)


def _truth(files: Files) -> Truth:
    return truth_of_both_views(files, partial(read_scaled_disparity, levels_per_pixel=32))
