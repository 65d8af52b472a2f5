"""Calibrations of SLAM: Kalibr, EuRoC, ORB-SLAM, stella_vslam, VINS-Fusion, Basalt, mrcal."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera, rotation_of
from pamcli.calibration.described import (
    CameraPair,
    Described,
    both_sizes,
    camera_of,
    inverse,
    is_fisheye,
    named_camera,
    pair_from_poses,
    part,
    pinhole_matrix,
    rectified_images,
    rigid,
    transform_of,
    turned,
)
from pamcli.calibration.parsing import Source, Tree, number, numbers, parse, size_of
from pamcli.calibration.rectified import Floats
from pamcli.calibration.ros_files import ros
from pamcli.errors import InputError

RADTAN, RATIONAL, KB4 = "k1 k2 p1 p2", "k1 k2 p1 p2 k3 k4 k5 k6", "k1 k2 k3 k4"


def two(found: Sequence[Any], pair: tuple[int, int] | None, what: str) -> tuple[list[Any], tuple[int, int]]:
    """Return the items that a pair chooses, by default the first two. Raises InputError: there are fewer."""
    pair = pair or (0, 1)
    if max(pair) >= len(found):
        raise InputError(f"describes {len(found)} {what}, and a pair has two", "`cameras` counts them from 0")
    return [found[index] for index in pair], pair


def has_kalibr(source: Source) -> bool:
    return any(
        re.fullmatch(r"cam\d+", key) and isinstance(each, Mapping) for key, each in source.tree.items()
    )


def read_kalibr(source: Source) -> Described:
    """Read camchain.yaml of Kalibr, and OpenVINS' kalibr_imucam_chain.yaml.

    Where the cameras are: each one's transform from the one before it (T_cn_cnm1), or from or to the inertial
    sensor (T_cam_imu, T_imu_cam).
    """
    tree, pair = source.tree, source.pair or (0, 1)
    parts = [part(tree, f"cam{index}") for index in pair]
    found = [
        _camera(each, f"cam{index}: ", "distortion_coeffs") for each, index in zip(parts, pair, strict=True)
    ]
    cameras, sizes = [camera for camera, _ in found], [size for _, size in found]
    steps = range(min(pair) + 1, max(pair) + 1)
    if all("T_cn_cnm1" in part(tree, f"cam{index}") for index in steps):
        transform: Floats = np.eye(4)
        for index in steps:
            step = part(tree, f"cam{index}")["T_cn_cnm1"]
            transform = rigid(step, f"cam{index}: T_cn_cnm1") @ transform
        transform = inverse(transform) if pair[0] > pair[1] else transform
        return Described(
            "Kalibr camchain", [CameraPair(cameras, transform[:3, :3], transform[:3, 3], *both_sizes(sizes))]
        )
    for key, kind in (("T_imu_cam", "OpenVINS"), ("T_cam_imu", "Kalibr camchain")):
        if all(key in each for each in parts):
            poses = [rigid(each[key], f"cam{index}: {key}") for each, index in zip(parts, pair, strict=True)]
            poses = [*map(inverse, poses)] if key == "T_cam_imu" else poses
            return Described(kind, [pair_from_poses(cameras, poses, sizes)])
    raise InputError(
        f"cam{max(pair)}: T_cn_cnm1 is missing, and so are T_imu_cam and T_cam_imu of both cameras",
        "take the file of a calibration of both cameras together",
    )


def has_euroc(source: Source) -> bool:
    return bool(source.trees) and all("T_BS" in tree for tree in source.trees)


def read_euroc(source: Source) -> Described:
    """Read sensor.yaml of both cameras: T_BS, from each one's coordinates to those of the body."""
    if len(source.trees) != 2:
        raise InputError(
            "describes one camera",
            "give two files: cam0/sensor.yaml and cam1/sensor.yaml, the left one first",
        )
    found = [_camera(tree, "", "distortion_coefficients") for tree in source.trees]
    poses = [rigid(tree.get("T_BS"), "T_BS") for tree in source.trees]
    cameras, sizes = [camera for camera, _ in found], [size for _, size in found]
    return Described("EuRoC", [pair_from_poses(cameras, poses, sizes)])


def _camera(tree: Tree, prefix: str, coefficients: str) -> tuple[Camera, tuple[int, int]]:
    model = str(tree.get("camera_model"))
    if model != "pinhole":
        raise InputError(
            f"{prefix}camera_model {model[:30]!r} is not pinhole, and no model of OpenCV",
            "calibrate with pinhole-radtan, or with pinhole-equi for a fisheye",
        )
    fx, fy, x, y = numbers(tree.get("intrinsics"), f"{prefix}intrinsics", 4)
    model = str(tree.get("distortion_model"))
    fisheye, key = is_fisheye(model, f"{prefix}distortion_model"), f"{prefix}{coefficients}"
    distortion = numbers([] if model == "none" else tree.get(coefficients), key)
    made = camera_of(pinhole_matrix(fx, fy, x, y), f"{prefix}intrinsics", distortion, key, fisheye)
    return made, size_of(tree.get("resolution"), f"{prefix}resolution")


def has_orb_slam(source: Source) -> bool:
    return bool({"Camera.fx", "Camera1.fx", "LEFT.K", "StereoRectifier.K_left"} & source.flat.keys())


def read_orb_slam(source: Source) -> Described:
    """Read the settings of ORB-SLAM2 and 3, and of stella_vslam, for a stereo camera.

    Either both cameras with what rectifies them (LEFT.K, D, R, P, and RIGHT's; StereoRectifier), or both with
    their poses (Camera1, Camera2, Stereo.T_c1_c2, in older files Tlr), or rectified images (Camera.fx and
    Camera.bf, focal_x_baseline or Stereo.b). Camera.newWidth, which resizes images there, is ignored.
    """
    tree = source.flat
    kind = "stella_vslam" if {"Camera.focal_x_baseline", "Camera.setup"} & tree.keys() else "ORB-SLAM"
    names = {"K": "camera_matrix", "D": "distortion_coefficients", "R": "rectification_matrix"}
    names |= {"P": "projection_matrix", "width": "image_width", "height": "image_height"}
    if "LEFT.K" in tree:
        return ros(
            [{name: tree.get(f"{side}.{key}") for key, name in names.items()} for side in ("LEFT", "RIGHT")],
            kind,
        )
    if any(key in tree for key in ("RGBD.DepthMapFactor", "DepthMapFactor")):
        raise InputError("is for a depth camera (DepthMapFactor), and describes one view alone")
    sides = [
        tree.get("Camera.width", tree.get("Camera.cols")),
        tree.get("Camera.height", tree.get("Camera.rows")),
    ]
    size = None if None in sides else size_of(sides, "Camera.width x Camera.height")
    fisheye = (
        is_fisheye(tree.get("Camera.type", tree.get("Camera.model", "")), "Camera.type")
        if (str(tree.get("Camera.type", "")).lower() != "rectified")
        else False
    )
    coefficients = KB4 if fisheye else f"{RADTAN} k3"
    left = named_camera(tree, "Camera1." if "Camera1.fx" in tree else "Camera.", coefficients, fisheye)
    for key in ("Stereo.T_c1_c2", "Tlr"):
        if key in tree:
            right = named_camera(tree, "Camera2.", coefficients, fisheye)
            return Described(
                kind, [pair_from_poses([left, right], [np.eye(4), rigid(tree[key], key)], [size, size])]
            )
    fx, fy, x, y = (float(left.matrix[at]) for at in ((0, 0), (1, 1), (0, 2), (1, 2)))
    if "Stereo.b" in tree:
        baseline = number(tree["Stereo.b"], "Stereo.b")
    elif key := next((key for key in ("Camera.bf", "Camera.focal_x_baseline") if key in tree), ""):
        baseline = number(tree[key], key) / fx
    else:
        raise InputError("describes one camera", "take the settings of the stereo camera")
    if "StereoRectifier.K_left" in tree:
        p1 = np.column_stack([left.matrix, np.zeros(3)])
        p2 = p1.copy()
        p2[0, 3] = -fx * baseline
        model = {"distortion_model": tree.get("StereoRectifier.model") or "perspective"}
        model |= {"image_width": sides[0], "image_height": sides[1]}
        found = [
            {**model, "projection_matrix": p}
            | {names[key]: tree.get(f"StereoRectifier.{key}_{side}") for key in "KDR"}
            for side, p in (("left", p1), ("right", p2))
        ]
        return ros(found, kind)
    if left.distortion.any():
        raise InputError(
            "has coefficients of distortion and a baseline, but no pose of the right camera",
            "it needs LEFT.K ... RIGHT.P, StereoRectifier, or Stereo.T_c1_c2",
        )
    return rectified_images(kind, (fx, fy), (x, y), baseline, size=size)


def has_vins(source: Source) -> bool:
    return any({"projection_parameters", "body_T_cam0", "cam0_calib"} & tree.keys() for tree in source.trees)


def read_vins(source: Source) -> Described:
    """Read VINS-Fusion's settings, body_T_cam0 and body_T_cam1, with the cameras' files that they name."""
    main = next((tree for tree in source.trees if "body_T_cam0" in tree), None)
    if main is None:
        raise InputError(
            "describes the lens of one camera, of VINS-Fusion", "give the file with body_T_cam0, too"
        )
    given = {
        PurePosixPath(name).name: parsed[1][0]
        for (name, _), parsed in zip(source.contents, source.parsed, strict=True)
        if parsed[1]
    }
    others = [tree for tree in given.values() if tree is not main]
    cameras, sizes, poses = [], [], []
    for place, index in enumerate(source.pair or (0, 1)):
        name = PurePosixPath(str(main.get(f"cam{index}_calib"))).name
        beside = source.read_beside(name) if name not in given and not others else None
        trees = parse(beside)[1] if beside else []
        tree = given.get(name) or (
            trees[0] if trees else others[min(place, len(others) - 1)] if others else None
        )
        if tree is None:
            raise InputError(f"cam{index}_calib is {name[:60]}, which is not there", "give that file, too")
        camera, size = _vins_camera(tree, f"{name[:60]}: ")
        cameras.append(camera)
        sizes.append(size)
        poses.append(rigid(main.get(f"body_T_cam{index}"), f"body_T_cam{index}"))
    return Described("VINS-Fusion", [pair_from_poses(cameras, poses, sizes)])


def _vins_camera(tree: Tree, prefix: str) -> tuple[Camera, tuple[int, int]]:
    model = str(tree.get("model_type")).upper()
    lens = tree.get("distortion_parameters") or {}
    values = part(tree, "projection_parameters")
    size = size_of([tree.get("image_width"), tree.get("image_height")], f"{prefix}image_width x image_height")
    if model == "PINHOLE" and isinstance(lens, Mapping):
        return named_camera({**lens, **values}, "", RADTAN), size
    if model == "KANNALA_BRANDT":
        renamed = {**values, **{f"k{i}": values.get(f"k{i + 1}", 0) for i in range(1, 5)}}
        return named_camera(renamed, "", KB4, True, "mu mv u0 v0"), size
    raise InputError(
        f"{prefix}model_type {model[:30]!r} is not a lens model of OpenCV",
        "calibrate with PINHOLE or KANNALA_BRANDT",
    )


def has_basalt(source: Source) -> bool:
    return "value0.T_imu_cam" in source.flat


def read_basalt(source: Source) -> Described:
    """Read value0.T_imu_cam, poses of the cameras, with value0.intrinsics and value0.resolution."""
    tree = part(source.tree, "value0")
    lists: list[Any] = [tree.get(key) for key in ("T_imu_cam", "intrinsics")]
    if not all(isinstance(each, list) and all(isinstance(one, Mapping) for one in each) for each in lists):
        raise InputError("value0 has no list of T_imu_cam and of intrinsics")
    poses, lenses = lists
    (_, _), pair = two(poses if len(poses) < len(lenses) else lenses, source.pair, "cameras")
    sizes = tree.get("resolution")
    sizes = sizes if isinstance(sizes, list) else []
    cameras, placed = [], []
    for index in pair:
        key, lens, pose = f"intrinsics[{index}]", lenses[index], poses[index]
        model = str(lens.get("camera_type"))
        coefficients = {
            "pinhole": "",
            "kb4": KB4,
            "pinhole-radtan8": RATIONAL,
            "pinhole-radtan4": RADTAN,
            "pinhole-radtan5": f"{RADTAN} k3",
        }
        if model not in coefficients:
            raise InputError(
                f"{key}: camera_type {model[:30]!r} is not a lens model of OpenCV",
                "calibrate with --cam-types kb4 or pinhole-radtan8",
            )
        cameras.append(named_camera(part(lens, "intrinsics"), "", coefficients[model], model == "kb4"))
        quaternion, place = (
            [pose.get(name) for name in names.split()] for names in ("qw qx qy qz", "px py pz")
        )
        placed.append(turned(quaternion, place, f"T_imu_cam[{index}]"))
    found = [size_of(sizes[index], "resolution") if index < len(sizes) else None for index in pair]
    return Described("Basalt", [pair_from_poses(cameras, placed, found)])


_MRCAL = {"PINHOLE": 0, "OPENCV4": 4, "OPENCV5": 5, "OPENCV8": 8, "OPENCV12": 12}


def has_mrcal(source: Source) -> bool:
    return bool(source.trees) and all("lensmodel" in tree for tree in source.trees)


def read_mrcal(source: Source) -> Described:
    """Read .cameramodel files; their extrinsics lead from reference coordinates to the camera's."""
    models, _ = two(source.trees, source.pair, "cameras (.cameramodel)")
    cameras, poses, sizes = [], [], []
    for tree in models:
        model = str(tree["lensmodel"]).removeprefix("LENSMODEL_")
        if model not in _MRCAL:
            raise InputError(
                f"lensmodel {model[:40]!r} is not a lens model of OpenCV",
                "mrcal-convert-lensmodel LENSMODEL_OPENCV8 converts it",
            )
        values = numbers(tree.get("intrinsics"), "intrinsics", 4 + _MRCAL[model])
        cameras.append(camera_of(pinhole_matrix(*values[:4]), "intrinsics", values[4:], "intrinsics"))
        key = next((name for name in ("extrinsics", "rt_cam_ref") if name in tree), "extrinsics")
        pose = numbers(tree.get(key), key, 6)
        poses.append(inverse(transform_of(rotation_of(pose[:3]), pose[3:])))
        sizes.append(size_of(tree.get("imagersize"), "imagersize"))
    return Described("mrcal", [pair_from_poses(cameras, poses, sizes)])
