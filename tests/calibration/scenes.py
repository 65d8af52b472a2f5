"""A simulated room with a wall ahead and a floor below."""

from __future__ import annotations

import cv2
import numpy as np
from simulated_rigs import CameraSimulator, make_texture

from pamcli.calibration.rig import Rig

WALL, FLOOR = 4.0, 1.2
"""Metres from the left camera: ahead, and below."""
LEVEL = cv2.Rodrigues(np.array([np.pi / 2, 0, 0]))[0]
"""Rotation of a plane that lies horizontally."""


def photograph_room(rig: Rig, seed: int = 0, *, floor: float = FLOOR) -> tuple[np.ndarray, np.ndarray]:
    """Photograph the room: left and right image (H, W, 3) uint8, before rectification."""
    flats = (
        (make_texture(seed, 14), np.eye(3), [0, 0, WALL]),
        (make_texture(seed + 1, 14), LEVEL, [0, floor, WALL]),
    )
    views = []
    for camera, turn, there in (
        (rig.left, np.eye(3), np.zeros(3)),
        (rig.right, rig.rotation, rig.translation),
    ):
        simulator = CameraSimulator(camera, rig.size if camera is rig.left else rig.right_size or rig.size)
        view = None
        for flat, rotation, translation in flats:
            pose = turn @ rotation, turn @ np.array(translation) + there
            taken = simulator.photograph(flat, *pose, np.random.default_rng(seed + len(views)))
            rays = (
                simulator.rays[simulator.margin : -simulator.margin, simulator.margin : -simulator.margin]
                @ turn
            )
            below = rays[..., 1] / np.maximum(rays[..., 2], 1e-9) > floor / WALL  # the floor
            view = taken if view is None else np.where(below, taken, view)
        views.append(np.repeat(view[..., None], 3, axis=2).astype(np.uint8))
    return views[0], views[1]
