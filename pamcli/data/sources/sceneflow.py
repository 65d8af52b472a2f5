"""Scene Flow: FlyingThings3D, Driving and Monkaa (Freiburg), each alone or all in one folder.

FlyingThings3D:  TRAIN|TEST / A|B|C / 0000 / left|right / 0006.png
Driving:         15mm_focallength|35mm_focallength / scene_backwards|scene_forwards / fast|slow / left ...
Monkaa:          a_rain_of_stones_x2 / left ...
each below frames_cleanpass and frames_finalpass (pictures) and disparity (PFM, positive in most releases).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pamcli.data.decoding import read_positive_disparity
from pamcli.data.listing import (
    Files,
    Listed,
    Truth,
    absent_line,
    by_stem,
    existing,
    folders,
    folders_below,
    truth_of_both_views,
    unpaired_lines,
)
from pamcli.errors import InputError
from pamcli.files.finding import shown

_PICTURES = (".png", ".webp")


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    wanted, part = f"frames_{keys.get('pass', 'final')}pass", keys.get("part", "all")
    found: list[Files] = []
    unpaired: list[str] = []
    homes = [root, *folders(root).values(), *folders(root / "SceneFlow").values()]
    for home in homes:
        prefix = "" if home == root else f"{home.name}/"
        for below, folder, names in folders_below(home / wanted, depth=4):
            if not {"left", "right"} & names or not _chosen(below, split, part):
                continue
            lefts, rights = by_stem(folder / "left", _PICTURES), by_stem(folder / "right", _PICTURES)
            unpaired += unpaired_lines(lefts, rights)
            truths = home / "disparity" / below
            for number in lefts.keys() & rights.keys():
                parts = {
                    "disparity": truths / "left" / f"{number}.pfm",
                    "right_disparity": truths / "right" / f"{number}.pfm",
                }
                name = f"{prefix}{below}/{number}"
                found.append(Files(name, lefts[number], rights[number], existing(parts)))
    if not found:
        _hint_at_the_other_pass(homes, wanted)
    absent = absent_line("disparity of the left view", found, lambda files: "disparity" in files.parts)
    absent += absent_line("disparity of the right view", found, lambda f: "right_disparity" in f.parts)
    return Listed(found, _truth, absent=absent, unpaired=unpaired)


def _chosen(below: str, split: str, part: str) -> bool:
    """Whether a folder of frames is wanted; which set it belongs to is told by its path."""
    top = below.partition("/")[0]
    if top in ("TRAIN", "TEST"):
        return part in ("all", "flyingthings3d") and top == split.upper()
    which = "driving" if top.endswith("mm_focallength") else "monkaa"
    return part in ("all", which) and split == "train"  # these two have no test split


def _hint_at_the_other_pass(homes: list[Path], wanted: str) -> None:
    other = "clean" if wanted == "frames_finalpass" else "final"
    for home in homes:
        if (home / f"frames_{other}pass").is_dir() and not (home / wanted).is_dir():
            raise InputError(
                f"{shown(home)} has no {wanted}, but frames_{other}pass",
                f"ask for it: add ?pass={other} to the path",
            )


def _truth(files: Files) -> Truth:
    return truth_of_both_views(files, read_positive_disparity)
