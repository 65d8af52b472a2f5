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
from pamcli.data.listing import Listed, Part, Tree, by_stem, folders
from pamcli.data.source import Key, SourceInfo

_CALIBRATION = Calibration(focal_length=725.0087, baseline=0.532725)
_SKY = 65535
_TURNS = ("15-deg-left", "15-deg-right", "30-deg-left", "30-deg-right")
_VARIATIONS = ("clone", "fog", "morning", "overcast", "rain", "sunset", *_TURNS)


def _disparity(path: Path) -> NDArray[np.float32]:
    levels = read_levels(path).astype(np.float32)
    return disparity_of_depth(
        np.where(levels < _SKY, levels / np.float32(100), np.float32(np.nan)), _CALIBRATION
    )


_PARTS = (
    Part("disparity", "truth (depth of Camera_0)", _disparity, "Camera_0/depth_{}.png"),
    Part("right_disparity", "right truth (depth of Camera_1)", _disparity, "Camera_1/depth_{}.png"),
)


def open_source(root: Path, split: str, keys: Mapping[str, str]) -> Listed:
    pictures = _unpacked(root, "vkitti_2.0.3_rgb")
    depths = _unpacked(root, "vkitti_2.0.3_depth")
    wanted = keys.get("variation", "all")
    tree = Tree(_PARTS)
    for scene, scene_folder in folders(pictures).items():
        for variation, folder in folders(scene_folder).items() if scene.startswith("Scene") else ():
            if wanted in ("all", variation):
                lefts, rights = (_frames(folder / "frames" / "rgb" / f"Camera_{camera}") for camera in (0, 1))
                below = f"{scene}/{variation}"
                tree.add_all(lefts, rights, depths / below / "frames" / "depth", below)
    return tree.listed(calibration=_CALIBRATION)


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
