"""Calibrations of ROS: camera_info in YAML, and the older ost.ini and ost.txt."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pamcli.calibration.parsing import Tree, matrix, numbers, size_of
from pamcli.calibration.rig import StatedRectification
from pamcli.calibration.stored import StoredCalibration, camera_of, is_fisheye, one_size, projected, rig_of
from pamcli.errors import InputError

_SECTIONS = {
    "width": "image_width",
    "height": "image_height",
    "camera matrix": "camera_matrix",
    "distortion": "distortion_coefficients",
    "rectification": "rectification_matrix",
    "projection": "projection_matrix",
}


def ros(trees: Sequence[Tree], exchanged: bool = False, kind: str = "ROS camera_info") -> StoredCalibration:
    """The camera_info of the left and of the right camera, of which the cameras' rectification is known."""
    if len(trees) != 2:
        raise InputError(
            "tells of one camera", "give two files, that of the left camera and that of the right one"
        )
    cameras, rotations, projections, sizes = [], [], [], []
    for tree in trees:
        sizes.append(
            size_of([tree.get("image_width"), tree.get("image_height")], "image_width x image_height")
        )
        model = str(tree.get("distortion_model", "plumb_bob"))
        if model not in ("plumb_bob", "rational_polynomial", "equidistant", "fisheye", "none", ""):
            raise InputError(f"distortion_model {model[:30]!r} is not known")
        key = "distortion_coefficients"
        distortion = numbers(tree.get(key) or [], key)
        fisheye = is_fisheye(model, "distortion_model")
        intrinsics = matrix(tree.get("camera_matrix"), "camera_matrix", 3, 3)
        cameras.append(camera_of(intrinsics, "camera_matrix", distortion, key, fisheye))
        rotations.append(matrix(tree.get("rectification_matrix"), "rectification_matrix", 3, 3))
        projections.append(matrix(tree.get("projection_matrix"), "projection_matrix", 3, 4))
    size = one_size(sizes)
    keys = ("projection_matrix", "projection_matrix")
    rectified = projected(projections[0], projections[1], keys, size, exchanged)
    if rectified.baseline == 0:
        return StoredCalibration(kind, None, rectified)
    rotation = rotations[1].T @ rotations[0]
    across = -rectified.baseline if not exchanged else rectified.baseline
    stated = StatedRectification((rotations[0], rotations[1]), (projections[0], projections[1]))
    rig = rig_of(cameras, rotation, rotations[1].T @ np.array([across, 0, 0]), size, exchanged, stated)
    return StoredCalibration(kind, rig, rectified)


def ost_trees(text: str) -> list[Tree]:
    """Split an ost.ini or ost.txt: what the camera_info of each camera would hold. Raises InputError."""
    found: list[dict[str, Any]] = []
    key = None
    for line in map(str.strip, text.splitlines()):
        if line == "[image]":
            found.append({})
        elif not found or not line or line.startswith("#"):
            continue
        elif line.startswith("["):
            found[-1]["camera_name"] = line.strip("[]")
        elif line in _SECTIONS:
            key = _SECTIONS[line]
        elif key is not None:
            found[-1].setdefault(key, []).extend(line.split())
    return list(found)


def is_ost(text: str) -> bool:
    """Whether a text is an ost.ini or ost.txt."""
    return bool(re.search(r"^\[image\]\s*$.*^camera matrix\s*$", text, re.MULTILINE | re.DOTALL))
