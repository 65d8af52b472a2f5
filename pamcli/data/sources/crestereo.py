"""CREStereo's rendered pairs (README and dataset.py of its authors): 16-bit PNG truth, 32 levels a pixel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pamcli.data.decoding import read_scaled_disparity
from pamcli.data.listing import Listed, root_of, truths, views_side_by_side
from pamcli.data.source import Key, SourceInfo

_SETS = ("tree", "shapenet", "reflective", "hole")
_PARTS = truths(partial(read_scaled_disparity, levels_per_pixel=32), "{}_left.disp.png", "{}_right.disp.png")


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "CREStereo", "crestereo", "stereo_trainset/crestereo", holds=_SETS)
    sets = _SETS if keys.get("part", "all") == "all" else (keys["part"],)
    return views_side_by_side(home, sets, _PARTS, 2, (".jpg",), "_")


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
