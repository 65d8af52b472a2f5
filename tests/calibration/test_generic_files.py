"""Calibrations of no fixed format: the same cameras under the names and in the shapes of many programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pamcli.calibration.description import StoredCalibration
from pamcli.errors import InputError

Read = Callable[..., StoredCalibration]

K = [[500, 0, 320], [0, 500, 240], [0, 0, 1]]
K2 = [[500, 0, 325], [0, 500, 240], [0, 0, 1]]
FOUR: dict[str, Any] = {"fx": 500, "fy": 500, "cx": 320, "cy": 240}
FOUR2 = {**FOUR, "cx": 325}
EYE, T = np.eye(3).tolist(), [-0.12, 0, 0]
RT = [[1, 0, 0, -0.12], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
LEFT_RT, RIGHT_POSE = np.eye(4).tolist(), np.linalg.inv(RT).ravel().tolist()
D = [0.1, 0, 0, 0]

ONE_CAMERA: dict[str, Any] = {  # of rectified images: one focal length, one centre, a baseline of 120 mm
    "pairs": {"focal_length": [500, 500], "principal_point": [320, 240], "baseline": 0.12},
    "nested": {"intrinsics": FOUR, "extrinsics": {"baseline": 120}},
    "matrix": {"K": [500, 0, 320, 0, 500, 240, 0, 0, 1], "baseline_mm": 120},
    "short": {"f": 500, "cx": 320, "cy": 240, "b": 0.12},
    "with unit": {"focalLength": 500, "principalPoint": {"x": 320, "y": 240}, "baseline": {"value": 0.12}},
    "centimetres": {**FOUR, "baseline": 12, "unit": "cm"},
    "nerfstudio": {"fl_x": 500, "fl_y": 500, "cx": 320, "cy": 240, "baselineInMeters": 0.12},
    "apart": {"camera": {"focal_length_px": 500, "center": [320, 240]}, "stereo": {"baseline_m": 0.12}},
    "yaml": "fx: 500\nfy: 500\ncx: 320\ncy: 240\nbaseline: 0.12\n",
    "a line": "fx=500.0 fy=500.0 cx=320.0 cy=240.0 baseline=0.12\n",
    "a table": "fx,fy,cx,cy,baseline\n500,500,320,240,0.12\n",
    "bf": {**FOUR, "bf": 60},
    "sensor": {"focal_length_mm": 4, "sensor_width_mm": 5.12, "image_width": 640}
    | {"cx": 320, "cy": 240, "baseline": 0.12},
    "Cityscapes": {
        "extrinsic": {"baseline": 0.12, "pitch": 0.04, "x": 1.7},
        "intrinsic": {"fx": 500, "fy": 500, "u0": 320, "v0": 240},
    },
    "both": {"left": FOUR, "right": FOUR, "baseline": 0.12},
    "by side": {f"{side}_{name}": value for side in ("left", "right") for name, value in FOUR.items()}
    | {"baseline": 0.12},
}


@pytest.mark.parametrize("name", ONE_CAMERA)
def test_rectified_images(name: str, read: Read) -> None:
    given = ONE_CAMERA[name]
    found = read(given if isinstance(given, str) else json.dumps(given)).rectified
    assert (found.focal_length, found.principal, found.offset) == (500, (320, 240), 0)
    assert found.baseline == pytest.approx(0.12)


def lens(matrix: Any, **more: Any) -> dict[str, Any]:
    return {"camera_matrix": matrix, "distortion": D, **more}


TWO_CAMERAS: dict[str, Any] = {
    "sections": [{"left_camera": lens(K), "right_camera": lens(K2), "R": EYE, "T": T}],
    "a list": [{"cameras": [{"K": K, "dist": D}, {"K": K2, "dist": D}], "extrinsics": {"R": EYE, "t": T}}],
    "coefficients by name": [
        {"cam0": {**FOUR, "k1": 0.1}, "cam1": {**FOUR2, "k1": 0.1}, "stereo": {"R": EYE, "T": T}}
    ],
    "right first": [
        {"right": {"intrinsics": FOUR2, "coeffs": D}, "left": {"intrinsics": FOUR, "coeffs": D}, "rt": RT}
    ],
    "own poses": [{"Cameras": [{"Intrinsics": lens(K), "Rt": LEFT_RT}, {"Intrinsics": lens(K2), "Rt": RT}]}],
    "rotation vector": [{"left": lens(K), "right": lens(K2), "rotation": [0, 0, 0], "translation": T}],
    "transform of ROS": [
        {"left": lens(K), "right": lens(K2), "rotation": {"x": 0, "y": 0, "z": 0, "w": 1}}
        | {"translation": {"x": -0.12, "y": 0, "z": 0}}
    ],
    "a file each": [{**lens(K), "extrinsic": LEFT_RT}, {**lens(K2), "extrinsic": RT}],
    "three files": [{**FOUR, "dist": D}, {**FOUR2, "dist": D}, {"R": EYE, "T": T}],
    "in millimetres": [{"left": lens(K), "right": lens(K2), "R": EYE, "T": [[-120], [0], [0]], "unit": "mm"}],
}
INVERSE = [[1, 0, 0, 0.12], [0, 1, 0, 0], [0, 0, 1, 0]]


def argoverse(name: str, x: float, y: float) -> dict[str, Any]:
    """A camera y metres left of the middle of the car, looking ahead."""
    pose = {"rotation": {"coefficients": [0.5, -0.5, 0.5, -0.5]}, "translation": [1.6, y, 1.3]}
    values = {"focal_length_x_px_": 500, "focal_length_y_px_": 500, "focal_center_x_px_": x}
    values |= {"focal_center_y_px_": 240, "distortion_coefficients_": D, "vehicle_SE3_camera_": pose}
    return {"key": f"image_raw_{name}", "value": values}


FRONT = (
    {"name": "front_right", **lens(K2), "T_world_cam": INVERSE},
    {"name": "front_left", **lens(K), "T_wc": LEFT_RT},
)
TEXTS = {"K_left": K, "K_right": K2, "D_left": D, "D_right": D, "R": EYE, "T": T}
STEREO = argoverse("stereo_front_left", 320, 0.2), argoverse("stereo_front_right", 325, 0.08)
TWO_CAMERAS |= {
    "strings": [{name: str(value) for name, value in TEXTS.items()}],
    "T_world_cam among three": [{"cameras": [{"name": "rear", **lens(K), "T_world_cam": RT}, *FRONT]}],
    "T_cam_world": [{"cam0": {**lens(K), "T_cam_world": LEFT_RT}, "cam1": {**lens(K2), "T_cam_world": RT}}],
    "T_cam1_cam0": [{"cam0": lens(K), "cam1": lens(K2), "T_cam1_cam0": RT}],
    "right_to_left": [{"left": lens(K), "right": lens(K2), "right_to_left": INVERSE}],
    "Argoverse": [
        {"camera_data_": [argoverse("ring_front_left", 9, 0), *STEREO, argoverse("side_right", 9, 1)]}
    ],
}
OKVIS = """cameras:
     - {{T_SC:
        [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
        image_dimension: [640, 480], distortion_coefficients: [0.1, 0, 0, 0],
        distortion_type: radialtangential, focal_length: [500, 500], principal_point: [320, 240]}}
     - {{T_SC:
        {pose},
        image_dimension: [640, 480], distortion_coefficients: [0.1, 0, 0, 0],
        distortion_type: radialtangential, focal_length: [500, 500], principal_point: [325, 240]}}
imu_params:
    T_BS: [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
"""
TWO_CAMERAS["OKVIS"] = [OKVIS.format(pose=RIGHT_POSE)]


@pytest.mark.parametrize("name", TWO_CAMERAS)
def test_two_cameras(name: str, read: Read) -> None:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in TWO_CAMERAS[name]]
    rig = read(*texts).rig
    np.testing.assert_allclose(rig.translation, T, atol=1e-12)
    np.testing.assert_allclose(rig.rotation, EYE, atol=1e-12)
    assert (rig.left.matrix[0, 2], rig.right.matrix[0, 2], rig.left.distortion[0]) == (320, 325, 0.1)
    swapped = {"right first": (0, 1), "T_world_cam among three": (1, 2), "Argoverse": (2, 1)}
    with pytest.raises(InputError, match="left of the left camera"):
        read(*texts, cameras=swapped.get(name, (1, 0)))


def test_the_lens_model_may_stand_beside_that_of_the_camera(read: Read) -> None:
    fisheye = {"camera_model": "pinhole", "distortion_model": "equidistant"}
    text = json.dumps({"left": lens(K, **fisheye), "right": lens(K2, **fisheye), "R": EYE, "T": T})
    assert read(text).rig.right.fisheye


def test_the_size_stands_in_either_order(read: Read) -> None:
    for size in ([640, 480], [480, 640]):
        found = read(json.dumps({**FOUR, "baseline": 0.12, "image_size": size})).rectified
        assert found.size == (640, 480)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"left": FOUR, "right": FOUR}], "holds two cameras, but R and T between them are missing"),
        ([FOUR], "holds one camera, a pair needs 2 (give the other camera, too; of rectified images, state"),
        ([FOUR, {"R": EYE, "T": T}], "the files hold one camera, a pair needs 2"),
        ([{"left": FOUR, "right": {**FOUR, "fx": 510, "fy": 510}, "baseline": 1}], "the same focal length"),
        ([{**FOUR, "fx": "long", "baseline": 1}], "fx must hold finite numbers"),
        ([{"left": lens(K, distortion_model="ftheta"), "right": FOUR, "R": EYE, "T": T}], "not a lens model"),
        (
            [
                {
                    "cameras": {"a": lens(K), "b": lens(K)},
                    "poses": {"a": {"R": EYE, "T": [0, 0, 0]}, "b_to_a": {"R": EYE, "T": T}},
                }
            ],
            "states T more than once",
        ),
        (
            [{**FOUR, "cx": -12, "cy": 0.6, "width": 640, "height": 480, "baseline": 1}],
            "in a corner of the image",
        ),
        ([{"focal_mm": 4, "cx": 320, "cy": 240, "baseline": 1}], "no width of the sensor (focal_mm)"),
    ],
)
def test_what_is_ambiguous_is_refused(given: list[Any], said: str, read: Read) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        read(*map(json.dumps, given))
