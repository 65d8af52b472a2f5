"""OpenCV's calibrations: FileStorage in YAML, XML or JSON, arrays in .npz, variables in .mat.

OpenCV fixes no names, so those of its samples and of programs around it are known: a stem (K, mtx,
cameraMatrix ...) with a side (1, left, L, or 0 where the other one is 1), in any case and order, underscores
or none.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from pamcli.calibration.parsing import Tree, matrix, numbers, size_of
from pamcli.calibration.rectified import Calibration
from pamcli.calibration.rig import StatedRectification, rotation_of
from pamcli.calibration.stored import StoredCalibration, camera_of, is_fisheye, metres, projected, rig_of
from pamcli.errors import InputError

_STEMS = {
    "M": "m k mtx matrix cameramatrix cammatrix cameramtx intrinsic intrinsics intrinsicmatrix",
    "D": "d dist distcoeff distcoeffs distcoef distcoefs distortion distortions distortioncoefficients "
    "distortioncoeffs dfe",
    "P": "p proj projection projectionmatrix projmat",
}
_ALONE = {
    "R": "r rot rotation rotationmatrix rotmat",
    "T": "t trans translation translationvector transvector tvec",
    "Q": "q disptodepthmatrix disparitytodepthmatrix",
}
_SIDES = {"0": "0", "1": "1", "2": "2", "left": "1", "l": "1", "right": "2", "r": "2"}
_KNOWN = {name: key for table in (_STEMS, _ALONE) for key, names in table.items() for name in names.split()}


def canonical(names: Mapping[str, Any]) -> dict[str, str]:
    """M1 D1 M2 D2 R T P1 P2 Q, as far as they are there, by the names that a file gives them."""
    found: dict[str, str] = {}
    for name, value in names.items():
        plain = re.sub(r"[\W_]", "", name).lower()
        key = next((key for key in _ALONE if _KNOWN.get(plain) == key), None)
        if key is None:
            match = re.fullmatch(r"(left|right)(.+)|(.+?)(left|right|l|r|\d)(fe)?", plain)
            stem, side = (
                ((match[1] and match[2]) or match[3] or "", match[1] or match[4]) if match else ("", "")
            )
            if _KNOWN.get(stem) not in _STEMS or side not in _SIDES:
                continue
            if not isinstance(value, Mapping | list | tuple | np.ndarray):  # k1 of a lens, not a camera's K
                continue
            key = f"{_KNOWN[stem]}{_SIDES[side]}"
        if value is not None:
            found.setdefault(key, name)
    if "M0" in found:  # cameras are counted from 0
        sides = {key: key[0] + {"0": "1", "1": "2"}.get(key[1:], key[1:]) for key in found}
        found = {sides[key]: name for key, name in found.items()}
    return found


def opencv(tree: Tree, exchanged: bool = False, kind: str = "OpenCV") -> StoredCalibration:
    """Read K1 D1 K2 D2 R T, and P1 P2, or Q; lengths in metres, if the file does not say `length_unit`.

    exchanged: the second camera is the left one. Raises InputError.
    """
    names = canonical(tree)

    def stated(key: str) -> tuple[Any, str]:
        name = names.get(key, key)
        return tree.get(name), name

    size = _size(tree)
    model = tree.get("distortion_model", tree.get("fisheye", ""))
    fisheye = is_fisheye(model, "distortion_model") or names.get("D1", "").lower().endswith("_fe")
    unit = next((key for key in ("length_unit", "unit", "units") if tree.get(key) is not None), None)
    scale = metres(tree[unit], unit) if unit else 1.0
    rig = rectified = None
    if {"M1", "M2"} & names.keys():
        cameras = []
        for side in "12":
            coefficients, name = stated(f"D{side}")
            distortion = numbers([] if coefficients is None else coefficients, name)
            intrinsics, key = stated(f"M{side}")
            cameras.append(camera_of(matrix(intrinsics, key, 3, 3), key, distortion, name, fisheye))
        if not {"R", "T"} & names.keys():
            raise InputError(
                "R and T are missing", "where the extrinsics are in a file of their own, give both"
            )
        rotation = numbers(*stated("R"), 3, 9)
        rotation = rotation_of(rotation) if rotation.size == 3 else rotation.reshape(3, 3)
        translation = scale * numbers(*stated("T"), 3)
        rig = rig_of(cameras, rotation, translation, size, exchanged, _rectifying(tree, names, scale))
    if {"P1", "P2"} & names.keys():
        p1, p2 = (matrix(*stated(key), 3, 4) for key in ("P1", "P2"))
        for p in (p1, p2):
            p[:, 3] *= scale
        rectified = projected(p1, p2, ("P1", "P2"), size, exchanged)
    elif "Q" in names:
        q = matrix(*stated("Q"), 4, 4)
        if q[3, 2] == 0 or q[2, 3] <= 0:
            raise InputError("Q is singular: it holds no focal length or no baseline")
        focal, baseline, offset = (float(it) for it in (q[2, 3], scale / q[3, 2], q[3, 3] / q[3, 2]))
        x, y = -float(q[0, 3]), -float(q[1, 3])
        if exchanged:
            x, baseline, offset = x + offset, -baseline, -offset
        rectified = Calibration(focal, baseline, offset, (x, y), size)
    if rig is None and rectified is None:
        raise InputError("holds no calibration of two cameras: K1 D1 K2 D2 R T, or P1 P2, or Q")
    note = "lengths are taken for metres, which OpenCV does not state"
    return StoredCalibration(kind, rig, rectified, unit_note=None if unit or "baseline" in tree else note)


def _rectifying(tree: Tree, names: Mapping[str, str], scale: float) -> StatedRectification | None:
    """Read R1 R2 P1 P2, where all are there. scale: metres of a unit of length."""
    if not {"R1", "R2"} <= tree.keys() or not {"P1", "P2"} <= names.keys():
        return None
    r1, r2 = (matrix(tree[key], key, 3, 3) for key in ("R1", "R2"))
    p1, p2 = (matrix(tree[names[key]], names[key], 3, 4) * [1, 1, 1, scale] for key in ("P1", "P2"))
    return StatedRectification((r1, r2), (p1, p2))


def _size(tree: Tree) -> tuple[int, int] | None:
    for name in ("size", "Size", "imageSize", "image_size", "img_size", "img_shape"):
        if tree.get(name) is not None:
            return size_of(tree[name], name)
    for prefix in ("image_", "image", ""):
        for w, h in (("width", "height"), ("Width", "Height")):
            if tree.get(prefix + w) is not None:
                return size_of([tree[prefix + w], tree.get(prefix + h)], f"{prefix}{w} x {prefix}{h}")
    return None
