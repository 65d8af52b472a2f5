"""The rig of `calibration_files` as other programs write it: Kalibr's relatives, cameras, MATLAB, COLMAP."""

from __future__ import annotations

import io
import json

import calibration_files as files
import cv2
import numpy as np
from calibration_files import D1, D2, K1, K2, P1, P2, R1, R2, R, T, row

BODY = np.eye(4)
"""The pose of the left camera on a body, as (4, 4) from its coordinates."""
BODY[:3, :3] = cv2.Rodrigues(np.array([0.4, -1.2, 0.7]))[0]
BODY[:3, 3] = 0.02, -0.06, 0.01
RIGHT_FROM_LEFT = np.vstack([np.column_stack([R, T]), [0, 0, 0, 1]])
BODY_RIGHT = BODY @ np.linalg.inv(RIGHT_FROM_LEFT)


def chain(key: str = "T_imu_cam", fisheye: bool = False) -> str:
    """OpenVINS' kalibr_imucam_chain.yaml; with T_cam_imu, Kalibr's without T_cn_cnm1."""
    cameras = []
    lenses = (files.FISHEYE1, files.FISHEYE2) if fisheye else (D1[:4], D2[:4])
    for index, (k, d, pose) in enumerate(zip((K1, K2), lenses, (BODY, BODY_RIGHT), strict=True)):
        pose = pose if key == "T_imu_cam" else np.linalg.inv(pose)
        rows = "\n".join(f"    - [{row(line)}]" for line in pose)
        cameras.append(f"""cam{index}:
  {key}: #rotation from camera to IMU R_CtoI, position of camera in IMU p_CinI
{rows}
  cam_overlaps: [{1 - index}]
  camera_model: pinhole
  distortion_coeffs: [{row(d)}]
  distortion_model: {"equidistant" if fisheye else "radtan"}
  intrinsics: [{row(k[[0, 1, 0, 1], [0, 1, 2, 2]])}] #fu, fv, cu, cv
  resolution: [640, 480]
  rostopic: /cam{index}/image_raw
""")
    return "%YAML:1.0\n\n" + "".join(cameras)


def euroc(left: bool) -> str:
    k, d, pose = (K1, D1, BODY) if left else (K2, D2, BODY_RIGHT)
    rows = ",\n         ".join(row(line) for line in pose)
    return f"""# General sensor definitions.
sensor_type: camera
T_BS:
  cols: 4
  rows: 4
  data: [{rows}]
rate_hz: 20
resolution: [640, 480]
camera_model: pinhole
intrinsics: [{row(k[[0, 1, 0, 1], [0, 1, 2, 2]])}] #fu, fv, cu, cv
distortion_model: radial-tangential
distortion_coefficients: [{row(d[:4])}]
"""


def _matrix(name: str, values: np.ndarray, space: str = " ", kind: str = "d") -> str:
    values = np.atleast_2d(values)
    rows, columns = values.shape
    head = f"{name}: !!opencv-matrix\n   rows: {rows}\n   cols: {columns}\n   dt: {kind}\n"
    return f"{head}   data:{space}[{row(values)}]\n"


def orb_slam2() -> str:
    """Images that it rectifies itself; OpenCV reads "data:[", YAML does not."""
    lines = [f"Camera.{key}: 0.0" for key in ("k1", "k2", "p1", "p2")] + ["Camera.fps: 20.0", "Camera.RGB: 1"]
    for key, value in zip(("fx", "fy", "cx", "cy"), P1[[0, 1, 0, 1], [0, 1, 2, 2]].tolist(), strict=True):
        lines.append(f"Camera.{key}: {value:.12g}")
    lines += ["Camera.width: 640", "Camera.height: 480", "# stereo baseline times fx"]
    text = "\n".join(["%YAML:1.0", "", *lines, f"Camera.bf: {-P2[0, 3]:.12g}", "ThDepth: 35", ""])
    for side, k, d, r, p in (("LEFT", K1, D1, R1, P1), ("RIGHT", K2, D2, R2, P2)):
        text += f"\n{side}.height: 480\n{side}.width: 640\n"
        text += _matrix(f"{side}.D", d, "") + _matrix(f"{side}.K", k)
        text += _matrix(f"{side}.R", r) + _matrix(f"{side}.P", p)
    return text + "\nORBextractor.nFeatures: 1200\n"


def orb_slam3(fisheye: bool = False, old: bool = False) -> str:
    """ORB-SLAM3's settings; old: those of before version 1.0 of the files, with Tlr."""
    lenses = (files.FISHEYE1, files.FISHEYE2) if fisheye else (D1, D2)
    names = ("k1", "k2", "k3", "k4") if fisheye else ("k1", "k2", "p1", "p2", "k3")
    lines = ["%YAML:1.0", "", 'File.version: "1.0"' * (not old), ""]
    lines.append(f'Camera.type: "{"KannalaBrandt8" if fisheye else "PinHole"}"')
    for name, k, d in (("Camera" if old else "Camera1", K1, lenses[0]), ("Camera2", K2, lenses[1])):
        values = zip(("fx", "fy", "cx", "cy"), k[[0, 1, 0, 1], [0, 1, 2, 2]], strict=True)
        lines += [f"{name}.{key}: {value}" for key, value in values]
        lines += [f"{name}.{key}: {value}" for key, value in zip(names, d, strict=True)]
    lines += ["Camera.width: 640", "Camera.height: 480", "Camera.fps: 20", "Camera.RGB: 1"]
    transform = np.linalg.inv(RIGHT_FROM_LEFT)
    text = (
        "\n".join(lines)
        + "\n"
        + _matrix("Tlr" if old else "Stereo.T_c1_c2", transform[: 3 if old else 4], kind="f")
    )
    return text + "\nStereo.ThDepth: 60.0\n"


ORB_SLAM3_RECTIFIED = (
    '%YAML:1.0\nFile.version: "1.0"\nCamera.type: "Rectified"\nCamera1.fx: 435.2\nCamera1.fy: 435.2\n'
    "Camera1.cx: 367.5\nCamera1.cy: 252.25\nStereo.b: 0.11\nCamera.width: 752\nCamera.height: 480\n"
)


def zed(disto_apart: bool = False, fisheye: bool = False) -> str:
    """SN12345.conf with three resolutions, of which HD has the rig's size scaled to 1280 x 720.

    disto_apart: as for two ZED X One.
    """
    vector = cv2.Rodrigues(R)[0].ravel()
    parts, modes = [], {"2K": 1.5, "FHD": 1.0, "HD": 1.0} if not disto_apart else {"FHD1200": 1.0}
    for mode, factor in modes.items():
        for side, k, d in (("LEFT", K1, D1), ("RIGHT", K2, D2)):
            shift = {"FHD": 30.5}.get(mode, 0)
            lines = [f"fx={factor * k[0, 0]}", f"fy={factor * k[1, 1]}"]
            lines += [f"cx={factor * k[0, 2] + shift}", f"cy={factor * k[1, 2] + shift}"]
            if not disto_apart:
                lines += [
                    f"{key}={value}" for key, value in zip(("k1", "k2", "p1", "p2", "k3"), d, strict=True)
                ]
            parts.append("\n".join([f"[{side}_CAM_{mode}]", *lines]))
    if disto_apart:
        for side, d in (("LEFT", D1), ("RIGHT", D2)):
            keys = "k1 k2 k3 k4" if fisheye else "k1 k2 p1 p2 k3 k4 k5 k6"
            lens = np.resize(d, 4) if fisheye else np.append(d, [0, 0, 0])
            lines = [f"{key} = {value}" for key, value in zip(keys.split(), lens, strict=True)]
            parts.append("\n".join([f"[{side}_DISTO]", *lines]))
    stereo = [f"Baseline={-1000 * T[0]}", f"TY={1000 * T[1]}", f"TZ={1000 * T[2]}"]
    for name, value in (("RX", vector[0]), ("CV", vector[1]), ("RZ", vector[2])):
        stereo += [f"{name}_{mode}={value}" for mode in modes]
    return "\n\n".join([*parts, "\n".join(["[STEREO]", *stereo]), "[MISC]\nSensor_ID=0"]) + "\n"


_VIEWER = {"baseline": "-50.0648", "intrinsic_left.x.x": "0.497071", "world2left_rot.x.x": "0.999987"}
for _index, _values in enumerate(
    (
        ("957.204", "957.204", "1080", "971.836", "527.868", "1920"),
        ("638.136", "638.136", "720", "647.891", "351.912", "1280"),
        ("0",) * 6,
    )
):
    _keys = (f"rectified.{_index}.{key}" for key in ("fx", "fy", "height", "ppx", "ppy", "width"))
    _VIEWER |= dict(zip(_keys, _values, strict=True))
REALSENSE_VIEWER = json.dumps(_VIEWER)
"""A calibration as RealSense Viewer saves it, shortened: every number is a text."""

REALSENSE_PRESET = '{"parameters": {"param-depthunits": "1000"}, "schema version": 1}'


def realsense_library() -> str:
    """Dumped from pyrealsense2: rotations column by column."""

    def intrinsics(k: np.ndarray, d: np.ndarray) -> dict[str, object]:
        found = dict(zip(("fx", "fy", "ppx", "ppy"), k[[0, 1, 0, 1], [0, 1, 2, 2]].tolist(), strict=True))
        lens = {"model": "distortion.brown_conrady", "coeffs": d.tolist()}
        return {"width": 640, "height": 480, **found, **lens}

    return json.dumps(
        {
            "serial": "012345",
            "intrinsics": {"infrared1": intrinsics(K1, D1), "infrared2": intrinsics(K2, D2)},
            "extrinsics": {"rotation": R.T.ravel().tolist(), "translation": T.tolist()},
        }
    )


def ost(*sides: str) -> str:
    """Print cameras as cameracalibrator does, both one after the other."""
    text = ""
    for side in sides:
        parts = (K1, D1, R1, P1) if side == "left" else (K2, D2, R2, P2)
        text += "# oST version 5.0 parameters\n\n\n[image]\n\nwidth\n640\n\nheight\n480\n\n"
        text += f"[narrow_stereo/{side}]\n\n"
        for name, matrix in zip(
            ("camera matrix", "distortion", "rectification", "projection"), parts, strict=True
        ):
            lines = [" ".join(f"{v:.12f}" for v in line) for line in np.atleast_2d(matrix)]
            text += "\n".join([name, *lines, "", ""])
    return text


def colmap_cameras(model: str = "OPENCV", shift: float = 0.5) -> str:
    """Pixels have their centres at a half there."""
    lines = []
    for number, k, d in ((1, K1, D1), (2, K2, D2)):
        values = [k[0, 0], k[1, 1], k[0, 2] + shift, k[1, 2] + shift]
        if model == "OPENCV":
            values += d[:4].tolist()
        if model == "FULL_OPENCV":
            values += [*d, 0, 0, 0]
        lines.append(f"{number} {model} 640 480 {' '.join(map(repr, map(float, values)))}")
    comment = (
        "# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n"
    )
    return f"{comment}# Number of cameras: 2\n" + "\n".join(lines) + "\n"


def quaternion(rotation: np.ndarray) -> list[float]:
    w = np.sqrt(1 + np.trace(rotation)) / 2
    return [float(w), *((rotation - rotation.T)[[2, 0, 1], [1, 2, 0]] / (4 * w)).tolist()]


def colmap_rigs() -> str:
    pose = " ".join(f"{value:.15g}" for value in [*quaternion(R), *T])
    sensors = "(SENSOR_TYPE, SENSOR_ID, HAS_POSE, [QW, QX, QY, QZ, TX, TY, TZ])"
    return f"""# Rig calib list with one line of data per calib:
#   RIG_ID, NUM_SENSORS, REF_SENSOR_TYPE, REF_SENSOR_ID, SENSORS[] as {sensors}
# Number of rigs: 1
1 2 CAMERA 1 CAMERA 2 1 {pose}
"""


def colmap_rig_config(models: bool = False) -> str:
    left: dict[str, object] = {"image_prefix": "rig1/left/", "ref_sensor": True}
    right: dict[str, object] = {"image_prefix": "rig1/right/", "cam_from_rig_rotation": quaternion(R)}
    right["cam_from_rig_translation"] = T.tolist()
    for camera, k, d in ((left, K1, D1), (right, K2, D2)):
        if models:
            values = [k[0, 0], k[1, 1], k[0, 2] + 0.5, k[1, 2] + 0.5, *d, 0, 0, 0]
            camera |= {"camera_model_name": "FULL_OPENCV", "camera_params": values}
    return json.dumps([{"cameras": [left, right]}], indent=2)


def stereo_parameters(*, modern: bool = False) -> dict[str, object]:
    """toStruct(stereoParams): millimetres, pixels from 1; matrices for rows, in newer ones for columns."""

    def camera(k: np.ndarray, d: np.ndarray) -> dict[str, object]:
        matrix = k + np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]])
        return {
            "RadialDistortion": d[[0, 1, 4]][None],
            "TangentialDistortion": d[[2, 3]][None],
            "ImageSize": np.array([[480.0, 640.0]]),
            "WorldUnits": "millimeters",
            "EstimateSkew": np.array([[0]], np.uint8),
            **({"K": matrix} if modern else {"IntrinsicMatrix": matrix.T}),
            "Version": {"Name": "MATLAB", "Release": "(R2023b)"},
        }

    found: dict[str, object] = {"CameraParameters1": camera(K1, D1), "CameraParameters2": camera(K2, D2)}
    if modern:
        found["PoseCamera2"] = {"Dimensionality": np.array([[3.0]]), "Translation": 1000 * T[None], "R": R}
    else:
        found |= {"RotationOfCamera2": R.T, "TranslationOfCamera2": 1000 * T[None]}
    return found


def stereo_parameters_json() -> str:
    return json.dumps(stereo_parameters(modern=True), default=lambda array: array.squeeze().tolist())


TOOLBOX = {
    "fc_left": K1[[0, 1], [0, 1]][:, None],
    "cc_left": K1[:2, 2:],
    "kc_left": D1[:, None],
    "fc_right": K2[[0, 1], [0, 1]][:, None],
    "cc_right": K2[:2, 2:],
    "kc_right": D2[:, None],
    "om": cv2.Rodrigues(R)[0],
    "R": R,
    "T": 1000 * T[:, None],
    "nx": np.array([[640.0]]),
    "ny": np.array([[480.0]]),
}
"""Variables of Calib_Results_stereo.mat."""


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
