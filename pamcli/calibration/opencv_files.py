"""OpenCV's calibrations: FileStorage in YAML, XML or JSON, arrays in .npz, variables in .mat, and .dat sets.

OpenCV fixes no names, so those of its samples and of programs around it are known: a stem (K, mtx,
cameraMatrix ...) with a side (1, left, L, or 0 where the other one is 1), in any case and order, underscores
or none.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from pamcli.calibration.camera import StatedRectification, rotation_of
from pamcli.calibration.described import (
    CameraPair,
    Described,
    Projections,
    camera_of,
    inverse,
    is_fisheye,
    matrix_camera,
    placed_pair,
    rectified_images,
    rigid,
    transform_of,
)
from pamcli.calibration.parsing import Source, Tree, matrix, numbers, size_of
from pamcli.calibration.rectified import Floats
from pamcli.errors import InputError
from pamcli.files.units import parse_length

_STEMS = {
    "M": "m k mtx matrix cameramatrix cammatrix cameramtx intrinsic intrinsics intrinsicmatrix",
    "D": "d dist distcoeff distcoeffs distcoef distcoefs distortion distortions distortioncoefficients "
    "distortioncoeffs dfe",
    "P": "p proj projection projectionmatrix projmat",
}
_ALONE = {
    "R": "r rot rotation rotationmatrix rotmat",
    "T": "t trans translation translationvector transvector tvec",
    "RT": "rt extrinsic extrinsics extrinsicmatrix transform transformation pose tlr trl",
    "Q": "q disptodepthmatrix disparitytodepthmatrix",
}
_SIDES = {"0": "0", "1": "1", "2": "2", "left": "1", "l": "1", "right": "2", "r": "2"}
_KNOWN = {name: key for table in (_STEMS, _ALONE) for key, names in table.items() for name in names.split()}
_MAP = re.compile(
    r"(stereo|rect\w*|undist\w*|remap|left|right|l|r)?_?maps?[\dxy_]*(left|right|l|r)?[\dxy_]*", re.I
)
EXTRINSICS = {"R", "T", "RT"}
TWO_CAMERAS = "K1 D1 K2 D2 R T, or P1 P2, or Q"


def canonical(names: Mapping[str, Any]) -> dict[str, str]:
    """Return the names that a file has for M1 D1 M2 D2 R T P1 P2 Q, as far as they are there."""
    found: dict[str, str] = {}
    for name, value in names.items():
        plain = re.sub(r"[\W_]", "", name).lower()
        key = next((key for key in _ALONE if _KNOWN.get(plain) == key), None)
        if key is None:
            match = re.fullmatch(r"(left|right)(.+)|(.+?)(left|right|l|r|\d)(fe)?", plain[:60])
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


def has_opencv(source: Source) -> bool:
    found = canonical(source.tree).keys()
    return bool({"M1", "M2", "P1", "P2", "Q"} & found) or {"R", "T"} <= found or source.is_zip()


def read_opencv(source: Source) -> Described:
    """Read K1 D1 K2 D2 R T, and P1 P2, or Q."""
    return opencv(source.tree)


def opencv(tree: Tree, kind: str = "OpenCV") -> Described:
    """Describe the cameras of a tree with OpenCV's names."""
    names = canonical(tree)

    def stated(key: str) -> tuple[Any, str]:
        name = names.get(key, key)
        return tree.get(name), name

    size = _size(tree)
    model = tree.get("distortion_model") or tree.get("fisheye") or ""
    fisheye = is_fisheye(model, "distortion_model") or names.get("D1", "").lower().endswith("_fe")
    unit = next((key for key in ("length_unit", "unit", "units") if tree.get(key) is not None), None)
    scale = parse_length(tree[unit], unit) if unit else 1.0 if "baseline" in tree else None
    pairs: list[CameraPair] = []
    projections: list[Projections] = []
    if {"P1", "P2"} & names.keys():
        p1, p2 = (matrix(*stated(key), 3, 4) for key in ("P1", "P2"))
        projections = [Projections(p1, p2, size)]
    elif "Q" in names:
        q = matrix(*stated("Q"), 4, 4)
        if q[3, 2] == 0 or q[2, 3] <= 0:
            raise InputError("Q is singular: it holds no focal length or no baseline")
        focal, center = (float(q[2, 3]),) * 2, (-float(q[0, 3]), -float(q[1, 3]))
        offset = float(q[3, 3] / q[3, 2])
        found = rectified_images(kind, focal, center, 1 / float(q[3, 2]), offset=offset, size=size)
        projections = list(found.projections)
    if {"M1", "M2"} & names.keys() and (EXTRINSICS & names.keys() or not projections):
        cameras = [
            matrix_camera(tree, stated(f"M{side}")[1], stated(f"D{side}")[1], fisheye) for side in "12"
        ]
        if not EXTRINSICS & names.keys():
            raise InputError(
                "R and T are missing", "where the extrinsics are in a file of their own, give both"
            )
        whole = "RT" if "RT" in names else "T"
        if "R" in names:
            rotation, translation = numbers(*stated("R"), 3, 9), numbers(*stated("T"), 3)
            rotation = rotation_of(rotation) if rotation.size == 3 else rotation.reshape(3, 3)
        else:  # one matrix (4, 4)
            pose = rigid(*stated(whole))
            rotation, translation = pose[:3, :3], pose[:3, 3]
        pairs = [CameraPair(cameras, rotation, translation, size, stated=_rectifying(tree, names))]
    if not (pairs or projections):
        raise InputError(f"holds no calibration of two cameras: {TWO_CAMERAS}")
    return Described(kind, pairs, projections, metres=scale)


def _rectifying(tree: Tree, names: Mapping[str, str]) -> StatedRectification | None:
    """Read R1 R2 P1 P2, where all are there."""
    if not {"R1", "R2"} <= tree.keys() or not {"P1", "P2"} <= names.keys():
        return None
    r1, r2 = (matrix(tree[key], key, 3, 3) for key in ("R1", "R2"))
    p1, p2 = (matrix(tree[names[key]], names[key], 3, 4) for key in ("P1", "P2"))
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


def _dat(source: Source) -> list[dict[str, Any]]:
    """Return the numbers below each line such as "intrinsic:", of each file."""
    found: list[dict[str, Any]] = []
    for text in source.texts:
        parts: dict[str, Any] = {}
        for line in map(str.strip, text.splitlines()):
            if re.fullmatch(r"[A-Za-z]\w*:", line):
                parts[line[:-1]] = last = []
            elif line and parts:
                last.append(line)
        found.append(parts)
    return found


def has_dat(source: Source) -> bool:
    """Return whether each file has intrinsics, or a pose, below a line of its own."""
    return all(any(parts.get(key) for key in ("intrinsic", "R")) for parts in _dat(source))


def read_dat(source: Source) -> Described:
    """Read camera0_intrinsics.dat, camera1_intrinsics.dat, camera0_rot_trans.dat and camera1_rot_trans.dat.

    A pose leads from the world's coordinates, those of the first camera where it has none, to the camera's.
    """
    parts = _dat(source)
    cameras = [matrix_camera(each, "intrinsic", "distortion") for each in parts if each.get("intrinsic")]
    poses = [
        transform_of(matrix(each.get("R"), "R", 3, 3), numbers(each.get("T"), "T", 3))
        for each in parts
        if each.get("R")
    ]
    if not (cameras and poses) or max(len(cameras), len(poses)) > 2:
        raise InputError(
            f"holds {len(cameras)} intrinsics and {len(poses)} poses of a set of .dat files",
            "give intrinsics and rot_trans of both cameras, the left one first",
        )
    notes = ["both cameras have the same intrinsics"] if len(cameras) == 1 else []
    poses = [np.eye(4), *poses] if len(poses) == 1 else poses
    pair = placed_pair((cameras[index % len(cameras)], inverse(poses[index]), None) for index in (0, 1))
    return Described(".dat set", [pair], metres=None, notes=notes)


def has_cameras_apart(source: Source) -> bool:
    """Return whether two files hold a camera_matrix each, and another one R and T."""
    cameras = [tree for tree in source.trees if "camera_matrix" in tree]
    return len(cameras) == 2 and {"R", "T"} <= canonical(source.tree).keys()


def read_cameras_apart(source: Source) -> Described:
    """Read a file for each camera, as OpenCV's calibration sample writes it, and R and T of both."""
    joined: dict[str, Any] = {
        name: value for name, value in source.tree.items() if "camera_matrix" not in name
    }
    for index, tree in enumerate((each for each in source.trees if "camera_matrix" in each), 1):
        joined |= {f"K{index}": tree["camera_matrix"], f"D{index}": tree.get("distortion_coefficients") or []}
    return opencv({name: value for name, value in joined.items() if name != "distortion_coefficients"})


def numbers_alone(source: Source) -> Floats | None:
    """Return the numbers of a file that holds nothing else; None: it holds more, or none."""
    text = re.sub(r"#.*", "", source.texts[0])
    if len(source.texts) != 1 or len(text) > 20_000 or not re.fullmatch(r"[-+\d.eE\s,;\[\]]+", text):
        return None
    words = text.translate(dict.fromkeys(map(ord, ",;[]"), " ")).split()
    return numbers(words, "the file") if words else None


def has_numbers(source: Source) -> bool:
    found = numbers_alone(source)
    return found is not None and (len(found) in (9, 10) or (len(found) > 12 and len(found) % 12 == 0))


def read_numbers(source: Source) -> Described:
    """Read K row by row with the baseline behind it, or rows of projections (3, 4) as KITTI has them."""
    found = numbers_alone(source)
    assert found is not None
    if len(found) > 10:
        rows = found.reshape(-1, 3, 4)
        one, other = source.pair or ((2, 3) if len(rows) == 4 else (0, 1))
        if max(one, other) >= len(rows):
            raise InputError(f"has {len(rows)} projections", "`cameras` counts them from 0")
        keys = (f"line {one + 1}", f"line {other + 1}")
        return Described("KITTI", projections=[Projections(rows[one], rows[other], None, keys)])
    camera = camera_of(found[:9].reshape(3, 3), "K", np.zeros(0), "K").matrix
    focal, center = (float(camera[0, 0]), float(camera[1, 1])), (float(camera[0, 2]), float(camera[1, 2]))
    return rectified_images("K.txt", focal, center, float(found[9]) if len(found) > 9 else 0.0)


def has_maps(source: Source) -> bool:
    return any(_MAP.fullmatch(name) for name in source.tree if len(name) < 40)


def refuse_maps(source: Source) -> Described:
    """Say what maps of initUndistortRectifyMap lack."""
    names = [name for name in source.tree if len(name) < 40 and _MAP.fullmatch(name)]
    raise InputError(
        f"holds rectification maps of OpenCV ({', '.join(names[:4])}), without a baseline",
        "rectify with cv2.remap, and give the calibration that the maps were made of (K1 D1 K2 D2 R T), or "
        "`focal` and `baseline`",
    )
