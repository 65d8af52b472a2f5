"""Read Scene Flow: FlyingThings3D, Driving and Monkaa (Freiburg), each alone or all in one folder.

FlyingThings3D:  TRAIN|TEST / A|B|C / 0000 / left|right / 0006.png
Driving:         15mm_focallength|35mm_focallength / scene_backwards|scene_forwards / fast|slow / left ...
Monkaa:          a_rain_of_stones_x2 / left ...
each below frames_cleanpass and frames_finalpass (images) and disparity (PFM, positive in most releases).
"""

from collections.abc import Mapping
from pathlib import Path

from pamcli.data.listing import Listed, Part, list_by_stem, pair_files, read_positive_disparity
from pamcli.data.source import make_info
from pamcli.errors import InputError
from pamcli.files.paths import list_folders, quote, walk_folders

_SUFFIXES = (".png", ".webp")
_PARTS = (
    Part("disparity", "disparity of the left image", read_positive_disparity),
    Part("right_disparity", "disparity of the right image", read_positive_disparity),
)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    wanted, part = f"frames_{keys.get('pass', 'final')}pass", keys.get("part", "all")
    homes = [root, *list_folders(root).values(), *list_folders(root / "SceneFlow").values()]
    images: dict[str, dict[str, Path]] = {"left": {}, "right": {}}
    truth: dict[str, dict[str, Path]] = {"disparity": {}, "right_disparity": {}}
    for home in homes:
        for below, folder, names in walk_folders(home / wanted, depth=4):
            if not ({"left", "right"} & names and _is_chosen(below, split, part)):
                continue
            above = [name for name in ("" if home == root else home.name, below) if name]
            for (side, found), known in zip(images.items(), truth.values(), strict=True):
                for key, path in list_by_stem(folder / side, _SUFFIXES).items():
                    name = "/".join([*above, key])
                    found[name] = path
                    known[name] = home / "disparity" / below / side / f"{key}.pfm"
    source = pair_files(images["left"], images["right"], _PARTS, truth)
    if not len(source):
        other = "clean" if wanted == "frames_finalpass" else "final"
        for home in homes:
            if (home / f"frames_{other}pass").is_dir() and not (home / wanted).is_dir():
                message = f"{quote(home)} contains frames_{other}pass, but not {wanted}"
                raise InputError(message, f"add ?pass={other} to the path")
    return source


def _is_chosen(below: str, split: str, part: str) -> bool:
    """Return True if a folder of frames belongs to the chosen split and part, according to its path."""
    top = below.partition("/")[0]
    if top in ("TRAIN", "TEST"):
        return part in ("all", "flyingthings3d") and top == split.upper()
    which = "driving" if top.endswith("mm_focallength") else "monkaa"
    return part in ("all", which) and split == "train"  # Driving and Monkaa have no test split


INFO = make_info("sceneflow", open_source)
