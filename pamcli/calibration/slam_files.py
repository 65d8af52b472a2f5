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
    part,
    pinhole_matrix,
    placed_pair,
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
        step: Floats = np.eye(4)
        for index in steps:
            step = rigid(tree[f"cam{index}"]["T_cn_cnm1"], f"cam{index}: T_cn_cnm1") @ step
        step = inverse(step) if pair[0] > pair[1] else step
        return Described(
            "Kalibr camchain", [CameraPair(cameras, step[:3, :3], step[:3, 3], *both_sizes(sizes))]
        )
    for key, kind in (("T_imu_cam", "OpenVINS"), ("T_cam_imu", "Kalibr camchain")):
        if all(key in each for each in parts):
            poses = [rigid(each[key], f"cam{index}: {key}") for each, index in zip(parts, pair, strict=True)]
            poses = [*map(inverse, poses)] if key == "T_cam_imu" else poses
            return Described(kind, [placed_pair(zip(cameras, poses, sizes, strict=True))])
    raise InputError(
        f"cam{max(pair)}: T_cn_cnm1 is missing, and so are T_imu_cam and T_cam_imu of both cameras",
        "take the file of a calibration of both cameras together",
    )


def read_euroc(source: Source) -> Described:
    """Read sensor.yaml of both cameras: T_BS, from each one's coordinates to those of the body."""
    if len(source.trees) != 2:
        raise InputError(
            "describes one camera",
            "give two files: cam0/sensor.yaml and cam1/sensor.yaml, the left one first",
        )
    found = [
        (_camera(tree, "", "distortion_coefficients"), rigid(tree.get("T_BS"), "T_BS"))
        for tree in source.trees
    ]
    return Described("EuRoC", [placed_pair((camera, pose, size) for (camera, size), pose in found)])


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
        sides = ["LEFT", "RIGHT"]
        return ros([{name: tree.get(f"{side}.{key}") for key, name in names.items()} for side in sides], kind)
    if any(key in tree for key in ("RGBD.DepthMapFactor", "DepthMapFactor")):
        raise InputError("is for a depth camera (DepthMapFactor), and describes one view alone")
    sides = [
        tree.get("Camera.width", tree.get("Camera.cols")),
        tree.get("Camera.height", tree.get("Camera.rows")),
    ]
    size = None if None in sides else size_of(sides, "Camera.width x Camera.height")
    model = tree.get("Camera.type", tree.get("Camera.model", ""))
    fisheye = str(model).lower() != "rectified" and is_fisheye(model, "Camera.type")
    coefficients = KB4 if fisheye else f"{RADTAN} k3"
    left = named_camera(tree, "Camera1." if "Camera1.fx" in tree else "Camera.", coefficients, fisheye)
    for key in ("Stereo.T_c1_c2", "Tlr"):
        if key in tree:
            right = named_camera(tree, "Camera2.", coefficients, fisheye)
            placed = (left, np.eye(4), size), (right, rigid(tree[key], key), size)
            return Described(kind, [placed_pair(placed)])
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
        both = [
            {names[key]: tree.get(f"StereoRectifier.{key}_{side}") for key in "KDR"}
            for side in ("left", "right")
        ]
        common = {"distortion_model": tree.get("StereoRectifier.model") or "perspective"}
        common |= {"image_width": sides[0], "image_height": sides[1]}
        return ros(
            [{**common, **each, "projection_matrix": p} for each, p in zip(both, (p1, p2), strict=True)], kind
        )
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
    files = zip(source.contents, source.parsed, strict=True)
    given = {PurePosixPath(name).name: trees[0] for (name, _), (_, trees, _) in files if trees}
    others = [tree for tree in given.values() if tree is not main]
    placed = []
    for place, index in enumerate(source.pair or (0, 1)):
        name = PurePosixPath(str(main.get(f"cam{index}_calib"))).name
        found = given.get(name) or (others[min(place, len(others) - 1)] if others else None)
        if found is None and (beside := source.read_beside(name)):
            found = next(iter(parse(beside)[1]), None)
        if found is None:
            raise InputError(f"cam{index}_calib is {name[:60]}, which is not there", "give that file, too")
        camera, size = _vins_camera(found, f"{name[:60]}: ")
        placed.append((camera, rigid(main.get(f"body_T_cam{index}"), f"body_T_cam{index}"), size))
    return Described("VINS-Fusion", [placed_pair(placed)])


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


_BASALT = {
    **{"pinhole": "", "kb4": KB4},
    **{"pinhole-radtan4": RADTAN, "pinhole-radtan5": f"{RADTAN} k3", "pinhole-radtan8": RATIONAL},
}


def read_basalt(source: Source) -> Described:
    """Read value0.T_imu_cam, poses of the cameras, with value0.intrinsics and value0.resolution."""
    tree = part(source.tree, "value0")
    lists: list[Any] = [tree.get(key) for key in ("T_imu_cam", "intrinsics")]
    if not all(isinstance(each, list) and all(isinstance(one, Mapping) for one in each) for each in lists):
        raise InputError("value0 has no list of T_imu_cam and of intrinsics")
    poses, lenses = lists
    _, pair = two(poses if len(poses) < len(lenses) else lenses, source.pair, "cameras")
    sizes: Any = tree.get("resolution")
    sizes = sizes if isinstance(sizes, list) else []
    placed = []
    for index in pair:
        lens, pose, model = lenses[index], poses[index], str(lenses[index].get("camera_type"))
        if model not in _BASALT:
            raise InputError(
                f"intrinsics[{index}]: camera_type {model[:30]!r} is not a lens model of OpenCV",
                "calibrate with --cam-types kb4 or pinhole-radtan8",
            )
        camera = named_camera(part(lens, "intrinsics"), "", _BASALT[model], model == "kb4")
        turn, place = ([pose.get(name) for name in names.split()] for names in ("qw qx qy qz", "px py pz"))
        size = size_of(sizes[index], "resolution") if index < len(sizes) else None
        placed.append((camera, turned(turn, place, f"T_imu_cam[{index}]"), size))
    return Described("Basalt", [placed_pair(placed)])


_MRCAL = {"PINHOLE": 0, "OPENCV4": 4, "OPENCV5": 5, "OPENCV8": 8, "OPENCV12": 12}


def read_mrcal(source: Source) -> Described:
    """Read .cameramodel files; their extrinsics lead from reference coordinates to the camera's."""
    models, _ = two(source.trees, source.pair, "cameras (.cameramodel)")
    placed = []
    for tree in models:
        model = str(tree.get("lensmodel")).removeprefix("LENSMODEL_")
        if model not in _MRCAL:
            raise InputError(
                f"lensmodel {model[:40]!r} is not a lens model of OpenCV",
                "mrcal-convert-lensmodel LENSMODEL_OPENCV8 converts it",
            )
        values = numbers(tree.get("intrinsics"), "intrinsics", 4 + _MRCAL[model])
        camera = camera_of(pinhole_matrix(*values[:4]), "intrinsics", values[4:], "intrinsics")
        key = "extrinsics" if "extrinsics" in tree else "rt_cam_ref"
        pose = numbers(tree.get(key), key, 6)
        from_reference = transform_of(rotation_of(pose[:3]), pose[3:])
        placed.append((camera, inverse(from_reference), size_of(tree.get("imagersize"), "imagersize")))
    return Described("mrcal", [placed_pair(placed)])
