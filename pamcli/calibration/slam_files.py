"""Calibrations in the settings of visual odometry and SLAM: Kalibr, OpenVINS, EuRoC, ORB-SLAM2 and 3."""

from collections.abc import Sequence

import numpy as np

from pamcli.calibration.parsing import Tree, number, numbers, size_of
from pamcli.calibration.rectified import Calibration, Floats
from pamcli.calibration.rig import Camera
from pamcli.calibration.ros_files import ros
from pamcli.calibration.stored import (
    StoredCalibration,
    camera_of,
    inverse,
    named_camera,
    one_size,
    part,
    pinhole_matrix,
    rig_of,
    rig_of_poses,
    rigid,
)
from pamcli.errors import InputError

_MODELS = {
    "radtan": False,
    "radial-tangential": False,
    "plumb_bob": False,
    "equidistant": True,
    "none": False,
}
"""Models of distortion by Kalibr's and EuRoC's names: whether each is that of a fisheye."""


def kalibr(tree: Tree, pair: tuple[int, int]) -> StoredCalibration:
    """camchain.yaml of Kalibr, and OpenVINS' kalibr_imucam_chain.yaml. pair: numbers of the cameras.

    Where the cameras stand: each one's transformation from the one before it (T_cn_cnm1), or from or to the
    inertial sensor (T_cam_imu, T_imu_cam).
    """
    parts = [part(tree, f"cam{index}") for index in pair]
    found = [
        _camera(each, f"cam{index}: ", "distortion_coeffs") for each, index in zip(parts, pair, strict=True)
    ]
    size = one_size([size for _, size in found])
    cameras = [camera for camera, _ in found]
    steps = range(min(pair) + 1, max(pair) + 1)
    if all("T_cn_cnm1" in part(tree, f"cam{index}") for index in steps):
        transform: Floats = np.eye(4)
        for index in steps:
            step = part(tree, f"cam{index}")["T_cn_cnm1"]
            transform = rigid(step, f"cam{index}: T_cn_cnm1") @ transform
        exchanged = pair[0] > pair[1]
        ordered = cameras[::-1] if exchanged else cameras
        rig = rig_of(ordered, transform[:3, :3], transform[:3, 3], size, exchanged)
        return StoredCalibration("Kalibr camchain", rig, rig.rectified())
    for key, backwards in (("T_imu_cam", False), ("T_cam_imu", True)):
        if all(key in each for each in parts):
            poses = [rigid(each[key], f"cam{index}: {key}") for each, index in zip(parts, pair, strict=True)]
            if backwards:
                poses = [inverse(pose) for pose in poses]
            rig = rig_of_poses(cameras, poses, size)
            kind = "Kalibr camchain" if backwards else "OpenVINS"
            return StoredCalibration(kind, rig, rig.rectified())
    raise InputError(
        f"cam{max(pair)}: T_cn_cnm1 is missing, and so are T_imu_cam and T_cam_imu of both cameras",
        "take the file of a calibration of both cameras together",
    )


def euroc(trees: Sequence[Tree], exchanged: bool) -> StoredCalibration:
    """sensor.yaml of both cameras: T_BS, from each one's coordinates to those of the body."""
    if len(trees) != 2:
        raise InputError(
            "tells of one camera", "give two files: cam0/sensor.yaml and cam1/sensor.yaml, the left one first"
        )
    found = [_camera(tree, "", "distortion_coefficients") for tree in trees]
    poses = [rigid(tree.get("T_BS"), "T_BS") for tree in trees]
    size = one_size([size for _, size in found])
    rig = rig_of_poses([camera for camera, _ in found], poses, size, exchanged)
    return StoredCalibration("EuRoC", rig, rig.rectified())


def _camera(tree: Tree, prefix: str, coefficients: str) -> tuple[Camera, tuple[int, int]]:
    model = str(tree.get("camera_model"))
    if model != "pinhole":
        raise InputError(
            f"{prefix}camera_model {model[:30]!r} is not pinhole, and no model of OpenCV",
            "calibrate with pinhole-radtan, or with pinhole-equi for a fisheye",
        )
    fx, fy, x, y = numbers(tree.get("intrinsics"), f"{prefix}intrinsics", 4)
    kind = str(tree.get("distortion_model"))
    if kind not in _MODELS:
        raise InputError(
            f"{prefix}distortion_model {kind[:30]!r} is neither radtan nor equidistant",
            "calibrate with pinhole-radtan, or with pinhole-equi for a fisheye",
        )
    key = f"{prefix}{coefficients}"
    distortion = numbers([] if kind == "none" else tree.get(coefficients), key)
    made = camera_of(pinhole_matrix(fx, fy, x, y), f"{prefix}intrinsics", distortion, key, _MODELS[kind])
    return made, size_of(tree.get("resolution"), f"{prefix}resolution")


def orb_slam(tree: Tree, exchanged: bool) -> StoredCalibration:
    """Settings of ORB-SLAM2 and 3 for a stereo camera.

    Either both cameras with what rectifies them (LEFT.K, D, R, P, and RIGHT's), or both with where they stand
    (Camera1, Camera2, Stereo.T_c1_c2, in older files Tlr), or rectified pictures (Camera.fx and Camera.bf,
    or Stereo.b). Pictures are not made smaller, as Camera.newWidth asks ORB-SLAM to do.
    """
    kind, size = "ORB-SLAM", _size(tree)
    if "LEFT.K" in tree:
        names = {"K": "camera_matrix", "D": "distortion_coefficients", "R": "rectification_matrix"}
        names |= {"P": "projection_matrix", "width": "image_width", "height": "image_height"}
        sides = [
            {name: tree.get(f"{side}.{key}") for key, name in names.items()} for side in ("LEFT", "RIGHT")
        ]
        return ros(sides, exchanged, kind)
    if any(key in tree for key in ("RGBD.DepthMapFactor", "DepthMapFactor")):
        raise InputError("is for a depth camera (DepthMapFactor), and tells of one view alone")
    fisheye = tree.get("Camera.type") == "KannalaBrandt8"
    coefficients = ("k1", "k2", "k3", "k4") if fisheye else ("k1", "k2", "p1", "p2", "k3")
    first = "Camera1." if "Camera1.fx" in tree else "Camera."
    left = named_camera(tree, first, coefficients, fisheye)
    for key in ("Stereo.T_c1_c2", "Tlr"):
        if key in tree:
            right = named_camera(tree, "Camera2.", coefficients, fisheye)
            poses = [np.eye(4), rigid(tree[key], key)]
            rig = rig_of_poses([left, right], poses, size, exchanged)
            return StoredCalibration(kind, rig, rig.rectified())
    focal = float(left.matrix[0, 0])
    if "Stereo.b" in tree:
        baseline = number(tree["Stereo.b"], "Stereo.b")
    elif "Camera.bf" in tree:
        baseline = number(tree["Camera.bf"], "Camera.bf") / focal
    else:
        raise InputError("tells of one camera", "take the settings of the stereo camera")
    if left.distortion.any():
        raise InputError(
            "has coefficients of distortion and a baseline, but not where the right camera stands",
            "it needs LEFT.K ... RIGHT.P, or Stereo.T_c1_c2",
        )
    fx, fy, x, y = (float(left.matrix[at]) for at in ((0, 0), (1, 1), (0, 2), (1, 2)))
    if exchanged:
        baseline = -baseline
    return StoredCalibration(
        kind, None, Calibration(fx, baseline, 0.0, (x, y), size, None if fx == fy else fy)
    )


def _size(tree: Tree) -> tuple[int, int] | None:
    sides = [tree.get("Camera.width"), tree.get("Camera.height")]
    return None if None in sides else size_of(sides, "Camera.width x Camera.height")
