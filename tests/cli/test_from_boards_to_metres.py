"""Images of a board become metres, by the commands alone: how true is the depth of a wall?"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile
from pam_program import pam
from PIL import Image
from simulated_rigs import Flat, make_chessboard, make_rig, make_texture, photograph, sample_poses

from pamcli.calibration.files import read_calibration
from pamcli.calibration.rig import Rig

SIZE = (320, 200)
AWAY = 20
"""Baselines."""
WIDE = 2.2
"""Sides of the wall, in distances."""
TILT = cv2.Rodrigues(np.array([0.1, 0.25, 0.05]))[0]
"""Rotation of the wall."""


def take(rig: Rig, flat: Flat, poses: list[tuple[np.ndarray, np.ndarray]], left: str, right: str) -> None:
    """Write what both cameras see to left/00.png, right/00.png, and so on."""
    for number, pair in enumerate(photograph(rig, flat, poses, 4)):
        for side, view in zip((left, right), pair, strict=True):
            Path(side).mkdir(exist_ok=True)
            Image.fromarray(view).save(Path(side, f"{number:02}.png"))


@pytest.mark.parametrize("fisheye", [True], ids=["fisheye"])
def test_the_depth_of_a_wall_is_true_to_a_percent(fisheye: bool, here: Path) -> None:
    rig = make_rig(4, fisheye=fisheye, size=SIZE)
    distance = AWAY * rig.baseline
    take(rig, make_chessboard(9, 6, 0.03), sample_poses(rig, 12, 4), "lefts", "rights")
    take(
        rig,
        make_texture(8, (WIDE + 0.2) * distance),
        [(TILT, np.array([0, 0, distance]))],
        "walls_left",
        "walls_right",
    )
    board = ("--board", "9x6", "--square", "30mm", *(["--fisheye"] if fisheye else []))
    pair, metres = ("out/00_left.png", "out/00_right.png"), ("--calibration", "out/calibration.yaml")
    for command in (
        ("calibration", "make", "lefts", "rights", *board, "-o", "rig.yaml"),
        ("rectify", "walls_left/00.png", "walls_right/00.png", "--calibration", "rig.yaml", "-o", "out/"),
        ("disparity", *pair, *metres, "--depth", "depth.tif"),
    ):
        run = pam(*command)
        assert run.code == 0, run.stderr
    made = read_calibration("out/calibration.yaml").rectified
    depth = tifffile.imread("depth.tif")
    # The wall in the coordinates of the rectified images, by the cameras as they truly are.
    none = np.zeros(4)
    turn = cv2.stereoRectify(
        rig.left.matrix, none, rig.right.matrix, none, SIZE, rig.rotation, rig.translation.reshape(3, 1)
    )[0]
    normal, there = turn @ TILT[:, 2], turn @ [0, 0, distance]
    y, x = np.mgrid[: depth.shape[0], : depth.shape[1]]
    across = (x - made.principal[0]) / made.focal_length
    down = (y - made.principal[1]) / made.vertical_focal_length
    rays = np.stack([across, down, np.ones(x.shape)], axis=-1)
    truth = normal @ there / (rays @ normal)
    on_wall = (truth[..., None] * rays - there) @ turn @ TILT
    seen = np.isfinite(depth) & (np.abs(on_wall[..., :2]) < WIDE / 2 * distance).all(axis=-1) & (truth > 0)
    seen[:, : int(2 * made.focal_length / AWAY)] = False  # what the right camera does not see
    assert seen.mean() > 0.25
    error = np.abs(depth / truth - 1)[seen]
    assert np.median(error) < 0.01
