"""Calibrations of MATLAB: stereoParameters as a struct (.mat or JSON), and the older Calibration Toolbox."""

from collections.abc import Mapping

import numpy as np

from pamcli.calibration.camera import Camera
from pamcli.calibration.described import (
    CameraPair,
    Described,
    both_sizes,
    camera_of,
    part,
    pinhole_matrix,
)
from pamcli.calibration.mat_files import Unread
from pamcli.calibration.opencv_files import canonical, opencv
from pamcli.calibration.parsing import Source, Tree, matrix, numbers, size_of, walk
from pamcli.errors import InputError
from pamcli.files.units import parse_length

EXPORT = "in MATLAB: rig = toStruct(stereoParams); save('rig.mat', 'rig', '-v7')"


def has_matlab(source: Source) -> bool:
    """Return whether a file is MATLAB's, or JSON of a struct of stereoParameters."""
    return source.contents[0][1].startswith((b"MATLAB", b"\x89HDF")) or _parameters(source.tree) is not None


def read_matlab(source: Source) -> Described:
    """Read the variables of a .mat file, or jsonencode's text of such a struct."""
    tree = source.tree
    found = _parameters(tree)
    if found is not None:
        return _stereo_parameters(found)
    if {"fc_left", "cc_left", "fc_right", "cc_right"} <= tree.keys():
        return _toolbox(tree)
    if {"M1", "M2", "P1", "P2", "Q"} & canonical(tree).keys():
        return opencv(tree, "OpenCV's names in a .mat file")
    objects = [each.kind for each in tree.values() if isinstance(each, Unread)]
    if objects:
        raise InputError(
            f"holds an object of MATLAB's ({objects[0][:40]}), which MATLAB alone can read", EXPORT
        )
    raise InputError("holds no calibration: no stereoParameters", EXPORT)


def _parameters(tree: Tree) -> Tree | None:
    """Return the struct of stereoParameters, wherever it is."""
    below = (each for _, each in walk(tree) if isinstance(each, Mapping))
    return next((each for each in (tree, *below) if "CameraParameters1" in each), None)


def _stereo_parameters(tree: Tree) -> Described:
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
    scale = parse_length(unit if isinstance(unit, str) and unit else "millimeters", "WorldUnits")
    pair = CameraPair(cameras, rotation, translation, *(both_sizes(sizes) if len(sizes) == 2 else ()))
    return Described("MATLAB", [pair], metres=scale)


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


def _toolbox(tree: Tree) -> Described:
    """Read Calib_Results_stereo.mat; pixels count from 0 there, and the board was measured in millimetres."""
    cameras = []
    for side in ("left", "right"):
        fx, fy = numbers(tree[f"fc_{side}"], f"fc_{side}", 2)
        x, y = numbers(tree[f"cc_{side}"], f"cc_{side}", 2)
        distortion = numbers(tree.get(f"kc_{side}", []), f"kc_{side}")
        cameras.append(camera_of(pinhole_matrix(fx, fy, x, y), f"fc_{side}", distortion, f"kc_{side}"))
    size = size_of([tree["nx"], tree["ny"]], "nx x ny") if {"nx", "ny"} <= tree.keys() else None
    pair = CameraPair(cameras, matrix(tree.get("R"), "R", 3, 3), numbers(tree.get("T"), "T", 3), size)
    notes = ["lengths are taken for millimetres, which the Calibration Toolbox does not state"]
    return Described("MATLAB Calibration Toolbox", [pair], metres=1e-3, notes=notes)
