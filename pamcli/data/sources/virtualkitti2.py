"""Virtual KITTI 2: depth in centimetres, 655.35 m and beyond (sky) unknown; f = 725.0087 px, b = 0.532725 m.

Scene01/clone/frames/rgb/Camera_0/rgb_00000.jpg is a left picture, Camera_1 holds the right ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.rectified import Calibration
from pamcli.data.decoding import disparity_of_depth, read_levels
from pamcli.data.listing import Listed, by_stem, existing, folders, paired, truths
from pamcli.data.source import Files, Key, SourceInfo

_CALIBRATION = Calibration(focal_length=725.0087, baseline=0.532725)
_CAMERAS = ("Camera_0", "Camera_1")
_SKY = 65535
_TURNS = ("15-deg-left", "15-deg-right", "30-deg-left", "30-deg-right")
_VARIATIONS = ("clone", "fog", "morning", "overcast", "rain", "sunset", *_TURNS)


def _disparity(path: Path) -> NDArray[np.float32]:
    levels = read_levels(path).astype(np.float32)
    return disparity_of_depth(
        np.where(levels < _SKY, levels / np.float32(100), np.float32(np.nan)), _CALIBRATION
    )


_PARTS = truths(_disparity, "depth of Camera_0", "depth of Camera_1")


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    pictures = _unpacked(root, "vkitti_2.0.3_rgb")
    depths = _unpacked(root, "vkitti_2.0.3_depth")
    wanted = keys.get("variation", "all")
    found: list[Files] = []
    unpaired: list[str] = []
    for scene, scene_folder in folders(pictures).items():
        if not scene.startswith("Scene"):
            continue
        for variation, folder in folders(scene_folder).items():
            if wanted not in ("all", variation):
                continue
            lefts, rights = (_frames(folder / "frames" / "rgb" / camera) for camera in _CAMERAS)
            truth = depths / scene / variation / "frames" / "depth"
            for frame, left, right in paired(lefts, rights, unpaired):
                parts = existing(
                    disparity=truth / _CAMERAS[0] / f"depth_{frame}.png",
                    right_disparity=truth / _CAMERAS[1] / f"depth_{frame}.png",
                )
                found.append(Files(f"{scene}/{variation}/{frame}", left, right, parts))
    return Listed(found, _PARTS, unpaired=unpaired, calibration=_CALIBRATION)


def _unpacked(root: Path, archive: str) -> Path:
    """Each archive has been unpacked into a folder of its own name, or all of them into one."""
    return root / archive if (root / archive).is_dir() else root


def _frames(folder: Path) -> dict[str, Path]:
    return {path.stem.removeprefix("rgb_"): path for path in by_stem(folder, (".jpg", ".png")).values()}


INFO = SourceInfo(
    "virtualkitti2",
    "Virtual KITTI 2",
    ("train",),
    (
        "Scene01/clone/frames/rgb/Camera_0/rgb_00000.jpg",
        "Scene01/clone/frames/rgb/Camera_1/rgb_00000.jpg",
        "Scene01/clone/frames/depth/Camera_0/depth_00000.png",
    ),
    open_source,
    (Key("variation", "weather, light or turn of the camera", ("all", *_VARIATIONS), "all"),),
    unverified="all of it",
)
