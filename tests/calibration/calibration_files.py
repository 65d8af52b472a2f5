"""One rig, and its calibration in the words of every kind of file (folder `examples`)."""

from __future__ import annotations

from pathlib import Path

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
RIG = {"M1": K1, "D1": D1, "M2": K2, "D2": D2, "R": R, "T": T}


def example(name: str) -> str:
    return (Path(__file__).parent / "examples" / name).read_text()


def examples(names: str) -> tuple[bytes, ...]:
    """The contents of the files of one calibration."""
    return tuple((Path(__file__).parent / "examples" / name).read_bytes() for name in names.split())


def opencv(**values: object) -> str:
    """Write values by OpenCV's own writer."""
    mode = cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | cv2.FILE_STORAGE_FORMAT_YAML
    file = cv2.FileStorage("", mode)
    for key, value in values.items():
        file.write(key, value)
    return str(file.releaseAndGetString())


def camchain(cameras: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]) -> str:
    """Write cameras as Kalibr does: matrix, distortion, and (3, 4), the step from the one before."""
    tree = {}
    for number, (k, d, step) in enumerate(cameras):
        values = {"camera_model": "pinhole", "intrinsics": k[[0, 1, 0, 1], [0, 1, 2, 2]].tolist()}
        values |= {"distortion_coeffs": d.tolist(), "distortion_model": "radtan", "resolution": [640, 480]}
        if step is not None:
            values["T_cn_cnm1"] = [*step.tolist(), [0, 0, 0, 1]]
        tree[f"cam{number}"] = values
    return str(yaml.safe_dump(tree, sort_keys=False, default_flow_style=None))


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
