"""One rig, and its calibration in the words of every kind of file."""

from __future__ import annotations

from collections.abc import Iterable

import cv2
import numpy as np
import pytest
import yaml

from pamcli.calibration.description import StoredCalibration
from pamcli.calibration.geometry import Calibration

SIZE = (640, 480)
K1 = np.array([[530.25, 0, 322.5], [0, 531.5, 241.75], [0, 0, 1]])
K2 = np.array([[528.75, 0, 317.0], [0, 530.0, 236.5], [0, 0, 1]])
D1 = np.array([-0.285, 0.082, 0.0011, -0.0007, -0.012])
D2 = np.array([-0.291, 0.091, -0.0009, 0.0004, -0.015])
FISHEYE1, FISHEYE2 = np.array([-0.012, 0.031, -0.021, 0.006]), np.array([-0.011, 0.028, -0.019, 0.005])
R = cv2.Rodrigues(np.array([0.012, -0.023, 0.008]))[0]
CENTER = np.array([0.12, 0.002, -0.003])
T = -R @ CENTER
BASELINE = float(np.linalg.norm(T))
R1, R2, P1, P2, Q, *_ = cv2.stereoRectify(
    K1, D1, K2, D2, SIZE, R, T.reshape(3, 1), alpha=0, flags=cv2.CALIB_ZERO_DISPARITY, newImageSize=SIZE
)


def opencv(kind: int = cv2.FILE_STORAGE_FORMAT_YAML, **values: object) -> str:
    """Write values by OpenCV's own writer."""
    file = cv2.FileStorage("", cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | kind)
    for key, value in values.items():
        file.write(key, value)
    return str(file.releaseAndGetString())


RIG = {"M1": K1, "D1": D1, "M2": K2, "D2": D2, "R": R, "T": T}
INTRINSICS = opencv(M1=K1, D1=D1, M2=K2, D2=D2)
EXTRINSICS = opencv(R=R, T=T, R1=R1, R2=R2, P1=P1, P2=P2, Q=Q)
OPENCV_4 = opencv(image_width=640, image_height=480, **RIG).replace("%YAML 1.2", "%YAML:1.0")
OPENCV_XML = opencv(cv2.FILE_STORAGE_FORMAT_XML, image_width=640, image_height=480, **RIG)
OPENCV_JSON = opencv(cv2.FILE_STORAGE_FORMAT_JSON, image_width=640, image_height=480, **RIG)
OPENCV_Q = opencv(Q=Q)


def row(values: np.ndarray) -> str:
    return ", ".join(map(repr, values.ravel().tolist()))


def numbers(values: np.ndarray) -> str:
    return " ".join(map(repr, values.ravel().tolist()))


def lens(k: np.ndarray) -> list[float]:
    found: list[float] = k[[0, 1, 0, 1], [0, 1, 2, 2]].tolist()
    return found


def named(names: str, values: Iterable[float]) -> dict[str, float]:
    return dict(zip(names.split(), map(float, values), strict=True))


def dump(tree: object, flow: bool | None = None) -> str:
    return str(yaml.safe_dump(tree, sort_keys=False, default_flow_style=flow))


def ros(name: str, k: np.ndarray, d: np.ndarray, r: np.ndarray, p: np.ndarray) -> str:
    """Write a camera as camera_calibration does."""
    tree: dict[str, object] = {"image_width": 640, "image_height": 480, "distortion_model": "plumb_bob"}
    names = ("camera_matrix", "distortion_coefficients", "rectification_matrix", "projection_matrix")
    for key, values in zip(names, (k, d, r, p), strict=True):
        rows, columns = np.atleast_2d(values).shape
        tree[key] = {"rows": rows, "cols": columns, "data": values.ravel().tolist()}
    return dump({"camera_name": f"narrow_stereo/{name}", **tree})


ROS_LEFT, ROS_RIGHT = ros("left", K1, D1, R1, P1), ros("right", K2, D2, R2, P2)


def kalibr_camera(k: np.ndarray, d: np.ndarray, model: str) -> dict[str, object]:
    values = {"intrinsics": lens(k), "distortion_coeffs": d.tolist(), "distortion_model": model}
    return {"camera_model": "pinhole", **values, "resolution": [640, 480], "rostopic": "/camera/image_raw"}


def camchain(cameras: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]], model: str = "radtan") -> str:
    """Write cameras as Kalibr does: matrix, distortion, and (3, 4), the step from the one before."""
    tree = {}
    for number, (k, d, step) in enumerate(cameras):
        pose = {} if step is None else {"T_cn_cnm1": [*step.tolist(), [0, 0, 0, 1]]}
        tree[f"cam{number}"] = pose | kalibr_camera(k, d, model)
    return dump(tree)


def kalibr(model: str = "radtan") -> str:
    """Its camchain, with the left camera first."""
    d1, d2 = (D1[:4], D2[:4]) if model == "radtan" else (FISHEYE1, FISHEYE2)
    return camchain([(K1, d1, None), (K2, d2, np.column_stack([R, T]))], model)


def kitti_raw() -> str:
    """calib_cam_to_cam.txt, of which cameras 0 and 1 are another, wider rig than 2 and 3."""
    lines = ["calib_time: 09-Jan-2012 13:57:47", "corner_dist: 9.950000e-02"]
    wide = P2.copy()
    wide[0, 3] *= 2
    cameras = [
        (K1, D1, np.eye(3), np.zeros(3), R1, P1),
        (K2, D2, R, 2 * T, R2, wide),
        (K1, D1, np.eye(3), np.zeros(3), R1, P1),
        (K2, D2, R, T, R2, P2),
    ]
    for index, parts in enumerate(cameras):
        names = ("K", "D", "R", "T", "R_rect", "P_rect")
        lines.append(f"S_{index:02}: 6.400000e+02 4.800000e+02")
        lines += [f"{name}_{index:02}: {numbers(values)}" for name, values in zip(names, parts, strict=True)]
        lines.append(f"S_rect_{index:02}: 6.400000e+02 4.800000e+02")
    return "\n".join(lines) + "\n"


_K = (718.856, 0, 607.1928), (0, 718.856, 185.2157), (0, 0, 1)
_LAST = (0, 0, 0), (-386.1448, 0, 0), (45.38225, -0.1130887, 0.003779761), (-337.2877, 2.369057, 0.004915215)
KITTI_ODOMETRY = "".join(
    f"P{index}: {numbers(np.column_stack([_K, last]))}\n" for index, last in enumerate(_LAST)
)
"""Calibration of KITTI's odometry sequence 00."""

MIDDLEBURY = """cam0=[3979.911 0 1244.772; 0 3979.911 1019.507; 0 0 1]
cam1=[3979.911 0 1369.115; 0 3979.911 1019.507; 0 0 1]
doffs=124.343
baseline=193.001
width=2964
height=1988
ndisp=280
isint=0
vmin=31
vmax=257
dyavg=0.918
dymax=1.516
"""
"""Calibration of the Motorcycle scene of 2014 at full size."""


def check_rig(stored: StoredCalibration, *, fisheye: bool = False, known_size: bool = True) -> None:
    rig = stored.rig
    coefficients = (FISHEYE1, FISHEYE2) if fisheye else (D1, D2)
    for camera, k, d in zip((rig.left, rig.right), (K1, K2), coefficients, strict=True):
        np.testing.assert_allclose(camera.matrix, k, rtol=1e-9)
        known = np.append(d, np.zeros(10))[: len(camera.distortion)]
        np.testing.assert_allclose(camera.distortion, known, rtol=1e-9)
        assert camera.fisheye == fisheye
    np.testing.assert_allclose(rig.rotation, R, atol=1e-9)
    np.testing.assert_allclose(rig.translation, T, atol=1e-9)
    np.testing.assert_allclose(rig.center, CENTER, atol=1e-9)
    assert rig.size == (SIZE if known_size else None)
    assert rig.baseline == pytest.approx(BASELINE)
    assert rig.angle == pytest.approx(np.degrees(np.linalg.norm([0.012, -0.023, 0.008])))


def check_rectified(calibration: Calibration | None, size: tuple[int, int] | None = SIZE) -> None:
    assert calibration.focal_length == pytest.approx(P1[0, 0])
    assert calibration.baseline == pytest.approx(BASELINE)
    assert calibration.offset == pytest.approx(0, abs=1e-9)
    assert calibration.principal == pytest.approx((P1[0, 2], P1[1, 2]))
    assert calibration.size == size
