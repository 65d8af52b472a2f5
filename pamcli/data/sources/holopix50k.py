"""Holopix50k: pictures of phones with two cameras, without truth, in <split>/left and <split>/right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pamcli.data.listing import Files, Listed, by_stem, root_of, unpaired_lines


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "Holopix50k", holds=[split]) / split
    lefts, rights = (
        {stem.removesuffix(f"_{side}"): path for stem, path in by_stem(home / side).items()}
        for side in ("left", "right")
    )
    found = [Files(stem, lefts[stem], rights[stem]) for stem in lefts.keys() & rights.keys()]
    return Listed(found, unpaired=unpaired_lines(lefts, rights))
