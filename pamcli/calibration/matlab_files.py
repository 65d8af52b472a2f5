"""Calibrations of MATLAB: stereoParameters as a struct (.mat or JSON), and the older Calibration Toolbox."""

from collections.abc import Iterator, Mapping

import numpy as np

from pamcli.calibration.mat_files import Unread
from pamcli.calibration.opencv_files import canonical, opencv
from pamcli.calibration.parsing import Tree, matrix, numbers, size_of
from pamcli.calibration.rig import Camera
from pamcli.calibration.stored import (
    StoredCalibration,
    camera_of,
    metres,
    one_size,
    part,
    pinhole_matrix,
    rig_of,
)
from pamcli.errors import InputError

EXPORT = "in MATLAB: rig = toStruct(stereoParams); save('rig.mat', 'rig', '-v7')"


def matlab(tree: Tree, exchanged: bool) -> StoredCalibration:
    """The variables of a .mat file, or jsonencode's text of such a struct."""
    found = next((each for each in _structs(tree) if "CameraParameters1" in each), None)
    if found is not None:
        return _stereo_parameters(found, exchanged)
    if {"fc_left", "cc_left", "fc_right", "cc_right"} <= tree.keys():
        return _toolbox(tree, exchanged)
    if {"M1", "M2", "P1", "P2", "Q"} & canonical(tree).keys():
        return opencv(tree, exchanged, "OpenCV's names in a .mat file")
    objects = [each.kind for each in tree.values() if isinstance(each, Unread)]
    if objects:
        raise InputError(
            f"holds an object of MATLAB's ({objects[0][:40]}), which MATLAB alone can read", EXPORT
        )
    raise InputError("holds no stereoParameters", EXPORT)


def is_matlab(tree: Tree) -> bool:
    """Whether a JSON file is a struct of stereoParameters."""
    return any("CameraParameters1" in each for each in _structs(tree))


def _structs(tree: Tree, depth: int = 3) -> Iterator[Tree]:
    yield tree
    for value in tree.values() if depth else ():
        if isinstance(value, Mapping):
            yield from _structs(value, depth - 1)


def _stereo_parameters(tree: Tree, exchanged: bool) -> StoredCalibration:
    cameras, sizes = [], []
    for name in ("CameraParameters1", "CameraParameters2"):
        if isinstance(tree.get(name), Unread):
            raise InputError(f"{name} is an object of MATLAB's, which MATLAB alone can read", EXPORT)
        each = part(tree, name)
        cameras.append(_camera(each, name))
        sides = numbers(each.get("ImageSize"), f"{name}.ImageSize")
        if sides.size:
            sizes.append(size_of(sides[::-1], f"{name}.ImageSize"))
    if "PoseCamera2" in tree:
        pose = part(tree, "PoseCamera2")
        rotation = matrix(pose.get("R"), "PoseCamera2.R", 3, 3)
        translation = numbers(pose.get("Translation"), "PoseCamera2.Translation", 3)
    else:  # of rows that are multiplied from the left
        rotation = matrix(tree.get("RotationOfCamera2"), "RotationOfCamera2", 3, 3).T
        translation = numbers(tree.get("TranslationOfCamera2"), "TranslationOfCamera2", 3)
    unit = part(tree, "CameraParameters1").get("WorldUnits", "millimeters")
    scale = metres(unit if isinstance(unit, str) and unit else "millimeters", "WorldUnits")
    size = one_size(sizes) if len(sizes) == 2 else None
    return StoredCalibration("MATLAB", rig_of(cameras, rotation, scale * translation, size, exchanged))


def _camera(tree: Tree, name: str) -> Camera:
    key = next((key for key in ("K", "IntrinsicMatrix") if tree.get(key) is not None), "IntrinsicMatrix")
    found = matrix(tree.get(key), f"{name}.{key}", 3, 3)
    if found[2, 0] > 0:  # of rows that are multiplied from the left
        found = found.T
    found = found - [[0, 0, 1], [0, 0, 1], [0, 0, 0]]  # MATLAB counts pixels from 1
    if abs(found[0, 1]) > 1e-9 * found[0, 0]:
        raise InputError(f"{name} has skew, which OpenCV's cameras do not", "estimate without EstimateSkew")
    found[0, 1] = 0
    radial = numbers(tree.get("RadialDistortion", [0, 0]), f"{name}.RadialDistortion", 2, 3)
    tangential = numbers(tree.get("TangentialDistortion", [0, 0]), f"{name}.TangentialDistortion", 2)
    distortion = np.concatenate([radial[:2], tangential, radial[2:]])
    return camera_of(found, f"{name}.{key}", distortion, f"{name}.RadialDistortion")


def _toolbox(tree: Tree, exchanged: bool) -> StoredCalibration:
    """Calib_Results_stereo.mat; pixels count from 0 there, and the board was measured in millimetres."""
    cameras = []
    for side in ("left", "right"):
        fx, fy = numbers(tree[f"fc_{side}"], f"fc_{side}", 2)
        x, y = numbers(tree[f"cc_{side}"], f"cc_{side}", 2)
        distortion = numbers(tree.get(f"kc_{side}", []), f"kc_{side}")
        cameras.append(camera_of(pinhole_matrix(fx, fy, x, y), f"fc_{side}", distortion, f"kc_{side}"))
    size = size_of([tree["nx"], tree["ny"]], "nx x ny") if {"nx", "ny"} <= tree.keys() else None
    rotation = matrix(tree.get("R"), "R", 3, 3)
    translation = numbers(tree.get("T"), "T", 3) / 1000
    notes = ["lengths are taken for millimetres, which the Calibration Toolbox does not state"]
    rig = rig_of(cameras, rotation, translation, size, exchanged)
    return StoredCalibration("MATLAB Calibration Toolbox", rig, None, notes)
