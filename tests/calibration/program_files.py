"""The rig of `calibration_files` as other programs write it: SLAM, cameras, MATLAB, COLMAP."""

from __future__ import annotations

import io
import json

import calibration_files as files
import cv2
import numpy as np
from calibration_files import D1, D2, FISHEYE1, FISHEYE2, K1, K2, P1, P2, R1, R2, R, T

BODY = np.eye(4)
"""The pose of the left camera on a body, as (4, 4) from its coordinates."""
BODY[:3, :3] = cv2.Rodrigues(np.array([0.4, -1.2, 0.7]))[0]
BODY[:3, 3] = 0.02, -0.06, 0.01
RIGHT_FROM_LEFT = np.vstack([np.column_stack([R, T]), [0, 0, 0, 1]])
BODY_RIGHT = BODY @ np.linalg.inv(RIGHT_FROM_LEFT)
CAMERAS = (K1, D1, BODY), (K2, D2, BODY_RIGHT)
FISHEYES = (K1, FISHEYE1, BODY), (K2, FISHEYE2, BODY_RIGHT)
HEAD = "%YAML:1.0\n---\n"


def chain(key: str = "T_imu_cam", fisheye: bool = False) -> str:
    """OpenVINS' kalibr_imucam_chain.yaml; with T_cam_imu, Kalibr's without T_cn_cnm1."""
    tree = {}
    for index, (k, d, pose) in enumerate(FISHEYES if fisheye else CAMERAS):
        placed = {key: (pose if key == "T_imu_cam" else np.linalg.inv(pose)).tolist()}
        model = "equidistant" if fisheye else "radtan"
        tree[f"cam{index}"] = placed | files.kalibr_camera(k, d[:4], model)
    return "%YAML:1.0\n\n" + files.dump(tree)


def euroc(left: bool) -> str:
    k, d, pose = CAMERAS[not left]
    lens = {"intrinsics": files.lens(k), "distortion_model": "radial-tangential"}
    lens |= {"camera_model": "pinhole", "distortion_coefficients": d[:4].tolist()}
    body = {"T_BS": {"cols": 4, "rows": 4, "data": pose.ravel().tolist()}}
    return files.dump({"sensor_type": "camera", **body, "rate_hz": 20, "resolution": [640, 480], **lens})


def _matrix(name: str, values: np.ndarray, space: str = " ", kind: str = "d") -> str:
    values = np.atleast_2d(values)
    rows, columns = values.shape
    head = f"{name}: !!opencv-matrix\n   rows: {rows}\n   cols: {columns}\n   dt: {kind}\n"
    return f"{head}   data:{space}[{files.row(values)}]\n"


def orb_slam2() -> str:
    """Images that it rectifies itself; OpenCV reads "data:[", YAML does not."""
    values = files.named("k1 k2 p1 p2", [0.0] * 4) | files.named("fx fy cx cy", files.lens(P1))
    values |= {"width": 640, "height": 480, "bf": -float(P2[0, 3])}
    text = "%YAML:1.0\n\n" + files.dump({f"Camera.{key}": value for key, value in values.items()}, flow=False)
    for side, k, d, r, p in (("LEFT", K1, D1, R1, P1), ("RIGHT", K2, D2, R2, P2)):
        text += f"\n{side}.height: 480\n{side}.width: 640\n"
        text += _matrix(f"{side}.D", d, "") + _matrix(f"{side}.K", k)
        text += _matrix(f"{side}.R", r) + _matrix(f"{side}.P", p)
    return text + "\nORBextractor.nFeatures: 1200\n"


def orb_slam3(fisheye: bool = False, old: bool = False) -> str:
    """ORB-SLAM3's settings; old: those of before version 1.0 of the files, with Tlr."""
    values = {} if old else {"File.version": "1.0"}
    values["Camera.type"] = "KannalaBrandt8" if fisheye else "PinHole"
    names = "fx fy cx cy " + ("k1 k2 k3 k4" if fisheye else "k1 k2 p1 p2 k3")
    cameras = FISHEYES if fisheye else CAMERAS
    for prefix, (k, d, _) in zip(("Camera" if old else "Camera1", "Camera2"), cameras, strict=True):
        values |= {
            f"{prefix}.{key}": value for key, value in files.named(names, [*files.lens(k), *d]).items()
        }
    values |= {"Camera.width": 640, "Camera.height": 480}
    transform = np.linalg.inv(RIGHT_FROM_LEFT)[: 3 if old else 4]
    pose = _matrix("Tlr" if old else "Stereo.T_c1_c2", transform, kind="f")
    return f"%YAML:1.0\n\n{files.dump(values, flow=False)}{pose}\nStereo.ThDepth: 60.0\n"


ORB_SLAM3_RECTIFIED = (
    '%YAML:1.0\nFile.version: "1.0"\nCamera.type: "Rectified"\nCamera1.fx: 435.2\nCamera1.fy: 435.2\n'
    "Camera1.cx: 367.5\nCamera1.cy: 252.25\nStereo.b: 0.11\nCamera.width: 752\nCamera.height: 480\n"
)
_RECTIFIED = files.named("fx fy cx cy", files.lens(P1))
FX, FY, X, Y = _RECTIFIED.values()
BF = -float(P2[0, 3])
_STELLA = {"name": "EuRoC stereo", "setup": "stereo", "model": "perspective", **_RECTIFIED}
STELLA = files.dump({"Camera": _STELLA | {"k1": 0.0, "cols": 640, "rows": 480, "focal_x_baseline": BF}})
STELLA_RECTIFIER = STELLA + files.dump(
    {
        "StereoRectifier": {"model": "perspective"}
        | {f"{key}_left": value.ravel().tolist() for key, value in (("K", K1), ("D", D1), ("R", R1))}
        | {f"{key}_right": value.ravel().tolist() for key, value in (("K", K2), ("D", D2), ("R", R2))}
    }
)


def vins(fisheye: bool = False) -> tuple[str, str, str]:
    """The settings, and the lens of each camera."""
    poses = _matrix("body_T_cam0", BODY) + _matrix("body_T_cam1", BODY_RIGHT)
    texts = [f"{HEAD}num_of_cam: 2\ncam0_calib: file1\ncam1_calib: file2\n{poses}"]
    for k, d, _ in FISHEYES if fisheye else CAMERAS:
        if fisheye:
            values = files.named("mu mv u0 v0 k2 k3 k4 k5", [*files.lens(k), *d])
            tree: dict[str, object] = {"model_type": "KANNALA_BRANDT", "projection_parameters": values}
        else:
            values, bent = files.named("fx fy cx cy", files.lens(k)), files.named("k1 k2 p1 p2", d[:4])
            tree = {"model_type": "PINHOLE", "projection_parameters": values, "distortion_parameters": bent}
        texts.append(HEAD + files.dump({**tree, "image_width": 640, "image_height": 480}))
    return texts[0], texts[1], texts[2]


def basalt(fisheye: bool = True) -> str:
    poses, lenses = [], []
    for k, d, pose in FISHEYES:
        w, *rest = quaternion(pose[:3, :3])
        poses.append(files.named("px py pz qx qy qz qw", [*pose[:3, 3], *rest, w]))
        values = files.named("fx fy cx cy k1 k2 k3 k4", [*files.lens(k), *d])
        lenses.append({"camera_type": "kb4" if fisheye else "ds", "intrinsics": values})
    return json.dumps({"value0": {"T_imu_cam": poses, "intrinsics": lenses, "resolution": [[640, 480]] * 2}})


def mrcal(left: bool, model: str = "LENSMODEL_OPENCV5") -> str:
    """A .cameramodel, with what mrcal keeps of its optimization."""
    k, d, pose = (K1, D1, np.eye(4)) if left else (K2, D2, RIGHT_FROM_LEFT)
    values = [*files.lens(k), *(d.tolist() if "OPENCV" in model else [])]
    extrinsics = [*cv2.Rodrigues(pose[:3, :3])[0].ravel().tolist(), *pose[:3, 3].tolist()]
    return (
        f"# generated by mrcal\n{{\n    'lensmodel':  '{model}',\n\n    # fx,fy,cx,cy,distortion0\n"
        f"    'intrinsics': {values},\n    'extrinsics': {extrinsics}, # x_cam = R x_ref + t\n"
        "    'imagersize': [ 640, 480 ],\n    'optimization_inputs_base85': b'P)h>@{6aW]AK,2mt#',\n}\n"
    )


def zed(disto_apart: bool = False, fisheye: bool = False) -> str:
    """SN12345.conf with three resolutions, of which HD has the rig's size scaled to 1280 x 720.

    disto_apart: as for two ZED X One.
    """
    modes = {"2K": 1.5, "FHD": 1.0, "HD": 1.0} if not disto_apart else {"FHD1200": 1.0}
    sections: dict[str, dict[str, float]] = {}
    for side, k, d in (("LEFT", K1, D1), ("RIGHT", K2, D2)):
        for mode, factor in modes.items():
            fx, fy, x, y = (factor * value for value in files.lens(k))
            shift = {"FHD": 30.5}.get(mode, 0)
            bent = {} if disto_apart else files.named("k1 k2 p1 p2 k3", d)
            sections[f"{side}_CAM_{mode}"] = {"fx": fx, "fy": fy, "cx": x + shift, "cy": y + shift, **bent}
        if disto_apart and fisheye:
            sections[f"{side}_DISTO"] = files.named("k1 k2 k3 k4", d[:4])
        elif disto_apart:
            sections[f"{side}_DISTO"] = files.named("k1 k2 p1 p2 k3 k4 k5 k6", [*d, 0, 0, 0])
    stereo = files.named("Baseline TY TZ", [-1000 * T[0], 1000 * T[1], 1000 * T[2]])
    for name, value in zip(("RX", "CV", "RZ"), cv2.Rodrigues(R)[0].ravel().tolist(), strict=True):
        stereo |= {f"{name}_{mode}": value for mode in modes}
    sections |= {"STEREO": stereo, "MISC": {"Sensor_ID": 0}}
    return "\n\n".join(
        "\n".join([f"[{name}]", *(f"{key}={value}" for key, value in values.items())])
        for name, values in sections.items()
    )


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
    cameras = {}
    for number, (k, d) in enumerate(((K1, D1), (K2, D2)), 1):
        bent = {"model": "distortion.brown_conrady", "coeffs": d.tolist()}
        values = files.named("fx fy ppx ppy", files.lens(k))
        cameras[f"infrared{number}"] = {"width": 640, "height": 480, **values, **bent}
    pose = {"rotation": R.T.ravel().tolist(), "translation": T.tolist()}
    return json.dumps({"serial": "012345", "intrinsics": cameras, "extrinsics": pose})


def listing() -> str:
    """What `rs-enumerate-devices -c` prints, with another stream and another resolution."""
    text = "Device Name: Intel RealSense D455\n\nIntrinsic Parameters:\n\n"
    for name, size, factor in (
        ("Color", (1280, 720), 1),
        ("Infrared", (320, 240), 0.5),
        ("Infrared", (640, 480), 1),
    ):
        for side, k, d in (("1", K1, D1), ("2", K2, D2)) if name == "Infrared" else (("", K1, D1),):
            fx, fy, x, y = (factor * value for value in files.lens(k))
            text += f' Intrinsic of "{f"{name} {side}".strip()}" / {size[0]}x{size[1]} / {{Y8}}\n'
            text += f"  Width:        {size[0]}\n  Height:       {size[1]}\n  PPX:  {x}\n  PPY:  {y}\n"
            text += f"  Fx:  {fx}\n  Fy:  {fy}\n  Distortion:   Brown Conrady\n"
            text += f"  Coeffs:       {'  '.join(map(repr, d.tolist()))}\n  FOV (deg):    60 x 40\n\n"
    turn = "".join(f"   {'  '.join(map(repr, line))}\n" for line in R.tolist())
    for names, move in (
        ('"Color"\t  To\t  "Depth"', [9] * 3),
        ('"Infrared 1"\t  To\t  "Infrared 2"', T.tolist()),
    ):
        text += f"Extrinsic from {names} :\n Rotation Matrix:\n{turn}\n"
        text += f" Translation Vector: {'  '.join(map(repr, move))}\n\n"
    return text


def oak() -> str:
    """Camera 1 leads to 2, and 2 to 0, centimetres."""

    def camera(k: np.ndarray, d: np.ndarray, target: int, r: np.ndarray, t: np.ndarray) -> dict[str, object]:
        there = {
            "toCameraSocket": target,
            "rotationMatrix": r.tolist(),
            "translation": files.named("x y z", 100 * t),
        }
        return {
            **{"cameraType": 0, "width": 640, "height": 480, "intrinsicMatrix": k.tolist()},
            **{"distortionCoeff": [*d.tolist(), *[0] * 9], "extrinsics": there},
        }

    nowhere = camera(K1, D1, -1, np.zeros((0, 0)), np.zeros(3))
    turn = cv2.Rodrigues(np.array([0.1, 0.2, 0.3]))[0]
    right = camera(K2, D2, 0, turn, np.array([0.04, 0, 0]))
    cameras = [[0, nowhere], [1, camera(K1, D1, 2, R, T)], [2, right]]
    sides = {"leftCameraSocket": 1, "rightCameraSocket": 2}
    return json.dumps({"cameraData": cameras, "stereoRectificationData": sides})


def topics(ros2: bool) -> tuple[str, str]:
    """Both CameraInfo as `rostopic echo` prints them, or `ros2 topic echo`, with the mark of the next one."""
    texts = []
    for k, d, r, p in ((K1, D1, R1, P1), (K2, D2, R2, P2)):
        tree = {"header": {"frame_id": "x"}, "height": 480, "width": 640, "distortion_model": "plumb_bob"}
        for name, values in (("D", d), ("K", k), ("R", r), ("P", p)):
            tree[name.lower() if ros2 else name] = values.ravel().tolist()
        tree |= {"binning_x": 0, "roi": {"width": 0, "do_rectify": False}}
        texts.append(files.dump(tree, flow=False if ros2 else None) + "---\n")
    return texts[0], texts[1]


def ost(*sides: str) -> str:
    """Print cameras as cameracalibrator does, both one after the other."""
    text = ""
    for side in sides:
        parts = (K1, D1, R1, P1) if side == "left" else (K2, D2, R2, P2)
        text += "# oST version 5.0 parameters\n\n\n[image]\n\nwidth\n640\n\nheight\n480\n\n"
        text += f"[narrow_stereo/{side}]\n\n"
        names = ("camera matrix", "distortion", "rectification", "projection")
        for name, matrix in zip(names, parts, strict=True):
            text += "\n".join([name, *map(files.numbers, np.atleast_2d(matrix)), "", ""])
    return text


def dat(*parts: str) -> tuple[str, ...]:
    """Files of a set: camera0_intrinsics.dat and so on."""

    def lines(matrix: np.ndarray) -> str:
        return "".join(" ".join(map(repr, line)) + " \n" for line in np.atleast_2d(matrix).tolist())

    texts = {
        "k0": f"intrinsic:\n{lines(K1)}distortion:\n{lines(D1)}",
        "k1": f"intrinsic:\n{lines(K2)}distortion:\n{lines(D2)}",
        "p0": f"R:\n{lines(np.eye(3))}T:\n{lines(np.zeros((3, 1)))}",
        "p1": f"R:\n{lines(R)}T:\n{lines(T[:, None])}",
    }
    return tuple(texts[part] for part in parts)


def colmap_cameras(model: str = "OPENCV") -> str:
    """Pixels have their centres at a half there."""
    text = "# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n"
    for number, k, d in ((1, K1, D1), (2, K2, D2)):
        bent = {"OPENCV": [*d[:4]], "FULL_OPENCV": [*d, 0, 0, 0]}.get(model, [])
        values = [*np.add(files.lens(k), [0, 0, 0.5, 0.5]), *bent]
        text += f"{number} {model} 640 480 {' '.join(map(repr, map(float, values)))}\n"
    return text


def quaternion(rotation: np.ndarray) -> list[float]:
    w = np.sqrt(1 + np.trace(rotation)) / 2
    return [float(w), *((rotation - rotation.T)[[2, 0, 1], [1, 2, 0]] / (4 * w)).tolist()]


def colmap_rigs() -> str:
    pose = " ".join(f"{value:.15g}" for value in [*quaternion(R), *T])
    sensors = "(SENSOR_TYPE, SENSOR_ID, HAS_POSE, [QW, QX, QY, QZ, TX, TY, TZ])"
    head = f"#   RIG_ID, NUM_SENSORS, REF_SENSOR_TYPE, REF_SENSOR_ID, SENSORS[] as {sensors}"
    return f"{head}\n# Number of rigs: 1\n1 2 CAMERA 1 CAMERA 2 1 {pose}\n"


def colmap_images() -> str:
    text = "#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME\n#   POINTS2D[] as (X, Y, POINT3D_ID)\n"
    for number, (_, _, pose) in enumerate(CAMERAS[:2], 1):
        values = [*quaternion((world := np.linalg.inv(pose))[:3, :3]), *world[:3, 3]]
        text += f"{number} {' '.join(map(repr, map(float, values)))} {number} {number}.png\n1.5 2.5 -1\n"
    return text


def colmap_rig_config(models: bool = False) -> str:
    left: dict[str, object] = {"image_prefix": "rig1/left/", "ref_sensor": True}
    right: dict[str, object] = {"image_prefix": "rig1/right/", "cam_from_rig_rotation": quaternion(R)}
    right["cam_from_rig_translation"] = T.tolist()
    for camera, k, d in ((left, K1, D1), (right, K2, D2)):
        if models:
            values = [*np.add(files.lens(k), [0, 0, 0.5, 0.5]), *d.tolist(), 0, 0, 0]
            camera |= {"camera_model_name": "FULL_OPENCV", "camera_params": values}
    return json.dumps([{"cameras": [left, right]}], indent=2)


def stereo_parameters(*, modern: bool = False) -> dict[str, object]:
    """toStruct(stereoParams): millimetres, pixels from 1; matrices for rows, in newer ones for columns."""

    def camera(k: np.ndarray, d: np.ndarray) -> dict[str, object]:
        matrix = k + np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]])
        return {
            **{"RadialDistortion": d[[0, 1, 4]][None], "TangentialDistortion": d[[2, 3]][None]},
            **{"ImageSize": np.array([[480.0, 640.0]]), "WorldUnits": "millimeters"},
            "EstimateSkew": np.array([[0]], np.uint8),
            **({"K": matrix} if modern else {"IntrinsicMatrix": matrix.T}),
            "Version": {"Name": "MATLAB", "Release": "(R2023b)"},
        }

    found: dict[str, object] = {"CameraParameters1": camera(K1, D1), "CameraParameters2": camera(K2, D2)}
    if modern:
        pose = {"Dimensionality": np.array([[3.0]]), "Translation": 1000 * T[None], "R": R}
        return found | {"PoseCamera2": pose}
    return found | {"RotationOfCamera2": R.T, "TranslationOfCamera2": 1000 * T[None]}


def stereo_parameters_json() -> str:
    return json.dumps(stereo_parameters(modern=True), default=lambda array: array.squeeze().tolist())


def matlab_parts() -> tuple[str, str, str]:
    """The fields of both cameras and their pose, each as JSON."""
    texts = []
    for k, d in ((K1, D1), (K2, D2)):
        values = {"FocalLength": k[[0, 1], [0, 1]], "PrincipalPoint": k[:2, 2] + 1}
        values |= {"RadialDistortion": d[[0, 1, 4]], "TangentialDistortion": d[[2, 3]]}
        found = {name: value.tolist() for name, value in values.items()}
        texts.append(json.dumps(found | {"ImageSize": [480, 640], "Skew": 0}))
    pose = {"RotationOfCamera2": R.T.tolist(), "TranslationOfCamera2": (1000 * T).tolist()}
    return texts[0], texts[1], json.dumps(pose)


TOOLBOX = {
    **{"fc_left": K1[[0, 1], [0, 1]][:, None], "cc_left": K1[:2, 2:], "kc_left": D1[:, None]},
    **{"fc_right": K2[[0, 1], [0, 1]][:, None], "cc_right": K2[:2, 2:], "kc_right": D2[:, None]},
    **{"om": cv2.Rodrigues(R)[0], "R": R, "T": 1000 * T[:, None]},
    **{"nx": np.array([[640.0]]), "ny": np.array([[480.0]])},
}
"""Variables of Calib_Results_stereo.mat."""

CITYSCAPES = json.dumps(
    {
        "extrinsic": {"baseline": files.BASELINE, "pitch": 0.03},
        "intrinsic": {"fx": FX, "fy": FY, "u0": X, "v0": Y},
    }
)
DRIVING_STEREO = files.kitti_raw().replace("_00:", "_101:").replace("_01:", "_103:").replace("_03:", "_105:")
CVKIT = (
    f"camera.A=[{FX} 0 {X}; 0 {FY} {Y}; 0 0 1]\ncamera.height=480\ncamera.width=640\n"
    f"rho={BF}\nt={files.BASELINE!r}\n"
)
K_TXT = f"{files.numbers(P1[:, :3])}\n{files.BASELINE!r}\n"
TWO_LINES = f"{files.numbers(P1)}\n{files.numbers(P2)}\n"
APART = tuple(
    files.opencv(camera_matrix=k, distortion_coefficients=d, image_width=640, image_height=480)
    for k, d in ((K1, D1), (K2, D2))
)
FOCAL_AND_BASELINE = json.dumps(
    {
        **{"width": 640, "height": 480, "baseline_meters": files.BASELINE, "fx": FX, "fy": FY},
        **{"cx0": X, "cx1": X, "cy": Y},
    }
)


def posed_cameras() -> tuple[str, str]:
    """A JSON file for each camera, with its lens and its pose from the world."""

    def entry(values: np.ndarray) -> dict[str, object]:
        return {"rows": 3, "cols": values.size // 3, "data": values.ravel().tolist()}

    texts = []
    for k, d, pose in CAMERAS:
        world = np.linalg.inv(pose)
        lens_and_pose = {"k-matrix": entry(k), "lens-coefficients": entry(d)}
        lens_and_pose |= {"rotation-matrix": entry(world[:3, :3]), "translation-vector": entry(world[:3, 3])}
        texts.append(json.dumps(lens_and_pose | {"image-resolution": [640, 480]}))
    return texts[0], texts[1]


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
