"""Holopix50k: pictures of phones with two cameras, without truth, in <split>/left and <split>/right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pamcli.data.listing import Listed, Tree, by_stem, root_of
from pamcli.data.source import SourceInfo


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "Holopix50k", holds=[split]) / split
    lefts, rights = (
        {stem.removesuffix(f"_{side}"): path for stem, path in by_stem(home / side).items()}
        for side in ("left", "right")
    )
    tree = Tree()
    tree.add_all(lefts, rights, home)
    return tree.listed()


INFO = SourceInfo(
    "holopix50k",
    "Holopix50k, pictures of phones with two cameras; no truth",
    ("train", "val", "test"),
    ("train/left/NAME_left.jpg", "train/right/NAME_right.jpg"),
    open_source,
    unverified="the names of the pictures",
)
