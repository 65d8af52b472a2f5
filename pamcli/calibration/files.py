"""Calibration files: read whatever kind they are of, one function a kind, and written as OpenCV's YAML.

| kind                              | lengths in  | recognised by                                  |
| --------------------------------- | ----------- | ---------------------------------------------- |
| OpenCV FileStorage YAML, XML, JSON | as written  | M1 D1 M2 D2 R T, and P1 P2, or Q               |
| ROS camera_info, two files        | metres      | camera_matrix or projection_matrix             |
| Kalibr camchain.yaml              | metres      | cam0, cam1 with intrinsics, T_cn_cnm1          |
| KITTI, raw and odometry           | metres      | lines P0: ... or P_rect_00: ...                |
| Middlebury, ETH3D calib.txt       | millimetres | lines cam0=[...], baseline=, doffs=            |
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.parsing import Tree, lines_of, matrix, number, numbers, read_text, size_of, tree_of
from pamcli.calibration.rectified import Calibration
from pamcli.calibration.rig import Camera, Rig, rotation_of
from pamcli.errors import InputError, UsageError

Floats = NDArray[np.float64]

KNOWN = "OpenCV (YAML, XML, JSON), ROS camera_info, Kalibr camchain, KITTI and Middlebury files can be read"


@dataclass(frozen=True)
class StoredCalibration:
    """What a file says about a pair of cameras."""

    kind: str
    """Of the file, for people."""
    rig: Rig | None = None
    """The cameras as they stand; None where the file describes rectified pictures alone."""
    rectified: Calibration | None = None
    """Of rectified pictures; None where the file describes none."""
    notes: Sequence[str] = ()
    """What was taken for granted."""


def read_calibration(*paths: str | Path, cameras: tuple[int, int] | None = None) -> StoredCalibration:
    """Read a calibration, recognised by its content. Lengths are in metres, save OpenCV's, as they are.

    paths: one file, or two that belong together: ROS's of the left and of the right camera, or OpenCV's
    intrinsics and extrinsics. cameras: the numbers of the left and the right one, where a file (Kalibr,
    KITTI) describes several. Raises InputError naming file and key: unreadable, no calibration, text or NaN
    where numbers belong, matrices of wrong sizes, singular, left and right exchanged; UsageError: more files.
    """
    if not 1 <= len(paths) <= 2:
        raise UsageError(f"{len(paths)} calibration files are given, where one or two belong together")
    with naming(", ".join(map(str, paths))):
        return _understood([read_text(Path(path)) for path in paths], cameras)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """What is wrong in it with a calibration is said with the name of its file."""
    try:
        yield
    except InputError as error:
        raise (
            error if name in error.message else InputError(f"{name}: {error.message}", error.hint)
        ) from error


def _understood(texts: Sequence[str], cameras: tuple[int, int] | None) -> StoredCalibration:
    if len(texts) == 1 and re.search(r"^P(\d|_rect_\d\d):\s*[-+.\d]", texts[0], re.MULTILINE):
        return kitti(lines_of(texts[0], ":"), cameras)
    lines = lines_of(texts[0], "=") if len(texts) == 1 else {}
    trees = [] if "cam0" in lines else [tree_of(text) for text in texts]
    if len(trees) == 1 and any(re.fullmatch(r"cam\d+", key) for key in trees[0]):
        return kalibr(trees[0], cameras or (0, 1))
    if cameras not in (None, (0, 1)):
        raise InputError("has two cameras alone", "leave out `cameras`, which is about KITTI's and Kalibr's")
    if "cam0" in lines:
        return middlebury(lines)
    if all({"camera_matrix", "projection_matrix"} & tree.keys() for tree in trees):
        return ros(trees)
    together: Tree = {key: value for tree in trees for key, value in tree.items()}
    if {name for names in OPENCV_NAMES.values() for name in names} & together.keys():
        return opencv(together)
    raise InputError("holds no calibration that is known", KNOWN)


def encode_calibration(calibration: Calibration) -> bytes:
    """OpenCV's YAML with P1, P2, Q, baseline (metres), image_width and image_height.

    Needs `principal` and `size`. `read_calibration`, and OpenCV's FileStorage, read it back.
    """
    import cv2

    assert calibration.size is not None
    mode = cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | cv2.FILE_STORAGE_FORMAT_YAML
    file = cv2.FileStorage("", mode)
    for key, side in zip(("image_width", "image_height"), calibration.size, strict=True):
        file.write(key, side)
    file.write("baseline", calibration.baseline)
    for key, values in zip(("P1", "P2"), calibration.projections(), strict=True):
        file.write(key, values)
    file.write("Q", calibration.reprojection())
    text: str = file.releaseAndGetString()
    return text.encode()


_OF_A_SIDE = {
    "M": "M{n} K{n} cameraMatrix{n} camera_matrix_{n} camera_matrix_{side} {side}_camera_matrix mtx{n}",
    "D": "D{n} distCoeffs{n} dist_coeffs_{n} distortion_{side} {side}_distortion dist{n}",
}
OPENCV_NAMES: dict[str, list[str]] = {
    **{
        f"{key}{n}": names.format(n=n, side=side).split()
        for key, names in _OF_A_SIDE.items()
        for n, side in ((1, "left"), (2, "right"))
    },
    "R": ["R", "rotation", "rotation_matrix"],
    "T": ["T", "translation", "translation_vector"],
    "P1": ["P1"],
    "P2": ["P2"],
    "Q": ["Q"],
}
"""By OpenCV's own names, those that samples and programs give them, too."""


def opencv(tree: Tree) -> StoredCalibration:
    """Keys of OpenCV's samples; T has the unit of the board's squares, which should be metres."""
    found = {
        key: (name, tree[name])
        for key, names in OPENCV_NAMES.items()
        for name in names
        if tree.get(name) is not None
    }

    def stated(key: str) -> tuple[Any, str]:
        name, value = found.get(key, (key, None))
        return value, name

    size = _opencv_size(tree)
    fisheye = _is_fisheye(tree.get("distortion_model", tree.get("fisheye", "")), "distortion_model")
    rig = rectified = None
    if {"M1", "M2"} & found.keys():
        cameras = []
        for side in "12":
            coefficients, name = stated(f"D{side}")
            distortion = numbers([] if coefficients is None else coefficients, name)
            intrinsics = matrix(*stated(f"M{side}"), 3, 3)
            cameras.append(_camera(intrinsics, f"M{side}", distortion, name, fisheye))
        if not {"R", "T"} & found.keys():
            raise InputError(
                "R and T are missing", "where the extrinsics are in a file of their own, give both"
            )
        rotation = numbers(*stated("R"), 3, 9)
        rotation = rotation_of(rotation) if rotation.size == 3 else rotation.reshape(3, 3)
        rig = Rig(cameras[0], cameras[1], rotation, numbers(stated("T")[0], "T", 3), size)
    if {"P1", "P2"} & found.keys():
        p1, p2 = (matrix(*stated(key), 3, 4) for key in ("P1", "P2"))
        rectified = _projected(p1, p2, ("P1", "P2"), size)
    elif "Q" in found:
        q = matrix(*stated("Q"), 4, 4)
        if q[3, 2] == 0 or q[2, 3] <= 0:
            raise InputError("Q is singular: it holds no focal length or no baseline")
        focal_length, baseline, offset = (float(it) for it in (q[2, 3], 1 / q[3, 2], q[3, 3] / q[3, 2]))
        rectified = Calibration(focal_length, baseline, offset, (-float(q[0, 3]), -float(q[1, 3])), size)
    note = "lengths are taken for metres, which OpenCV does not state"
    return StoredCalibration("OpenCV", rig, rectified, [] if "baseline" in tree else [note])


def _opencv_size(tree: Tree) -> tuple[int, int] | None:
    for name in ("size", "imageSize", "image_size", "img_size"):
        if tree.get(name) is not None:
            return size_of(tree[name], name)
    for prefix in ("image_", "image", ""):
        for w, h in (("width", "height"), ("Width", "Height")):
            if tree.get(prefix + w) is not None:
                return size_of([tree[prefix + w], tree.get(prefix + h)], f"{prefix}{w} x {prefix}{h}")
    return None


def ros(trees: Sequence[Tree]) -> StoredCalibration:
    """The camera_info of the left and of the right camera, of which the cameras' rectification is known."""
    if len(trees) != 2:
        raise InputError(
            "tells of one camera", "give two files, that of the left camera and that of the right one"
        )
    cameras, rotations, projections, sizes = [], [], [], []
    for tree in trees:
        sizes.append(
            size_of([tree.get("image_width"), tree.get("image_height")], "image_width x image_height")
        )
        model = str(tree.get("distortion_model", "plumb_bob"))
        if model not in ("plumb_bob", "rational_polynomial", "equidistant", "fisheye", "none", ""):
            raise InputError(f"distortion_model {model[:30]!r} is not known")
        key = "distortion_coefficients"
        distortion = numbers(tree.get(key) or [], key)
        fisheye = _is_fisheye(model, "distortion_model")
        intrinsics = matrix(tree.get("camera_matrix"), "camera_matrix", 3, 3)
        cameras.append(_camera(intrinsics, "camera_matrix", distortion, key, fisheye))
        rotations.append(matrix(tree.get("rectification_matrix"), "rectification_matrix", 3, 3))
        projections.append(matrix(tree.get("projection_matrix"), "projection_matrix", 3, 4))
    size = _one_size(sizes)
    rectified = _projected(projections[0], projections[1], ("projection_matrix", "projection_matrix"), size)
    if rectified.baseline == 0:
        return StoredCalibration("ROS camera_info", None, rectified)
    rotation = rotations[1].T @ rotations[0]
    center = np.array([-rectified.baseline, 0, 0])
    rig = Rig(cameras[0], cameras[1], rotation, rotations[1].T @ center, size)
    return StoredCalibration("ROS camera_info", rig, rectified)


def kalibr(tree: Tree, pair: tuple[int, int]) -> StoredCalibration:
    """camchain.yaml: each camera's transformation from the one before it. pair: numbers of the cameras."""
    left, right = pair
    cameras, sizes = [], []
    for index in pair:
        camera = _part(tree, f"cam{index}")
        if camera.get("camera_model") != "pinhole":
            raise InputError(
                f"cam{index}: camera_model {str(camera.get('camera_model'))[:30]!r} is not pinhole"
            )
        fx, fy, x, y = numbers(camera.get("intrinsics"), f"cam{index}: intrinsics", 4)
        model = str(camera.get("distortion_model"))
        if model not in ("radtan", "equidistant", "none"):
            raise InputError(f"cam{index}: distortion_model {model[:30]!r} is neither radtan nor equidistant")
        key = f"cam{index}: distortion_coeffs"
        distortion = numbers([] if model == "none" else camera.get("distortion_coeffs"), key)
        intrinsics = np.array([[fx, 0, x], [0, fy, y], [0, 0, 1]])
        cameras.append(
            _camera(intrinsics, f"cam{index}: intrinsics", distortion, key, model == "equidistant")
        )
        sizes.append(size_of(camera.get("resolution"), f"cam{index}: resolution"))
    size = _one_size(sizes)
    transform: Floats = np.eye(4)
    for index in range(min(pair) + 1, max(pair) + 1):
        step = _part(tree, f"cam{index}").get("T_cn_cnm1")
        transform = matrix(step, f"cam{index}: T_cn_cnm1", 4, 4) @ transform
    rotation, translation = transform[:3, :3], transform[:3, 3]
    if left > right:
        rotation, translation = rotation.T, -rotation.T @ translation
    rig = Rig(cameras[0], cameras[1], rotation, translation, size)
    return StoredCalibration("Kalibr camchain", rig, rig.rectified())


def kitti(lines: Mapping[str, str], pair: tuple[int, int] | None) -> StoredCalibration:
    """P0 ... P3, or P_rect_00 ... with K, D, R and T of the cameras before rectification (raw data)."""
    raw = any(name.startswith("P_rect_") for name in lines)
    projection = "P_rect_{:02}" if raw else "P{}"
    notes = []
    if pair is None:
        pair = (2, 3) if projection.format(2) in lines else (0, 1)
        notes = [f"cameras {pair[0]} and {pair[1]}" + (", those in colour" if pair == (2, 3) else "")]

    def values(key: str, *counts: int) -> Floats:
        return numbers(lines[key].split() if key in lines else None, key, *counts)

    keys = [projection.format(index) for index in pair]
    p1, p2 = (values(key, 12).reshape(3, 4) for key in keys)
    left, right = (f"{index:02}" for index in pair)
    size = None
    if f"S_rect_{left}" in lines:
        size = size_of(values(f"S_rect_{left}", 2).tolist(), "S_rect")
    rectified = _projected(p1, p2, (keys[0], keys[1]), size)
    if not raw or f"K_{left}" not in lines:
        return StoredCalibration("KITTI", None, rectified, notes)
    one, other = (
        _camera(values(f"K_{i}", 9).reshape(3, 3), f"K_{i}", values(f"D_{i}"), f"D_{i}", False)
        for i in (left, right)
    )
    r1, r2 = (values(f"R_{i}", 9).reshape(3, 3) for i in (left, right))
    t1, t2 = (values(f"T_{i}", 3) for i in (left, right))
    sizes = [size_of(values(f"S_{i}", 2).tolist(), f"S_{i}") for i in (left, right)]
    rotation = r2 @ r1.T
    rig = Rig(one, other, rotation, t2 - rotation @ t1, sizes[0])
    return StoredCalibration("KITTI", rig, rectified, notes)


def middlebury(lines: Mapping[str, str]) -> StoredCalibration:
    """cam0=[f 0 cx; 0 f cy; 0 0 1], cam1, baseline in millimetres, doffs, width, height, ndisp."""

    def camera(key: str) -> Floats:
        return matrix(re.sub(r"[\[\];,]", " ", lines.get(key, "")).split() or None, key, 3, 3)

    left, right = camera("cam0"), camera("cam1") if "cam1" in lines else None
    baseline = number(lines.get("baseline", "").split() or None, "baseline") / 1000
    notes = []
    offset = 0.0 if right is None else float(right[0, 2] - left[0, 2])
    if "doffs" in lines:
        stated = number(lines["doffs"].split() or None, "doffs")
        if right is not None and abs(stated - offset) > 0.5:
            notes.append(
                f"doffs is {stated:g} px, but the principal points are {offset:g} px apart; doffs is taken"
            )
        offset = stated
    size = None
    if "width" in lines:
        size = size_of([lines["width"], lines.get("height")], "width x height")
    fx, fy = float(left[0, 0]), float(left[1, 1])
    principal = float(left[0, 2]), float(left[1, 2])
    bound = number(lines["ndisp"].split(), "ndisp") if lines.get("ndisp") else 0
    calibration = Calibration(
        fx, baseline, offset, principal, size, None if fx == fy else fy, bound if bound > 0 else None
    )
    return StoredCalibration("Middlebury", None, calibration, notes)


def _camera(intrinsics: Floats, key: str, distortion: Floats, distortion_key: str, fisheye: bool) -> Camera:
    try:
        return Camera(intrinsics, distortion, fisheye)
    except InputError as error:
        wrong = distortion_key if "coefficients" in error.message else key
        raise InputError(f"{wrong} {error.message}") from None


def _projected(p1: Floats, p2: Floats, keys: tuple[str, str], size: tuple[int, int] | None) -> Calibration:
    """From the projections of rectified cameras, K [I | t] each, of which only the difference of t counts."""
    fx, fy, f2 = float(p1[0, 0]), float(p1[1, 1]), float(p2[0, 0])
    if not (fx > 0 and fy > 0 and f2 > 0):
        raise InputError(f"{keys[0]} or {keys[1]} is singular: its focal length is not above 0")
    if abs(f2 - fx) > 1e-3 * fx:
        raise InputError(
            f"{keys[0]} and {keys[1]} have focal lengths of {fx:g} and {f2:g} px, so are not rectified"
        )
    across, down = (p1[:2, 3] - p2[:2, 3]) / (fx, fy)
    if abs(down) > abs(across):
        raise InputError(f"the cameras stand above each other ({keys[1]}), not beside each other")
    return Calibration.of(p1, p2, size)


def _one_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    if sizes[0] != sizes[1]:
        raise InputError("the two cameras have pictures of different sizes")
    return sizes[0]


def _part(tree: Tree, key: str) -> Tree:
    part = tree.get(key)
    if not isinstance(part, Mapping):
        raise InputError(f"{key} is missing")
    return part


def _is_fisheye(model: Any, key: str) -> bool:
    text = str(model).lower()
    if text in ("fisheye", "equidistant", "1", "true"):
        return True
    if text in ("", "0", "false", "none", "plumb_bob", "radtan", "pinhole", "rational_polynomial"):
        return False
    raise InputError(f"{key} {text[:30]!r} is not known")
