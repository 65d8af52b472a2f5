"""Readers for calibrations of MATLAB: stereoParameters as a struct, and the older Calibration Toolbox."""

from collections.abc import Mapping

import numpy as np

from pamcli.calibration.camera import Camera, make_transform
from pamcli.calibration.description import CameraDescription, CameraPair
from pamcli.calibration.mat_files import Unread
from pamcli.calibration.opencv_files import canonical_names, describe_opencv
from pamcli.calibration.parsing import (
    Source,
    Tree,
    make_camera,
    pinhole_matrix,
    read_matrix,
    read_numbers,
    read_section,
    read_sides,
    read_size,
    walk,
)
from pamcli.errors import InputError
from pamcli.files.units import parse_length

EXPORT = "in MATLAB: rig = toStruct(stereoParams); save('rig.mat', 'rig', '-v7')"


def has_matlab(source: Source) -> bool:
    """Return True for a .mat file, and for JSON of a struct of stereoParameters."""
    is_mat = source.contents[0][1].startswith((b"MATLAB", b"\x89HDF"))
    return is_mat or _find_parameters(source.tree) is not None


def read_matlab(source: Source) -> CameraDescription:
    """Read the variables of a .mat file, or the text that jsonencode makes of such a struct."""
    tree = source.tree
    found = _find_parameters(tree)
    if found is not None:
        return _read_parameters(found)
    if {"fc_left", "cc_left", "fc_right", "cc_right"} <= tree.keys():
        return _read_toolbox(tree)
    if {"M1", "M2", "P1", "P2", "Q"} & canonical_names(tree).keys():
        return describe_opencv(tree, "OpenCV (.mat)")
    objects = [each.kind for each in tree.values() if isinstance(each, Unread)]
    if objects:
        raise InputError(f"holds an object ({objects[0][:40]}) that only MATLAB can read", EXPORT)
    raise InputError("does not hold stereoParameters", EXPORT)


def _find_parameters(tree: Tree) -> Tree | None:
    """Return the struct of stereoParameters, wherever it is."""
    below = (each for _, each in walk(tree) if isinstance(each, Mapping))
    return next((each for each in (tree, *below) if "CameraParameters1" in each), None)


def _read_parameters(tree: Tree) -> CameraDescription:
    cameras, sizes = [], []
    for name in ("CameraParameters1", "CameraParameters2"):
        if isinstance(tree.get(name), Unread):
            raise InputError(f"{name} is an object that only MATLAB can read", EXPORT)
        each = read_section(tree, name)
        cameras.append(_read_camera(each, name))
        sides = read_numbers(each.get("ImageSize"), f"{name}.ImageSize")
        sizes.append(read_size(sides[::-1], f"{name}.ImageSize") if sides.size else None)
    if "PoseCamera2" in tree:
        pose = read_section(tree, "PoseCamera2")
        rotation = read_matrix(pose.get("R"), "PoseCamera2.R", 3, 3)
        translation = read_numbers(pose.get("Translation"), "PoseCamera2.Translation", 3)
    else:  # for row vectors
        rotation = read_matrix(tree.get("RotationOfCamera2"), "RotationOfCamera2", 3, 3).T
        translation = read_numbers(tree.get("TranslationOfCamera2"), "TranslationOfCamera2", 3)
    unit = read_section(tree, "CameraParameters1").get("WorldUnits", "millimeters")
    scale = parse_length(unit if isinstance(unit, str) and unit else "millimeters", "WorldUnits")
    pair = CameraPair(cameras, make_transform(rotation, translation), sizes)
    return CameraDescription("MATLAB", [pair], metres=scale)


def _read_camera(tree: Tree, name: str) -> Camera:
    key = next((key for key in ("K", "IntrinsicMatrix") if tree.get(key) is not None), "IntrinsicMatrix")
    found = read_matrix(tree.get(key), f"{name}.{key}", 3, 3)
    if found[2, 0] > 0:  # for row vectors
        found = found.T
    found = found - [[0, 0, 1], [0, 0, 1], [0, 0, 0]]  # MATLAB counts pixels from 1
    if abs(found[0, 1]) > 1e-9 * found[0, 0]:
        raise InputError(f"{name} has skew, which OpenCV does not support", "calibrate without EstimateSkew")
    found[0, 1] = 0
    radial = read_numbers(tree.get("RadialDistortion", [0, 0]), f"{name}.RadialDistortion", 2, 3)
    tangential = read_numbers(tree.get("TangentialDistortion", [0, 0]), f"{name}.TangentialDistortion", 2)
    distortion = np.concatenate([radial[:2], tangential, radial[2:]])
    return make_camera(found, f"{name}.{key}", distortion, f"{name}.RadialDistortion")


def _read_toolbox(tree: Tree) -> CameraDescription:
    """Read Calib_Results_stereo.mat, where pixels count from 0 and boards are measured in millimetres."""
    cameras = []
    for side in ("left", "right"):
        fx, fy = read_numbers(tree[f"fc_{side}"], f"fc_{side}", 2)
        x, y = read_numbers(tree[f"cc_{side}"], f"cc_{side}", 2)
        distortion = read_numbers(tree.get(f"kc_{side}", []), f"kc_{side}")
        cameras.append(make_camera(pinhole_matrix(fx, fy, x, y), f"fc_{side}", distortion, f"kc_{side}"))
    size = read_sides(tree, "nx", "ny") if {"nx", "ny"} <= tree.keys() else None
    transform = make_transform(read_matrix(tree.get("R"), "R", 3, 3), read_numbers(tree.get("T"), "T", 3))
    notes = ["lengths are assumed to be in millimetres, because the Calibration Toolbox states no unit"]
    pair = CameraPair(cameras, transform, (size, size))
    return CameraDescription("MATLAB Calibration Toolbox", [pair], metres=1e-3, notes=notes)
