"""Depth as another camera sees it, on scenes whose depth in every pixel of that camera is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import calibration_files as files
import cv2
import numpy as np
import pytest

from pamcli.batch.depth import depth_files
from pamcli.calibration.camera import Camera, OtherCamera, make_transform, pinhole_matrix
from pamcli.calibration.files import describe_other_camera, encode_calibration
from pamcli.calibration.geometry import Calibration
from pamcli.errors import PamError

LEFT = Calibration(100, 0.2, 3, (39.5, 29.5), (80, 60))
WALL, BOX = 5.0, 2.0  # m
COLUMNS, ROWS = slice(30, 50), slice(20, 40)  # of the box in the left image
COLOUR = pinhole_matrix(150, 150, 59.5, 44.5)
SIZE = (120, 90)
EYE = np.eye(3)
T = np.array([0.1, -0.02, 0.05])


def scene() -> np.ndarray:
    """The disparity map of a box before a wall."""
    depth = np.full((60, 80), WALL)
    depth[ROWS, COLUMNS] = BOX
    return (LEFT.focal_length * LEFT.baseline / depth - LEFT.offset).astype(np.float32)


def expect(rotation: np.ndarray = EYE) -> np.ndarray:
    """Return the depth in each pixel of the other camera, NaN where the left one sees nothing."""
    x, y = np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1]))
    rays = np.stack([x, y, np.ones_like(x)], -1) @ np.linalg.inv(COLOUR).T @ rotation  # in left coordinates
    start = -rotation.T @ T
    depths, seen = [], []
    for plane in (BOX, WALL):
        far = (plane - start[2]) / rays[..., 2]
        points = start + far[..., None] * rays
        at = points[..., :2] / plane * LEFT.focal_length + LEFT.principal
        column, row = np.floor(at[..., 0] + 0.5), np.floor(at[..., 1] + 0.5)
        inside = (column >= 0) & (column < 80) & (row >= 0) & (row < 60)
        box = (column >= 30) & (column < 50) & (row >= 20) & (row < 40)
        depths.append(far)  # the length along the axis, as rays have z = 1
        seen.append(box if plane == BOX else inside & ~box)
    return np.where(seen[0], depths[0], np.where(seen[1], depths[1], np.nan))


def aligned(rotation: np.ndarray = EYE, lens: Camera | None = None) -> np.ndarray:
    camera = lens or Camera(COLOUR, np.zeros(0))
    other = OtherCamera(camera, make_transform(rotation, T), SIZE)
    disparity, calibration = other.align(scene(), LEFT)
    assert calibration.size == SIZE
    return calibration.depth(disparity)


def test_a_turned_camera_sees_the_same_distances() -> None:
    rotation = cv2.Rodrigues(np.array([0.02, -0.03, 0.05]))[0]
    wanted = expect(rotation)
    off = np.abs(aligned(rotation) - wanted) / wanted
    known = np.isfinite(off)
    assert known.mean() > 0.8
    assert np.mean(off[known] < 0.01) > 0.97  # but at the edges of the box, which move by a pixel
    assert np.nanmax(off) < WALL / BOX


def test_a_lens_bends_the_result_as_it_bends_images() -> None:
    lens = Camera(COLOUR, np.array([-0.3, 0.1, 0.001, 0.002]))
    found, straight = aligned(lens=lens), aligned()
    x, y = np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1]))
    points = np.stack([x, y], -1).reshape(-1, 1, 2).astype(np.float64)
    ideal = cv2.undistortPoints(points, COLOUR, lens.distortion, P=COLOUR).reshape(*SIZE[::-1], 2)
    at = np.rint(ideal).astype(int).clip(0, (SIZE[0] - 1, SIZE[1] - 1))
    off = np.abs(found - straight[at[..., 1], at[..., 0]])
    assert np.mean(off[np.isfinite(off)] < 1e-4) > 0.97


def identity(**more: object) -> dict[str, object]:
    return {"K": COLOUR.tolist(), "R": np.eye(3).tolist(), "T": T.tolist(), "size": SIZE, **more}


def camchain() -> str:
    """A rig of the left camera, a right one, and a third one."""
    lens = "camera_model: pinhole, distortion_model: none, resolution: "
    right = np.vstack([np.column_stack([np.eye(3), [-0.2, 0, 0]]), [0, 0, 0, 1]])
    third = make_transform(np.eye(3), T) @ np.linalg.inv(right)
    return (
        f"cam0: {{{lens}[80, 60], intrinsics: [100, 100, 39.5, 29.5]}}\n"
        f"cam1: {{{lens}[80, 60], intrinsics: [100, 100, 42.5, 29.5], T_cn_cnm1: {right.tolist()}}}\n"
        f"cam2: {{{lens}[120, 90], intrinsics: [150, 150, 59.5, 44.5], T_cn_cnm1: {third.tolist()}}}\n"
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("disp.npy", scene())
    Path("rig.yaml").write_text(camchain())
    Path("colour.json").write_text(json.dumps(identity()))
    Path("mm.json").write_text(json.dumps(identity(unit="mm", T=(1000 * T).tolist())))
    Path("bent.json").write_text(json.dumps(identity(D=[0.1, 0, 0, 0])))
    Path("sizeless.json").write_text(json.dumps(identity(size=None)))
    Path("lost.json").write_text(json.dumps({"K": COLOUR.tolist(), "size": SIZE}))
    return tmp_path


@pytest.mark.parametrize("camera", ["2", "0:2", "rig.yaml:2", "rig.yaml:0:2", "colour.json", "mm.json"])
def test_files_and_numbers_name_the_camera(camera: str, here: Path) -> None:
    (result,) = depth_files("disp.npy", calibration="rig.yaml", align_to=camera, depth="z.npy")
    assert result.error is None
    np.testing.assert_allclose(np.load("z.npy"), expect(), rtol=1e-6)


def test_points_are_those_of_the_other_camera(here: Path) -> None:
    options = {"calibration": "rig.yaml", "align_to": "2", "at": [(70.0, 40.0)]}
    (result,) = depth_files("disp.npy", **options)
    (row,) = result.facts["distances"]
    z = BOX + T[2]
    assert (row["z_m"], row["x_m"], row["y_m"]) == pytest.approx((z, 10.5 / 150 * z, -4.5 / 150 * z))


@pytest.mark.parametrize(
    ("camera", "more", "said"),
    [
        ("bent.json", {"at": [(1, 2)]}, "`at` requires images without distortion, and bent.json has some"),
        ("sizeless.json", {}, "states no image size"),
        ("lost.json", {}, "lost.json holds one camera, but not its position beside the left camera"),
        ("0", {}, "is the left camera"),
        ("7", {}, "holds 3 cameras, a pair needs 2"),
        ("none.json", {}, "none.json: there is no such file"),
        ("2", {"baseline": "1m"}, "cannot use both `baseline` and a camera of the same `calibration`"),
        ("2", {"calibration": (), "focal": 100, "baseline": 1}, "`align_to` 2 requires `calibration`"),
        ("2", {"invert": True}, "cannot use both"),
    ],
)
def test_what_is_refused(camera: str, more: dict[str, object], said: str, here: Path) -> None:
    options = {"calibration": "rig.yaml", "align_to": camera, "depth": "z.npy", **more}
    with pytest.raises(PamError, match=re.escape(said)):
        [*depth_files("disp.npy", **options)]
    assert not Path("z.npy").exists()


OAK_TURN = cv2.Rodrigues(np.array([0.1, 0.2, 0.3]))[0]


@pytest.mark.parametrize(
    ("name", "pair", "size", "move"),
    [
        ("oak.json", (1, 0), (640, 480), OAK_TURN @ files.T + (0.04, 0, 0)),
        ("realsense_listing.txt", (0, 2), (1280, 720), -files.R.T @ (9, 9, 9)),
        ("kitti_odometry.txt", (2, 0), None, (-0.05994, 0.00113, -0.00378)),
    ],
)
def test_files_that_have_a_third_camera(
    name: str, pair: tuple[int, int], size: tuple[int, int] | None, move: np.ndarray, here: Path
) -> None:
    Path("rig.txt").write_text(files.example(name))
    (found,) = describe_other_camera("rig.txt", cameras=pair, metres=1.0)
    assert found.size == size
    np.testing.assert_allclose(found.transform[:3, 3], move, atol=5e-5)


def test_a_note_of_how_pam_rectify_turned_the_images(here: Path) -> None:
    """R1 in the calibration of rectified images leads back to the camera that K, R and T are for."""
    turn = cv2.Rodrigues(np.array([0.01, 0.2, -0.03]))[0]
    Path("rectified.yaml").write_bytes(encode_calibration(LEFT, (turn, np.eye(3))))
    Path("turned.json").write_text(json.dumps(identity(R=turn.tolist())))
    (result,) = depth_files("disp.npy", calibration="rectified.yaml", align_to="turned.json", depth="z.npy")
    assert result.error is None
    np.testing.assert_allclose(np.load("z.npy"), expect(), rtol=1e-5)
