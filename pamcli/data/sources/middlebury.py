"""Read Middlebury stereo, 2001 to 2021, and the version 3 evaluation.

| years            | left, right                      | truth, left and right   | stored                     |
| ---------------- | -------------------------------- | ----------------------- | -------------------------- |
| 2001             | im2.ppm, im6.ppm                 | disp2.pgm, disp6.pgm    | 8 levels a pixel           |
| 2001 map         | im0.pgm, im1.pgm                 | disp0.pgm, disp1.pgm    | 8 levels a pixel           |
| 2001 tsukuba     | scene1.row3.col3.ppm, ...col4.ppm| truedisp.row3.col3.pgm  | 16 levels a pixel          |
| 2003             | im2.png, im6.png (or ppm)        | disp2.png, disp6.png    | 4 levels a pixel (450x375) |
| 2005, 2006       | view1.png, view5.png             | disp1.png, disp5.png    | pixels of the full size    |
| 2014, 2021       | im0.png, im1.png                 | disp0.pfm, disp1.pfm    | PFM, +inf unknown          |
| MiddEval3        | im0.png, im1.png                 | disp0GT.pfm, disp1GT.pfm| PFM, +inf unknown          |

Level 0 is unknown. mask0nocc.png: 255 = visible in both images, 128 = only in the left one, 0 = unknown. It
lies beside the images or in a tree of ground truth (MiddEval3GT); the archives of 2014 and 2021 have none.
Without it, a pixel is visible if both ground truths agree within 1 px at its match, as in others' masks for
2021. Images of half or quarter size also use the full-size ground truth, if available: Middlebury evaluates
its pixels. Samples are named by the path of their folder, as MiddEval3 names results
("trainingQ/Adirondack").
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.listing import (
    Listed,
    Part,
    find_root,
    pair_files,
    read_levels,
    read_mask,
    read_rectified_calibration,
    read_scaled_disparity,
)
from pamcli.data.source import make_info
from pamcli.errors import InputError, UsageError
from pamcli.files.paths import list_folders, pluralize, quote, walk_folders
from pamcli.imaging.disparity_files import read_disparity

_NAMES = (
    # Left, right, ground truth of each; the first existing name wins. 2003 comes first: its larger sizes have
    # im0 to im8, and their ground truth does not belong to im0 and im1.
    ("im2.png im2.ppm", "im6.png im6.ppm", "disp2.png disp2.pgm", "disp6.png disp6.pgm"),
    ("im0.png", "im1.png", "disp0GT.pfm disp0.pfm", "disp1GT.pfm disp1.pfm"),
    ("view1.png", "view5.png", "disp1.png", "disp5.png"),
    ("im0.pgm", "im1.pgm", "disp0.pgm", "disp1.pgm"),
    ("scene1.row3.col3.ppm", "scene1.row3.col4.ppm", "truedisp.row3.col3.pgm", ""),
)

_SCENES_2001 = ("barn1", "barn2", "bull", "poster", "sawtooth", "venus")
_HEIGHT_2003, _HEIGHT_2005 = 1500, 1110  # px at full size
_GT_TREES = ("MiddEval3GT", "MiddEval3-GT", "MiddEval3-GT0", "MiddEval3-GT1")
_SHRUNK = {"F": 1, "H": 2, "T": 3, "Q": 4}


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    size = keys.get("size")
    home = find_root(root, "MiddEval3", holds=[f"{part}{s}" for part in ("training", "test") for s in "FHQ"])
    sizes = [s for s in "FHQ" if (home / f"{split}{s}").is_dir()]
    evaluation = any((home / f"{part}{s}").is_dir() for part in ("training", "test") for s in "FHQ")
    scenes: Mapping[str, Path] = {}
    if evaluation:
        if size is None and len(sizes) > 1:
            message = f"{quote(home)} contains {split} images of several sizes"
            raise UsageError(message, "choose one: " + " or ".join(f"?size={size}" for size in sizes))
        size = size or (sizes or ["Q"])[0]
        top = f"{split}{size}"
        scenes = {f"{top}/{name}": folder for name, folder in list_folders(home / top).items()}
    elif split == "training":
        alone = os.path.basename(os.path.abspath(root))
        scenes = {below or alone: folder for below, folder, _ in walk_folders(root, depth=4)}
    read = partial(_read_disparity, size=size)
    shrunk = _SHRUNK.get(size or "F", 1) if evaluation else 1
    truth = (
        Part("disparity", "ground truth", read),
        Part("right_disparity", read=read),
        Part("visible", "visible pixels (mask0nocc.png)", _read_visible),
        Part("fine", "", partial(_read_fine, shrunk=shrunk)),
    )
    calibration = Part("calibration", "calibration (calib.txt)", read_rectified_calibration)
    lefts, rights, truths, right_truths = {}, {}, {}, {}
    for name, folder in scenes.items():
        for names in _NAMES:
            paths = [[folder / name for name in of.split() or [""]] for of in names]
            each = [next(filter(Path.is_file, some), some[0]) for some in paths]
            if each[0].is_file() or each[1].is_file():
                lefts[name], rights[name], truths[name], right_truths[name] = each
                break
    beside = Path(os.path.abspath(home)).parent
    gts = [home, *(beside / name for name in _GT_TREES), *(home / name for name in _GT_TREES)]
    places = {
        "disparity": {name: _find_in_trees(path, home, gts) for name, path in truths.items()},
        "right_disparity": {name: _find_in_trees(path, home, gts) for name, path in right_truths.items()},
        "calibration": {name: folder / "calib.txt" for name, folder in scenes.items()},
    }
    places["visible"] = {
        name: _find_in_trees(folder / "mask0nocc.png", home, gts) for name, folder in scenes.items()
    }
    for name, path in places["disparity"].items():  # without a mask, both ground truths tell it
        both = path.suffix == ".pfm" and path.is_file() and _right_path(path).is_file()
        if both and not places["visible"][name].is_file():
            places["visible"][name] = path
    if shrunk > 1:
        fine = {name: home / f"{split}F" / folder.name / "disp0GT.pfm" for name, folder in scenes.items()}
        places["fine"] = {name: _find_in_trees(path, home, gts) for name, path in fine.items()}
    compared = [name for name in lefts if places["visible"].get(name) == places["disparity"].get(name)]
    note = f"no mask0nocc.png for {pluralize(len(compared), 'pair')}: visible where both ground truths agree"
    parts = (*(truth if split == "training" else ()), calibration)
    found = pair_files(lefts, rights, parts, places, [note] if compared and split == "training" else ())
    found.full_size = evaluation and shrunk == 1
    return found


def _find_in_trees(path: Path, home: Path, trees: Sequence[Path]) -> Path:
    """Return the path of a scene's file in the first tree that has it, else the path itself."""
    below = path.relative_to(home) if path.is_relative_to(home) else Path(path.name)
    return next((tree / below for tree in trees if (tree / below).is_file()), path)


def _right_path(truth: Path) -> Path:
    return truth.with_name(truth.name.replace("disp0", "disp1")) if "disp0" in truth.name else Path()


def _read_visible(path: Path) -> NDArray[np.bool_]:
    """Return the visible pixels (H, W) from a mask, or by comparing the ground truth of both images."""
    if path.suffix != ".pfm":
        return read_mask(path, white=255)
    left, right = read_disparity(path), read_disparity(_right_path(path))
    columns = np.arange(left.shape[1])
    with np.errstate(invalid="ignore"):
        match = np.rint(columns - left)
        inside = (match >= 0) & (match < left.shape[1])
        there = np.take_along_axis(right, np.where(inside, match, 0).astype(np.intp), axis=1)
        seen: NDArray[np.bool_] = inside & (np.abs(there - left) <= 1)
    return seen


def _read_fine(path: Path, shrunk: int) -> dict[str, NDArray[Any]]:
    """Return the full-size ground truth in pixels of the downscaled images, and its mask."""
    found: dict[str, NDArray[Any]] = {"fine": read_disparity(path) / np.float32(shrunk)}
    mask = path.with_name("mask0nocc.png")
    return {**found, "fine_visible": read_mask(mask, white=255)} if mask.is_file() else found


def _read_disparity(path: Path, size: str | None) -> NDArray[np.float32]:
    if path.suffix == ".pfm":
        return read_disparity(path)
    return read_scaled_disparity(path, _get_levels_per_pixel(path, size))


def _get_levels_per_pixel(path: Path, size: str | None) -> float:
    scene = path.parent.name.lower()
    if path.name.startswith("truedisp"):
        return 16
    if path.name in ("disp0.pgm", "disp1.pgm"):
        return 8
    if path.stem in ("disp2", "disp6"):
        if any(name in scene for name in _SCENES_2001):
            return 8
        if "cones" in scene or "teddy" in scene:
            # Quarter size, the most common, has 4 levels per px; half and full size have 2 and 1.
            return 4 / {"F": 4, "H": 2}.get(size or _guess_size(path, _HEIGHT_2003, "FHQ"), 1)
        raise InputError(
            f"{quote(path)}: the folder name, which determines the scale, is unknown",
            f"name the folder {', '.join(_SCENES_2001)}, cones or teddy, or store it as disp0GT.pfm",
        )
    return _SHRUNK[size or _guess_size(path, _HEIGHT_2005, "FHT")]


def _guess_size(path: Path, full_height: int, sizes: str) -> str:
    height = read_levels(path).shape[0]
    for size in sizes:
        if height == full_height // _SHRUNK[size]:
            return size
    message = f"{quote(path)} is {height} px high, which is not a size of Middlebury"
    raise InputError(message, "add ?size= to the path: F (full), H (half), T (a third) or Q (a quarter)")


INFO = make_info("middlebury", open_source)
