"""Readers for calibrations of MATLAB: stereoParameters as a struct, and the older Calibration Toolbox."""

from collections.abc import Mapping

import numpy as np

from pamcli.calibration.camera import Camera, make_transform, pinhole_matrix
from pamcli.calibration.description import CameraDescription, CameraPair
from pamcli.calibration.mat_files import Unread
from pamcli.calibration.opencv_files import canonical_names, describe_opencv
from pamcli.calibration.parsing import Section, Source, read_size, walk
from pamcli.errors import InputError
from pamcli.files.units import parse_length

EXPORT = "in MATLAB: rig = toStruct(stereoParams); save('rig.mat', 'rig', '-v7')"


def has_matlab(source: Source) -> bool:
    is_mat = source.contents[0][1].startswith((b"MATLAB", b"\x89HDF"))
    return is_mat or _find_parameters(source) is not None


def read_matlab(source: Source) -> CameraDescription:
    """Read the variables of a .mat file, or the text that jsonencode makes of such a struct."""
    tree = source.tree
    if (found := _find_parameters(source)) is not None:
        return _read_parameters(found)
    if {"fc_left", "cc_left", "fc_right", "cc_right"} <= tree.keys():
        return _read_toolbox(tree)
    if {"M1", "M2", "P1", "P2", "Q"} & canonical_names(tree).keys():
        return describe_opencv(tree, "OpenCV (.mat)")
    objects = [each.kind for each in tree.values() if isinstance(each, Unread)]
    if objects:
        raise InputError(f"holds an object ({objects[0][:40]}) that only MATLAB can read", EXPORT)
    raise InputError("does not hold stereoParameters", EXPORT)


def _find_parameters(source: Source) -> Section | None:
    """Return the fields of stereoParameters, in one tree or in files of both cameras and their pose."""
    tree = source.tree
    cameras = [each for each in source.trees if {"FocalLength", "PrincipalPoint"} <= each.keys()]
    if len(cameras) == 2 and tree.keys() & {"RotationOfCamera2", "PoseCamera2"}:
        return Section({**tree, "CameraParameters1": cameras[0], "CameraParameters2": cameras[1]})
    below = (each for _, each in walk(tree) if isinstance(each, Mapping))
    return next((Section(each) for each in (tree, *below) if "CameraParameters1" in each), None)


def _read_parameters(tree: Section) -> CameraDescription:
    cameras, sizes = [], []
    for name in ("CameraParameters1", "CameraParameters2"):
        if isinstance(tree.get(name), Unread):
            raise InputError(f"{name} is an object that only MATLAB can read", EXPORT)
        each = tree.section(name)
        cameras.append(_read_camera(each))
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


def _read_camera(tree: Section) -> Camera:
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
    size = tree.size("nx", "ny") if {"nx", "ny"} <= tree.keys() else None
    notes = ["lengths are assumed to be in millimetres, because the Calibration Toolbox states no unit"]
    pair = CameraPair(cameras, tree.transform("R", "T"), (size, size))
    return CameraDescription("MATLAB Calibration Toolbox", [pair], metres=1e-3, notes=notes)
