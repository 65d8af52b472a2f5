"""Readers for SLAM: Kalibr, EuRoC, ORB-SLAM, stella_vslam, VINS-Fusion, Basalt, mrcal and COLMAP."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from pamcli.calibration.camera import (
    Camera,
    Projections,
    invert_transform,
    make_rotation,
    make_transform,
    pinhole_matrix,
)
from pamcli.calibration.description import CameraDescription, pair_cameras
from pamcli.calibration.generic_files import read_named
from pamcli.calibration.geometry import Floats, Size
from pamcli.calibration.named_values import NAMES
from pamcli.calibration.opencv_files import TOPIC, describe_ros
from pamcli.calibration.parsing import (
    KB4,
    PINHOLE,
    RADTAN,
    RATIONAL,
    Section,
    Source,
    is_fisheye,
    parse,
    prefix_names,
    read_integer,
    read_numbers,
    read_quaternion_pose,
    read_size,
    unsupported_lens,
)
from pamcli.errors import InputError
from pamcli.files.safe_reading import read_bytes


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
    first = "Camera1." if "Camera1.fx" in tree else "Camera."
    left = tree.camera(prefix_names(first, PINHOLE), prefix_names(first, coefficients), fisheye)
    if key := next((key for key in ("Stereo.T_c1_c2", "Tlr") if key in tree), ""):
        lens = prefix_names("Camera2.", PINHOLE), prefix_names("Camera2.", coefficients)
        placed = (left, np.eye(4), size), (tree.camera(*lens, fisheye), tree.pose(key), size)
        return CameraDescription(kind, [pair_cameras(placed)])
    if "Stereo.b" in tree:
        baseline = tree.number("Stereo.b")
    elif key := next((key for key in ("Camera.bf", "Camera.focal_x_baseline") if key in tree), ""):
        baseline = tree.number(key) / float(left.matrix[0, 0])
    else:
        raise InputError("holds one camera, a pair needs 2", "use the settings for a stereo camera")
    rectified = Projections.from_left(left.matrix, baseline, size=size)
    if "StereoRectifier.K_left" in tree:
        cameras = []
        for side, projection in (("left", rectified.p1), ("right", rectified.p2)):
            each = {name: tree.get(f"StereoRectifier.{key}_{side}") for key, name in TOPIC.items()}
            each |= {"projection_matrix": projection, "image_width": width, "image_height": height}
            cameras.append({**each, "distortion_model": tree.get("StereoRectifier.model") or "perspective"})
        return describe_ros(cameras, kind)
    if left.distortion.any():
        message = "holds distortion coefficients and a baseline, but no pose of the right camera"
        raise InputError(message, "it needs LEFT.K ... RIGHT.P, StereoRectifier, or Stereo.T_c1_c2")
    return CameraDescription(kind, projections=[rectified])


_VINS = {"PINHOLE": (PINHOLE, RADTAN), "KANNALA_BRANDT": ("mu mv u0 v0", "k2 k3 k4 k5")}


def read_vins(source: Source) -> CameraDescription:
    """Read VINS-Fusion's settings, body_T_cam0 and body_T_cam1, with the camera files that they name."""
    main = next((tree for tree in source.trees if "body_T_cam0" in tree), None)
    if main is None:
        raise InputError("holds one camera of VINS-Fusion", "give the file with body_T_cam0, too")
    files = zip(source.contents, source.parsed, strict=True)
    given = {PurePosixPath(name).name: trees[0] for (name, _), (_, trees, _) in files if trees}
    others = [tree for tree in given.values() if tree is not main]
    placed = []
    pair = source.pair or (0, 1)
    for place, index in enumerate(pair):
        name = PurePosixPath(str(main.get(f"cam{index}_calib"))).name
        found = given.get(name) or (others[min(place, len(others) - 1)] if others else None)
        beside = Path(source.contents[0][0]).parent / name
        if found is None and os.path.isfile(beside):  # False also for impossible names
            found = next(iter(parse(read_bytes(beside))[1]), None)
        if found is None:
            raise InputError(f"cam{index}_calib is {name[:60]}, which does not exist", "give that file, too")
        tree = Section(found, f"{name[:60]}: ")
        model = str(tree.get("model_type")).upper()
        lens, values = tree.get("distortion_parameters") or {}, tree.section("projection_parameters")
        size = tree.size("image_width image_height")
        if model not in _VINS or not isinstance(lens, Mapping):
            hint = "calibrate with PINHOLE or KANNALA_BRANDT"
            raise unsupported_lens(f"{tree.prefix}model_type", model, hint)
        both = Section({**lens, **values}, values.prefix)
        camera = both.camera(*_VINS[model], model == "KANNALA_BRANDT")
        placed.append((camera, main.pose(f"body_T_cam{index}"), size))
    return CameraDescription("VINS-Fusion", [pair_cameras(placed)], numbers=pair)


def read_basalt(source: Source) -> CameraDescription | None:
    """Read value0, whose lists T_imu_cam, intrinsics and resolution have an entry for each camera."""
    tree = source.tree.section("value0")
    lists: list[Any] = [tree.get(key) for key in ("T_imu_cam", "intrinsics")]
    if not all(isinstance(each, list) and all(isinstance(one, Mapping) for one in each) for each in lists):
        raise InputError("value0 must hold lists T_imu_cam and intrinsics")
    sizes = tree.get("resolution")
    cameras = [
        {"T_imu_cam": pose, **lens, "resolution": size}
        for pose, lens, size in zip(*lists, sizes if isinstance(sizes, list) else [None] * 99, strict=False)
    ]
    return read_named(source, [Section({"cameras": cameras})])


_MRCAL = {"PINHOLE": 0, "OPENCV4": 4, "OPENCV5": 5, "OPENCV8": 8, "OPENCV12": 12}


def read_mrcal(source: Source) -> CameraDescription:
    """Read .cameramodel files, whose extrinsics lead from reference to camera coordinates."""
    placed = []
    pair = source.select_pair(len(source.trees))
    for tree in (source.trees[index] for index in pair):
        model = str(tree.get("lensmodel")).removeprefix("LENSMODEL_")
        if model not in _MRCAL:
            hint = "mrcal-convert-lensmodel LENSMODEL_OPENCV8 converts it"
            raise unsupported_lens("lensmodel", model, hint)
        values = tree.numbers("intrinsics", 4 + _MRCAL[model])
        camera = tree.make_camera(pinhole_matrix(*values[:4]), "intrinsics", values[4:], "intrinsics")
        pose = tree.numbers("extrinsics" if "extrinsics" in tree else "rt_cam_ref", 6)
        from_reference = make_transform(make_rotation(pose[:3]), pose[3:])
        placed.append((camera, invert_transform(from_reference), tree.size("imagersize")))
    return CameraDescription("mrcal", [pair_cameras(placed)], numbers=pair)


_MODELS: dict[str, str] = NAMES["colmap"]
_CAMERA = re.compile(r"(\d+)[ \t]+([A-Z_]+)[ \t]+(\d+)[ \t]+(\d+)[ \t]+([-+.\deE \t]+)")
_IMAGE = re.compile(r"\d+((?:[ \t]+[-+.\deE]+){7})[ \t]+(\d+)[ \t]+(\S*[A-Za-z_./]\S*)")
_RIG = re.compile(r"\d+[ \t]+(\d+)[ \t]+(?:0|CAMERA)[ \t]+(\d+)\b(.*)")

# A camera of a rig: its number in cameras.txt or the camera itself, and the transform from the rig.
_Sensor = tuple[int | None, Floats, Camera | None]


def read_colmap(source: Source) -> CameraDescription | None:
    """Read cameras.txt with rigs.txt, rig_config.json or images.txt, in the unit of the reconstruction."""
    known: dict[int, tuple[Camera, Size]] = {}
    rigs, images, has_cameras = None, list[re.Match[str]](), False
    for text in source.texts:
        rows = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
        if "REF_SENSOR_ID" in text:
            rigs = rigs or rows
        if "CAMERA_ID, NAME" in text:  # the second line of each image lists its points
            images += filter(None, map(_IMAGE.fullmatch, rows))
        first = _CAMERA.fullmatch(rows[0]) if rows else None
        if first and ("MODEL, WIDTH, HEIGHT" in text or first[2] in _MODELS):
            has_cameras = True
            for found in filter(None, map(_CAMERA.fullmatch, rows)):
                number, model, width, height, values = found.groups()
                key = f"camera {number[:9]}"
                camera = _read_camera(model, values.split(), key)
                known[read_integer(number, "CAMERA_ID")] = camera, read_size([width, height], key)
    listed = source.tree.get("list")
    is_config = isinstance(listed, Sequence) and isinstance(listed[0], Mapping) and "cameras" in listed[0]
    if rigs is not None:
        sensors = _read_rigs(rigs)
    elif is_config:
        sensors = _read_config(listed or (), known)
    elif not has_cameras:
        return None
    elif not images:
        hint = "give rigs.txt, rig_config.json, or images.txt, too"
        raise InputError("holds intrinsics, but no camera poses", hint)
    else:
        sensors = []
        for pose, number, name in map(re.Match.groups, images):
            place = read_quaternion_pose(pose.split()[:4], pose.split()[4:], name[:40])
            sensors.append((read_integer(number, "CAMERA_ID"), place, None))
    pair = source.select_pair(len(sensors))
    placed = []
    for number, from_rig, lens in (sensors[index] for index in pair):
        if lens is None and number not in known:
            message = f"holds the pose of camera {number}, but not its intrinsics"
            raise InputError(message, "give cameras.txt, too")
        camera, size = (lens, None) if lens is not None else known[number or 0]
        placed.append((camera, invert_transform(from_rig), size))
    notes = [f"cameras {pair[0]} and {pair[1]} of {len(sensors)} are used"] if len(sensors) > 2 else []
    return CameraDescription("COLMAP", [pair_cameras(placed)], metres=None, notes=notes, numbers=pair)


def _read_camera(model: str, values: Any, key: str) -> Camera:
    if model not in _MODELS:
        hint = "`colmap image_undistorter` makes images of pinhole cameras"
        raise unsupported_lens(f"{key}: model", model, hint)
    names, fisheye = _MODELS[model].split(), "FISHEYE" in model
    given = dict(zip(names, read_numbers(values, f"{key}: its parameters", len(names)), strict=True))
    fx, fy = (given.get(name, given.get("f", 0.0)) for name in ("fx", "fy"))
    # COLMAP's pixel centres are at halves, OpenCV's at whole numbers.
    matrix = pinhole_matrix(fx, fy, given["cx"] - 0.5, given["cy"] - 0.5)
    order = KB4 if fisheye else RATIONAL if "k3" in given else RADTAN if "k1" in given else ""
    distortion = np.array([given.get(name, 0.0) for name in order.split()])
    return Section().make_camera(matrix, key, distortion, key, fisheye)


def _read_rigs(rows: Sequence[str]) -> list[_Sensor]:
    rigs = [(index, found) for index, row in enumerate(rows) if (found := _RIG.fullmatch(row))]
    if not rigs:
        raise InputError("must contain a rig line with its cameras")
    counts = [read_integer(found[1], "NUM_SENSORS, the number of sensors,") for _, found in rigs]
    chosen = next((at for at, count in enumerate(counts) if count > 1), 0)
    (index, first), count = rigs[chosen], counts[chosen]
    rest = " ".join([first[3], *rows[index + 1 :]]).split()
    sensors: list[_Sensor] = [(read_integer(first[2], "REF_SENSOR_ID"), np.eye(4), None)]
    while len(sensors) < count and len(rest) >= 3:
        kind, number, has_pose = rest[:3]
        values, rest = (rest[3:10], rest[10:]) if has_pose == "1" else ([], rest[3:])
        if kind not in ("0", "CAMERA"):
            count -= 1
            continue
        if not values:
            raise InputError(f"sensor {number[:9]} has no pose", "use the rig of a reconstruction")
        pose = read_quaternion_pose(values[:4], values[4:], f"sensor {number[:9]}")
        sensors.append((read_integer(number, "SENSOR_ID"), pose, None))
    return sensors


def _read_config(rigs: Sequence[Any], known: Mapping[int, Any]) -> list[_Sensor]:
    entries = rigs[0]["cameras"]
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InputError("cameras must be a list of cameras")
    reference = str(rigs[0].get("ref_camera_id"))
    ids = dict(enumerate(sorted(known)))
    sensors: list[_Sensor] = []
    for place, entry in enumerate(entries):
        key = f"cameras[{place}]"
        turn = entry.get("cam_from_rig_rotation", entry.get("rel_qvec"))
        there = entry.get("cam_from_rig_translation", entry.get("rel_tvec"))
        pose: Floats = np.eye(4)
        if turn is not None or there is not None:
            pose = read_quaternion_pose(turn, there, key)
        elif not (entry.get("ref_sensor") or str(entry.get("camera_id", place)) == reference):
            raise InputError(f"{key}.cam_from_rig_rotation is missing")
        model = entry.get("camera_model_name")
        camera = _read_camera(str(model), entry.get("camera_params"), key) if model else None
        has_id = "camera_id" in entry
        number = read_integer(entry["camera_id"], f"{key}.camera_id") if has_id else ids.get(place)
        sensors.append((number, pose, camera))
    return sensors
