"""Readers for calibrations of SLAM: Kalibr, EuRoC, ORB-SLAM, stella_vslam, VINS-Fusion, Basalt, mrcal."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera, invert_transform, make_rotation, make_transform, pinhole_matrix
from pamcli.calibration.description import CameraDescription, CameraPair, describe_rectified, pair_cameras
from pamcli.calibration.geometry import Floats, Size
from pamcli.calibration.parsing import (
    Section,
    Source,
    is_fisheye,
    make_camera,
    parse,
    read_quaternion_pose,
    read_size,
    unsupported_lens,
)
from pamcli.calibration.ros_files import TOPIC, describe_ros
from pamcli.errors import InputError
from pamcli.files.paths import pluralize
from pamcli.files.safe_reading import read_bytes

RADTAN, RATIONAL, KB4 = "k1 k2 p1 p2", "k1 k2 p1 p2 k3 k4 k5 k6", "k1 k2 k3 k4"


def read_kalibr(source: Source) -> CameraDescription:
    """Read camchain.yaml of Kalibr, and OpenVINS' kalibr_imucam_chain.yaml."""
    pair = source.pair or (0, 1)
    parts = [source.tree.section(f"cam{index}") for index in pair]
    cameras, sizes = zip(*(_read_kalibr_camera(each, "distortion_coeffs") for each in parts), strict=True)
    steps = [source.tree.section(f"cam{index}") for index in range(min(pair) + 1, max(pair) + 1)]
    if all("T_cn_cnm1" in each for each in steps):
        transform: Floats = np.eye(4)
        for each in steps:
            transform = each.pose("T_cn_cnm1") @ transform
        transform = invert_transform(transform) if pair[0] > pair[1] else transform
        return CameraDescription("Kalibr camchain", [CameraPair(cameras, transform, sizes)])
    for key, kind in (("T_imu_cam", "OpenVINS"), ("T_cam_imu", "Kalibr camchain")):
        if all(key in each for each in parts):
            poses = [each.pose(key) for each in parts]
            poses = [*map(invert_transform, poses)] if key == "T_cam_imu" else poses
            return CameraDescription(kind, [pair_cameras(zip(cameras, poses, sizes, strict=True))])
    message = f"must hold T_cn_cnm1 of cam{max(pair)}, or T_imu_cam or T_cam_imu of both cameras"
    raise InputError(message, "use a file for which both cameras were calibrated together")


def read_euroc(source: Source) -> CameraDescription:
    """Read sensor.yaml of both cameras: T_BS leads from camera to body coordinates."""
    if len(source.trees) != 2:
        hint = "give two files: cam0/sensor.yaml and cam1/sensor.yaml, the left one first"
        raise InputError(f"holds {pluralize(len(source.trees), 'camera')}, a pair needs 2", hint)
    placed = []
    for tree in source.trees:
        camera, size = _read_kalibr_camera(tree, "distortion_coefficients")
        placed.append((camera, tree.pose("T_BS"), size))
    return CameraDescription("EuRoC", [pair_cameras(placed)])


def _read_kalibr_camera(tree: Section, coefficients: str) -> tuple[Camera, Size]:
    if (model := str(tree.get("camera_model"))) != "pinhole":
        hint = "calibrate with pinhole-radtan, or with pinhole-equi for a fisheye"
        raise unsupported_lens(f"{tree.prefix}camera_model", model, hint)
    matrix = pinhole_matrix(*tree.numbers("intrinsics", 4))
    model = str(tree.get("distortion_model"))
    fisheye = is_fisheye(model, f"{tree.prefix}distortion_model")
    distortion = np.zeros(0) if model == "none" else tree.numbers(coefficients)
    key = tree.prefix + coefficients
    camera = make_camera(matrix, f"{tree.prefix}intrinsics", distortion, key, fisheye)
    return camera, tree.size("resolution")


def read_orb_slam(source: Source) -> CameraDescription:
    """Read the settings of ORB-SLAM2, ORB-SLAM3 and stella_vslam for a stereo camera.

    They state a rectification (LEFT.K, D, R, P; StereoRectifier), a pose (Stereo.T_c1_c2, Tlr), or rectified
    images (Camera.bf, focal_x_baseline or Stereo.b). Camera.newWidth, which resizes images, is ignored.
    """
    tree = source.flat
    kind = "stella_vslam" if {"Camera.focal_x_baseline", "Camera.setup"} & tree.keys() else "ORB-SLAM"
    if "LEFT.K" in tree:
        sides = ("LEFT", "RIGHT")
        cameras = [{name: tree.get(f"{side}.{key}") for key, name in TOPIC.items()} for side in sides]
        return describe_ros(cameras, kind)
    if "RGBD.DepthMapFactor" in tree or "DepthMapFactor" in tree:
        raise InputError("holds a depth camera (DepthMapFactor), not a stereo pair")
    width = tree.get("Camera.width", tree.get("Camera.cols"))
    height = tree.get("Camera.height", tree.get("Camera.rows"))
    size = None if None in (width, height) else read_size([width, height], "Camera.width x Camera.height")
    model = tree.get("Camera.type", tree.get("Camera.model", ""))
    fisheye = str(model).lower() != "rectified" and is_fisheye(model, "Camera.type")
    coefficients = KB4 if fisheye else f"{RADTAN} k3"
    left = tree.camera(coefficients, "Camera1." if "Camera1.fx" in tree else "Camera.", fisheye)
    if key := next((key for key in ("Stereo.T_c1_c2", "Tlr") if key in tree), ""):
        right = tree.camera(coefficients, "Camera2.", fisheye)
        placed = (left, np.eye(4), size), (right, tree.pose(key), size)
        return CameraDescription(kind, [pair_cameras(placed)])
    if "Stereo.b" in tree:
        baseline = tree.number("Stereo.b")
    elif key := next((key for key in ("Camera.bf", "Camera.focal_x_baseline") if key in tree), ""):
        baseline = tree.number(key) / float(left.matrix[0, 0])
    else:
        raise InputError("holds one camera, a pair needs 2", "use the settings for a stereo camera")
    rectified = describe_rectified(kind, left.matrix, baseline, size=size)
    if "StereoRectifier.K_left" in tree:
        cameras = []
        (found,) = rectified.projections
        for side, projection in (("left", found.p1), ("right", found.p2)):
            each = {name: tree.get(f"StereoRectifier.{key}_{side}") for key, name in TOPIC.items()}
            each |= {"projection_matrix": projection, "image_width": width, "image_height": height}
            cameras.append({**each, "distortion_model": tree.get("StereoRectifier.model") or "perspective"})
        return describe_ros(cameras, kind)
    if left.distortion.any():
        message = "holds distortion coefficients and a baseline, but no pose of the right camera"
        raise InputError(message, "it needs LEFT.K ... RIGHT.P, StereoRectifier, or Stereo.T_c1_c2")
    return rectified


def read_vins(source: Source) -> CameraDescription:
    """Read VINS-Fusion's settings, body_T_cam0 and body_T_cam1, with the camera files that they name."""
    main = next((tree for tree in source.trees if "body_T_cam0" in tree), None)
    if main is None:
        raise InputError("holds one camera of VINS-Fusion", "give the file with body_T_cam0, too")
    files = zip(source.contents, source.parsed_contents, strict=True)
    given = {PurePosixPath(name).name: trees[0] for (name, _), (_, trees, _) in files if trees}
    others = [tree for tree in given.values() if tree is not main]
    placed = []
    for place, index in enumerate(source.pair or (0, 1)):
        name = PurePosixPath(str(main.get(f"cam{index}_calib"))).name
        found = given.get(name) or (others[min(place, len(others) - 1)] if others else None)
        beside = Path(source.contents[0][0]).parent / name
        if found is None and os.path.isfile(beside):  # False also for impossible names
            found = next(iter(parse(read_bytes(beside))[1]), None)
        if found is None:
            raise InputError(f"cam{index}_calib is {name[:60]}, which does not exist", "give that file, too")
        camera, size = _read_vins_camera(Section(found, f"{name[:60]}: "))
        placed.append((camera, main.pose(f"body_T_cam{index}"), size))
    return CameraDescription("VINS-Fusion", [pair_cameras(placed)])


def _read_vins_camera(tree: Section) -> tuple[Camera, Size]:
    model = str(tree.get("model_type")).upper()
    lens = tree.get("distortion_parameters") or {}
    values = tree.section("projection_parameters")
    size = tree.size("image_width", "image_height")
    if model == "PINHOLE" and isinstance(lens, Mapping):
        return Section({**lens, **values}, values.prefix).camera(RADTAN), size
    if model == "KANNALA_BRANDT":
        renamed = {**values, **{f"k{i}": values.get(f"k{i + 1}", 0) for i in range(1, 5)}}
        return Section(renamed, values.prefix).camera(KB4, "", True, "mu mv u0 v0"), size
    raise unsupported_lens(f"{tree.prefix}model_type", model, "calibrate with PINHOLE or KANNALA_BRANDT")


_BASALT = {
    **{"pinhole": "", "kb4": KB4},
    **{"pinhole-radtan4": RADTAN, "pinhole-radtan5": f"{RADTAN} k3", "pinhole-radtan8": RATIONAL},
}


def read_basalt(source: Source) -> CameraDescription:
    """Read value0.T_imu_cam, poses of the cameras, with value0.intrinsics and value0.resolution."""
    tree = source.tree.section("value0")
    lists: list[Any] = [tree.get(key) for key in ("T_imu_cam", "intrinsics")]
    if not all(isinstance(each, list) and all(isinstance(one, Mapping) for one in each) for each in lists):
        raise InputError("value0 must hold lists T_imu_cam and intrinsics")
    poses, lenses = lists
    sizes: Any = tree.get("resolution")
    sizes = sizes if isinstance(sizes, list) else []
    placed = []
    for index in source.select_pair(min(len(poses), len(lenses))):
        lens, pose, model = lenses[index], poses[index], str(lenses[index].get("camera_type"))
        if model not in _BASALT:
            hint = "calibrate with --cam-types kb4 or pinhole-radtan8"
            raise unsupported_lens(f"intrinsics[{index}]: camera_type", model, hint)
        camera = Section(lens).section("intrinsics").camera(_BASALT[model], "", model == "kb4")
        turn, place = ([pose.get(name) for name in names.split()] for names in ("qw qx qy qz", "px py pz"))
        size = read_size(sizes[index], "resolution") if index < len(sizes) else None
        placed.append((camera, read_quaternion_pose(turn, place, f"T_imu_cam[{index}]"), size))
    return CameraDescription("Basalt", [pair_cameras(placed)])


_MRCAL = {"PINHOLE": 0, "OPENCV4": 4, "OPENCV5": 5, "OPENCV8": 8, "OPENCV12": 12}


def read_mrcal(source: Source) -> CameraDescription:
    """Read .cameramodel files, whose extrinsics lead from reference to camera coordinates."""
    placed = []
    for tree in (source.trees[index] for index in source.select_pair(len(source.trees))):
        model = str(tree.get("lensmodel")).removeprefix("LENSMODEL_")
        if model not in _MRCAL:
            hint = "mrcal-convert-lensmodel LENSMODEL_OPENCV8 converts it"
            raise unsupported_lens("lensmodel", model, hint)
        values = tree.numbers("intrinsics", 4 + _MRCAL[model])
        camera = make_camera(pinhole_matrix(*values[:4]), "intrinsics", values[4:], "intrinsics")
        pose = tree.numbers("extrinsics" if "extrinsics" in tree else "rt_cam_ref", 6)
        from_reference = make_transform(make_rotation(pose[:3]), pose[3:])
        placed.append((camera, invert_transform(from_reference), tree.size("imagersize")))
    return CameraDescription("mrcal", [pair_cameras(placed)])
