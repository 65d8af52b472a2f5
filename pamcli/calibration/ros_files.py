"""Readers for calibrations of ROS: camera_info in YAML and from topics, and the older ost.ini and ost.txt."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pamcli.calibration.camera import StatedRectification, make_transform
from pamcli.calibration.description import CameraDescription, CameraPair, Projections
from pamcli.calibration.parsing import Section, Source, is_fisheye
from pamcli.errors import InputError
from pamcli.files.paths import pluralize

TOPIC = {"K": "camera_matrix", "D": "distortion_coefficients", "R": "rectification_matrix"}
TOPIC |= {"P": "projection_matrix", "width": "image_width", "height": "image_height"}
_OST_SECTIONS = {
    **{"width": "image_width", "height": "image_height", "camera matrix": TOPIC["K"]},
    **{"distortion": TOPIC["D"], "rectification": TOPIC["R"], "projection": TOPIC["P"]},
}


def find_topics(source: Source) -> list[dict[str, Any]]:
    """Return sensor_msgs/CameraInfo as `rostopic echo` and `ros2 topic echo` print it, K D R P or k d r p.

    The messages have the keys of camera_info files.
    """
    found: list[dict[str, Any]] = []
    for tree in source.trees:
        for names in (TOPIC, {key.lower(): name for key, name in TOPIC.items()}):
            if {"distortion_model", *names} <= tree.keys():
                message = {name: tree[key] for key, name in names.items()}
                message["distortion_model"] = tree["distortion_model"]
                if message not in found:  # a recorded topic repeats its message
                    found.append(message)
    return found


def has_camera_info(source: Source) -> bool:
    names = {"camera_matrix", "projection_matrix"}
    return bool(source.trees) and all(names & tree.keys() for tree in source.trees)


def describe_ros(trees: Sequence[Mapping[str, Any]], kind: str = "ROS camera_info") -> CameraDescription:
    """Describe two cameras, and their rectification, from the keys of camera_info files."""
    if len(trees) != 2:
        hint = "give two files: of the left camera and of the right camera"
        raise InputError(f"holds {pluralize(len(trees), 'camera')}, a pair needs 2", hint)
    cameras, rotations, projections, sizes = [], [], [], []
    for tree in map(Section, trees):
        sizes.append(tree.size("image_width", "image_height"))
        fisheye = is_fisheye(tree.get("distortion_model") or "", "distortion_model")
        cameras.append(tree.matrix_camera("camera_matrix", "distortion_coefficients", fisheye))
        rotations.append(tree.matrix("rectification_matrix", 3, 3))
        projections.append(tree.matrix("projection_matrix", 3, 4))
    p1, p2 = projections
    rectified = Projections(p1, p2, sizes[0], ("the left projection_matrix", "the right projection_matrix"))
    across = (p1[0, 3] - p2[0, 3]) / p1[0, 0] if p1[0, 0] > 0 else 0.0
    if across == 0:  # no baseline: only the geometry of the rectified images is known
        return CameraDescription(kind, projections=[rectified])
    stated = StatedRectification((rotations[0], rotations[1]), (p1, p2))
    back = rotations[1].T
    transform = make_transform(back @ rotations[0], back @ np.array([-across, 0, 0]))
    return CameraDescription(kind, [CameraPair(cameras, transform, sizes, stated)], [rectified])


def has_ost(source: Source) -> bool:
    marks = (r"^\[image\]", "^camera matrix")
    return all(re.search(mark, text, re.MULTILINE) for text in source.texts for mark in marks)


def read_ost(source: Source) -> CameraDescription:
    found: list[dict[str, Any]] = []
    key = None
    for line in (line.strip() for text in source.texts for line in text.splitlines()):
        if line == "[image]":
            found.append({})
        elif line in _OST_SECTIONS:
            key = _OST_SECTIONS[line]
        elif found and key is not None and line and line[0] not in "#[":
            found[-1].setdefault(key, []).extend(line.split())
    return describe_ros(found, "ROS ost")
