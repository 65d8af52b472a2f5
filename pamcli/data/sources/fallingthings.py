"""Falling Things (NVIDIA's readme): depth in steps of 0.1 mm, cameras 6 cm apart, focal length in a JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.rectified import Calibration
from pamcli.data.decoding import disparity_of_depth, read_levels
from pamcli.data.listing import Listed, Part, root_of, views_side_by_side
from pamcli.data.source import Key, SourceInfo
from pamcli.errors import InputError
from pamcli.files.finding import read_text, shown

_SETS = ("single", "mixed")
_SETTINGS = "_camera_settings.json"
_METRES_PER_LEVEL = 1e-4
_BASELINE = 0.06
_SATURATED = 65535  # 6.55 m: whatever lies farther


def _calibration(path: Path, camera: int) -> Calibration:
    try:
        settings = json.loads(read_text(path))["camera_settings"][camera]["intrinsic_settings"]
        return Calibration(float(settings["fx"]), _BASELINE)
    except (ValueError, LookupError, TypeError, InputError):
        raise InputError(f"{shown(path)} has no fx of camera {camera}") from None


def _disparity(path: Path, camera: int) -> NDArray[np.float32] | None:
    """None where the focal length is not known."""
    settings = path.with_name(_SETTINGS)
    if not settings.is_file():
        return None
    levels = read_levels(path).astype(np.float32)
    metres = np.where(levels < _SATURATED, levels * np.float32(_METRES_PER_LEVEL), np.float32(np.nan))
    return disparity_of_depth(metres, _calibration(settings, camera))


_PARTS = (
    Part("disparity", "truth (.left.depth.png)", partial(_disparity, camera=0), "{}.left.depth.png"),
    Part(
        "right_disparity",
        "right truth (.right.depth.png)",
        partial(_disparity, camera=1),
        "{}.right.depth.png",
    ),
    Part(
        "calibration",
        f"focal length, hence no truth ({_SETTINGS})",
        partial(_calibration, camera=0),
        _SETTINGS,
    ),
)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    home = root_of(root, "fat", "FallingThings", "data", holds=_SETS)
    sets = _SETS if keys.get("part", "all") == "all" else (keys["part"],)
    return views_side_by_side(home, sets, _PARTS, 3, (".png", ".jpg"), ".")


INFO = SourceInfo(
    "fallingthings",
    "Falling Things (NVIDIA)",
    ("train",),
    (
        "single/002_master_chef_can_16k/kitchen_0/000000.left.jpg  (or mixed/kitchen_0/...)",
        "single/002_master_chef_can_16k/kitchen_0/000000.right.jpg",
        "single/002_master_chef_can_16k/kitchen_0/000000.left.depth.png, 000000.right.depth.png",
        "single/002_master_chef_can_16k/kitchen_0/_camera_settings.json",
    ),
    open_source,
    (Key("part", "one object or several", ("all", *_SETS), "all"),),
)
