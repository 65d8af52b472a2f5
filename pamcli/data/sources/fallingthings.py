"""Falling Things (NVIDIA's readme): depth in steps of 0.1 mm, cameras 6 cm apart, focal length in a JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.decoding import disparity_of_depth, read_levels, read_text
from pamcli.data.listing import (
    Files,
    Listed,
    Truth,
    absent_line,
    by_stem,
    existing,
    folders_below,
    root_of,
    unpaired_lines,
)
from pamcli.data.sample import Calibration
from pamcli.errors import InputError
from pamcli.files.finding import shown

_PARTS = ("single", "mixed")
_METRES_PER_LEVEL = 1e-4
_BASELINE = 0.06
_SATURATED = 65535  # 6.55 m: whatever lies farther


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "fat", "FallingThings", "data", holds=_PARTS)
    wanted = keys.get("part", "all")
    found: list[Files] = []
    unpaired: list[str] = []
    for part in _PARTS if wanted == "all" else (wanted,):
        for below, folder, names in folders_below(home / part, depth=3):
            if not names:
                continue
            lefts, rights = (by_stem(folder, (".png", ".jpg"), f".{side}") for side in ("left", "right"))
            unpaired += unpaired_lines(lefts, rights)
            for number in lefts.keys() & rights.keys():
                parts = {
                    "disparity": folder / f"{number}.left.depth.png",
                    "right_disparity": folder / f"{number}.right.depth.png",
                    "calibration": folder / "_camera_settings.json",
                }
                name = "/".join(filter(None, (part, below, number)))
                found.append(Files(name, lefts[number], rights[number], existing(parts)))
    absent = [] if wanted != "all" else [f"no part {part}" for part in _PARTS if not (home / part).is_dir()]
    absent += absent_line("truth (.left.depth.png)", found, lambda files: "disparity" in files.parts)
    absent += absent_line("right truth (.right.depth.png)", found, lambda f: "right_disparity" in f.parts)
    absent += absent_line(
        "focal length, hence no truth (_camera_settings.json)", found, lambda f: "calibration" in f.parts
    )
    return Listed(found, _truth, absent=absent, unpaired=unpaired)


def _truth(files: Files) -> Truth:
    if "calibration" not in files.parts:
        return Truth()
    left, right = (_calibration(files.parts["calibration"], camera) for camera in (0, 1))
    parts = files.parts
    return Truth(
        disparity=_disparity(parts["disparity"], left) if "disparity" in parts else None,
        right_disparity=_disparity(parts["right_disparity"], right) if "right_disparity" in parts else None,
        calibration=left,
    )


def _calibration(path: Path, camera: int) -> Calibration:
    try:
        settings = json.loads(read_text(path))["camera_settings"][camera]["intrinsic_settings"]
        return Calibration(float(settings["fx"]), _BASELINE)
    except (ValueError, LookupError, TypeError):
        raise InputError(f"{shown(path)} does not tell fx of camera {camera}") from None


def _disparity(path: Path, calibration: Calibration) -> NDArray[np.float32]:
    levels = read_levels(path).astype(np.float32)
    metres = np.where(levels < _SATURATED, levels * np.float32(_METRES_PER_LEVEL), np.float32(np.nan))
    return disparity_of_depth(metres, calibration)
