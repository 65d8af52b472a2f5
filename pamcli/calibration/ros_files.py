"""Calibrations of ROS: camera_info in YAML, as topics print it, and the older ost.ini and ost.txt."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pamcli.calibration.camera import StatedRectification
from pamcli.calibration.described import (
    CameraPair,
    Described,
    Projections,
    both_sizes,
    is_fisheye,
    matrix_camera,
)
from pamcli.calibration.parsing import Source, Tree, matrix, size_of
from pamcli.errors import InputError

_SECTIONS = {
    "width": "image_width",
    "height": "image_height",
    "camera matrix": "camera_matrix",
    "distortion": "distortion_coefficients",
    "rectification": "rectification_matrix",
    "projection": "projection_matrix",
}
_TOPIC = {
    **{"K": "camera_matrix", "D": "distortion_coefficients"},
    **{"R": "rectification_matrix", "P": "projection_matrix"},
}


def _topics(source: Source) -> list[Tree]:
    """Return the messages of topics (K D R P, in ROS 2 k d r p) under the names of the files."""
    found: list[Tree] = []
    for tree in source.trees:
        for names in (_TOPIC, {key.lower(): name for key, name in _TOPIC.items()}):
            if {"distortion_model", "width", "height", *names} <= tree.keys():
                sizes = {"image_width": tree["width"], "image_height": tree["height"]}
                found.append(
                    {"distortion_model": tree["distortion_model"], **sizes}
                    | {name: tree[key] for key, name in names.items()}
                )
    return found


def has_topics(source: Source) -> bool:
    return bool(_topics(source))


def read_topics(source: Source) -> Described:
    """Read sensor_msgs/CameraInfo as `rostopic echo` and `ros2 topic echo` print it, of both cameras."""
    kept: list[Tree] = []
    for tree in _topics(source):  # of a topic that was listened to for a while, one message
        if not any({**tree} == {**each} for each in kept):
            kept.append(tree)
    return ros(kept)


def has_camera_info(source: Source) -> bool:
    names = {"camera_matrix", "projection_matrix"}
    return bool(source.trees) and all(names & tree.keys() for tree in source.trees)


def read_camera_info(source: Source) -> Described:
    """Read the camera_info of the left and of the right camera."""
    return ros(source.trees)


def ros(trees: Sequence[Tree], kind: str = "ROS camera_info") -> Described:
    """Describe both cameras, whose rectification the files know, too."""
    if len(trees) != 2:
        raise InputError(
            f"describes {'one camera' if len(trees) == 1 else f'{len(trees)} cameras'}",
            "give two files, that of the left camera and that of the right one",
        )
    cameras, rotations, projections, sizes = [], [], [], []
    for tree in trees:
        sizes.append(
            size_of([tree.get("image_width"), tree.get("image_height")], "image_width x image_height")
        )
        fisheye = is_fisheye(tree.get("distortion_model") or "", "distortion_model")
        cameras.append(matrix_camera(tree, "camera_matrix", "distortion_coefficients", fisheye))
        rotations.append(matrix(tree.get("rectification_matrix"), "rectification_matrix", 3, 3))
        projections.append(matrix(tree.get("projection_matrix"), "projection_matrix", 3, 4))
    p1, p2 = projections
    rectified = Projections(p1, p2, sizes[0], ("projection_matrix", "projection_matrix"))
    across = (p1[0, 3] - p2[0, 3]) / p1[0, 0] if p1[0, 0] > 0 else 0.0
    if across == 0:  # `Projections` says what is wrong with them, or the baseline is not known
        return Described(kind, projections=[rectified])
    stated = StatedRectification((rotations[0], rotations[1]), (p1, p2))
    translation = rotations[1].T @ np.array([-across, 0, 0])
    pair = CameraPair(cameras, rotations[1].T @ rotations[0], translation, *both_sizes(sizes), stated)
    return Described(kind, [pair], [rectified])


def read_ost(source: Source) -> Described:
    """Read an ost.ini or ost.txt of both cameras, or one of each."""
    return ros([tree for text in source.texts for tree in _ost_trees(text)], "ROS ost")


def _ost_trees(text: str) -> list[Tree]:
    """Return what the camera_info of each camera would hold."""
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


def has_ost(source: Source) -> bool:
    return all(
        re.search(r"^\[image\]", text, re.MULTILINE) and re.search(r"^camera matrix", text, re.MULTILINE)
        for text in source.texts
    )
