"""Readers for OpenCV, ROS and MATLAB (stereoParameters as a struct, and the older Calibration Toolbox)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera, Projections, invert_transform, make_transform, pinhole_matrix
from pamcli.calibration.description import CameraDescription, CameraPair, pair_cameras
from pamcli.calibration.mat_files import Unread
from pamcli.calibration.named_values import canonical_names
from pamcli.calibration.parsing import Section, Source, is_fisheye, read_numbers, read_size, walk
from pamcli.errors import InputError
from pamcli.files.paths import pluralize
from pamcli.files.units import parse_length

_KEYS = ("M1", "M2", "D1", "D2", "R", "T", "P1", "P2", "Q")
_SIZES = (
    *("size", "Size", "imageSize", "image_size", "img_size", "img_shape", "image-resolution"),
    *("image_width image_height", "image_Width image_Height", "imagewidth imageheight"),
    *("imageWidth imageHeight", "width height", "Width Height"),
)


def read_opencv(source: Source) -> CameraDescription | None:
    found = canonical_names(source.tree).keys()
    is_zip = source.contents[0][1].startswith(b"PK")
    is_known = {"M1", "M2", "P1", "P2", "Q"} & found or {"R", "T"} <= found or is_zip
    return describe_opencv(source.tree) if is_known else None


def describe_opencv(tree: Section, kind: str = "OpenCV") -> CameraDescription:
    """Describe the cameras of a tree with K1 D1 K2 D2 R T, P1 P2, or Q."""
    names = canonical_names(tree)
    key = {each: names.get(each, each) for each in ("M1", "M2", "D1", "D2", "R", "T", "P1", "P2", "Q")}
    size = tree.find_size(*_SIZES)
    model = tree.get("distortion_model") or tree.get("fisheye") or ""
    fisheye = is_fisheye(model, "distortion_model") or key["D1"].lower().endswith("_fe")
    unit = next((key for key in ("length_unit", "unit", "units") if tree.get(key) is not None), None)
    scale = parse_length(tree[unit], unit) if unit else 1.0 if "baseline" in tree else None
    pairs, projections = list[CameraPair](), list[Projections]()
    if {"P1", "P2"} & names.keys():
        turns = [tree.matrix(name, 3, 3) for name in ("R1", "R2") if name in tree]
        p1, p2 = (tree.matrix(key[name], 3, 4) for name in ("P1", "P2"))
        projections = [Projections(p1, p2, size, rotations=turns if len(turns) == 2 else ())]
    elif "Q" in names:
        q = tree.matrix(key["Q"], 4, 4)
        if q[3, 2] == 0 or q[2, 3] <= 0:
            raise InputError("Q must hold a focal length in row 3 and 1 / baseline in row 4")
        left = pinhole_matrix(q[2, 3], q[2, 3], -q[0, 3], -q[1, 3])
        offset = float(q[3, 3] / q[3, 2])
        projections = [Projections.from_left(left, 1 / float(q[3, 2]), offset, size)]
    has_pose = {"R", "T", "RT"} & names.keys()
    if {"M1", "M2"} & names.keys() and (has_pose or not projections):
        cameras = [tree.camera(key[f"M{side}"], key[f"D{side}"], fisheye) for side in "12"]
        if not has_pose:
            raise InputError("R and T are missing", "if the extrinsics are in another file, give both files")
        both = names.get("RT", key["T"])
        transform = tree.transform(key["R"], key["T"]) if "R" in names else tree.pose(both)
        pairs = [CameraPair(cameras, transform, (size, size))]
    if not (pairs or projections):
        raise InputError("must hold K1 D1 K2 D2 R T, or P1 P2, or Q")
    return CameraDescription(kind, pairs, projections, metres=scale)


def read_dat(source: Source) -> CameraDescription | None:
    """Read intrinsics and rot_trans files; poses lead from world (by default the first camera) to camera."""
    parts = []
    for text in source.texts:
        parts.append(found := Section())  # numbers by the heading above them, such as "intrinsic:"
        for line in map(str.strip, text.splitlines()):
            if re.fullmatch(r"[A-Za-z]\w*:", line):
                found[line[:-1]] = last = []
            elif line and found:
                last.append(line)
    if not all(each.get("intrinsic") or each.get("R") for each in parts):
        return None
    cameras = [each.camera("intrinsic", "distortion") for each in parts if each.get("intrinsic")]
    poses = [each.transform("R", "T") for each in parts if each.get("R")]
    if not (cameras and poses) or max(len(cameras), len(poses)) > 2:
        hint = "give intrinsics and rot_trans of both cameras, the left one first"
        raise InputError(f"the .dat set holds {len(cameras)} intrinsics and {len(poses)} poses", hint)
    notes = ["both cameras have the same intrinsics"] if len(cameras) == 1 else []
    first, second = [np.eye(4), *poses][-2:]
    placed = ((cameras[0], invert_transform(first), None), (cameras[-1], invert_transform(second), None))
    return CameraDescription(".dat set", [pair_cameras(placed)], metres=None, notes=notes)


def read_plain_numbers(source: Source) -> CameraDescription | None:
    """Read K row by row followed by the baseline, or rows of projections (3, 4) as KITTI has them."""
    text = re.sub(r"#.*", "", source.texts[0])
    if len(source.texts) != 1 or len(text) > 20_000 or not re.fullmatch(r"[-+\d.eE\s,;\[\]]+", text):
        return None
    words = text.translate(dict.fromkeys(map(ord, ",;[]"), " ")).split()
    found = read_numbers(words, "the file") if words else np.zeros(0)
    if len(found) in (9, 10):
        camera = Section({"K": found[:9]}).camera("K").matrix
        baseline = float(found[9]) if len(found) > 9 else 0.0
        return CameraDescription("K.txt", projections=[Projections.from_left(camera, baseline)])
    if len(found) < 24 or len(found) % 12:
        return None
    rows = found.reshape(-1, 3, 4)
    one, other = pair = source.pair or ((2, 3) if len(rows) == 4 else (0, 1))
    if max(one, other) >= len(rows):
        raise InputError(f"holds {len(rows)} projections", "`cameras` counts them from 0")
    keys = (f"line {one + 1}", f"line {other + 1}")
    projections = [Projections(rows[one], rows[other], None, keys)]
    return CameraDescription("KITTI", projections=projections, numbers=pair)


TOPIC = {"K": "camera_matrix", "D": "distortion_coefficients", "R": "rectification_matrix"}
TOPIC |= {"P": "projection_matrix", "width": "image_width", "height": "image_height"}
_OST_SECTIONS = {
    **{"width": "image_width", "height": "image_height", "camera matrix": TOPIC["K"]},
    **{"distortion": TOPIC["D"], "rectification": TOPIC["R"], "projection": TOPIC["P"]},
}


def read_ros(source: Source) -> CameraDescription | None:
    """Read camera_info files, and CameraInfo as `rostopic echo` (K D R P) and `ros2 topic echo` print it."""
    found: list[dict[str, Any]] = []
    for tree in source.trees:
        for names in (TOPIC, {key.lower(): name for key, name in TOPIC.items()}):
            if {"distortion_model", *names} <= tree.keys():
                message = {name: tree[key] for key, name in names.items()}
                message["distortion_model"] = tree["distortion_model"]
                if message not in found:  # a recorded topic repeats its message
                    found.append(message)
    if found:
        return describe_ros(found)
    keys = {"camera_matrix", "projection_matrix"}
    is_known = source.trees and all(keys <= each.keys() for each in source.trees)
    return describe_ros(source.trees) if is_known else None


def describe_ros(trees: Sequence[Mapping[str, Any]], kind: str = "ROS camera_info") -> CameraDescription:
    """Describe two cameras, and their rectification, from the keys of camera_info files."""
    if len(trees) != 2:
        hint = "give two files: of the left camera and of the right camera"
        raise InputError(f"holds {pluralize(len(trees), 'camera')}, a pair needs 2", hint)
    cameras, rotations, projections, sizes = [], [], [], []
    for tree in map(Section, trees):
        sizes.append(tree.size("image_width image_height"))
        fisheye = is_fisheye(tree.get("distortion_model") or "", "distortion_model")
        cameras.append(tree.camera("camera_matrix", "distortion_coefficients", fisheye))
        rotations.append(tree.matrix("rectification_matrix", 3, 3))
        projections.append(tree.matrix("projection_matrix", 3, 4))
    p1, p2 = projections
    keys = "the left projection_matrix", "the right projection_matrix"
    across = (p1[0, 3] - p2[0, 3]) / p1[0, 0] if p1[0, 0] > 0 else 0.0
    if across == 0:  # no baseline: only the geometry of the rectified images is known
        return CameraDescription(kind, projections=[Projections(p1, p2, sizes[0], keys)])
    back = rotations[1].T
    transform = make_transform(back @ rotations[0], back @ np.array([-across, 0, 0]))
    rectified = Projections(p1, p2, sizes[0], keys, rotations=rotations)
    return CameraDescription(kind, [CameraPair(cameras, transform, sizes)], [rectified])


def read_ost(source: Source) -> CameraDescription | None:
    marks = (r"^\[image\]", "^camera matrix")
    if not all(re.search(mark, text, re.MULTILINE) for text in source.texts for mark in marks):
        return None
    found: list[dict[str, Any]] = []
    key = None
    for line in (line.strip() for text in source.texts for line in text.splitlines()):
        if line == "[image]":
            found.append({})
        elif line in _OST_SECTIONS:
            key = _OST_SECTIONS[line]
        elif found and key is not None and line and line[0] not in "#[":
            found[-1].setdefault(key, []).extend(line.split())
    return describe_ros(found, "ROS ost")


EXPORT = "in MATLAB: rig = toStruct(stereoParams); save('rig.mat', 'rig', '-v7')"


def read_matlab(source: Source) -> CameraDescription | None:
    """Read the variables of a .mat file, or the text that jsonencode makes of such a struct."""
    tree = source.tree
    cameras = [each for each in source.trees if {"FocalLength", "PrincipalPoint"} <= each.keys()]
    if len(cameras) == 2 and tree.keys() & {
        "RotationOfCamera2",
        "PoseCamera2",
    }:  # a file for each, and the pose
        both = {"CameraParameters1": cameras[0], "CameraParameters2": cameras[1]}
        return _read_parameters(Section({**tree, **both}))
    for each in (tree, *(each for _, each in walk(tree) if isinstance(each, Mapping))):
        if "CameraParameters1" in each:
            return _read_parameters(Section(each))
    if not source.contents[0][1].startswith((b"MATLAB", b"\x89HDF")):
        return None
    if {"fc_left", "cc_left", "fc_right", "cc_right"} <= tree.keys():
        return _read_toolbox(tree)
    if {"M1", "M2", "P1", "P2", "Q"} & canonical_names(tree).keys():
        return describe_opencv(tree, "OpenCV (.mat)")
    objects = [each.kind for each in tree.values() if isinstance(each, Unread)]
    if objects:
        raise InputError(f"holds an object ({objects[0][:40]}) that only MATLAB can read", EXPORT)
    raise InputError("does not hold stereoParameters", EXPORT)


def _read_parameters(tree: Section) -> CameraDescription:
    cameras, sizes = [], []
    for name in ("CameraParameters1", "CameraParameters2"):
        if isinstance(tree.get(name), Unread):
            raise InputError(f"{name} is an object that only MATLAB can read", EXPORT)
        each = tree.section(name)
        cameras.append(_read_matlab_camera(each))
        sides = each.numbers("ImageSize")
        sizes.append(read_size(sides[::-1], f"{name}: ImageSize") if sides.size else None)
    if "PoseCamera2" in tree:
        transform = tree.section("PoseCamera2").transform("R", "Translation")
    else:  # for row vectors
        rotation = tree.matrix("RotationOfCamera2", 3, 3).T
        transform = make_transform(rotation, tree.numbers("TranslationOfCamera2", 3))
    unit = tree.section("CameraParameters1").get("WorldUnits")
    scale = parse_length(unit if isinstance(unit, str) and unit else "millimeters", "WorldUnits")
    return CameraDescription("MATLAB", [CameraPair(cameras, transform, sizes)], metres=scale)


def _read_matlab_camera(tree: Section) -> Camera:
    key = "K" if tree.get("K") is not None else "IntrinsicMatrix"
    if tree.get(key) is None and tree.get("FocalLength") is not None:
        key = "FocalLength"
        found = pinhole_matrix(*tree.numbers(key, 2), *tree.numbers("PrincipalPoint", 2))
        found[0, 1] = tree.number("Skew", 0)
    else:
        found = tree.matrix(key, 3, 3)
    if found[2, 0] > 0:  # for row vectors
        found = found.T
    found = found - [[0, 0, 1], [0, 0, 1], [0, 0, 0]]  # MATLAB counts pixels from 1
    if abs(found[0, 1]) > 1e-9 * found[0, 0]:
        message = f"{tree.prefix}{key} has skew, which OpenCV does not support"
        raise InputError(message, "calibrate without EstimateSkew")
    found[0, 1] = 0
    radial = tree.numbers("RadialDistortion", 2, 3, default=[0, 0])
    tangential = tree.numbers("TangentialDistortion", 2, default=[0, 0])
    distortion = np.concatenate([radial[:2], tangential, radial[2:]])
    return tree.make_camera(found, key, distortion, "RadialDistortion")


def _read_toolbox(tree: Section) -> CameraDescription:
    """Read Calib_Results_stereo.mat, where pixels count from 0 and boards are measured in millimetres."""
    cameras = []
    for side in ("left", "right"):
        tree[f"fc_{side}"] = [*tree.numbers(f"fc_{side}", 2), *tree.numbers(f"cc_{side}", 2)]
        cameras.append(tree.camera(f"fc_{side}", f"kc_{side}"))
    size = tree.find_size("nx ny")
    notes = ["lengths are assumed to be in millimetres, because the Calibration Toolbox states no unit"]
    pair = CameraPair(cameras, tree.transform("R", "T"), (size, size))
    return CameraDescription("MATLAB Calibration Toolbox", [pair], metres=1e-3, notes=notes)
