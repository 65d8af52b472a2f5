"""Calibration files: read whatever kind they are of, and written as OpenCV's YAML.

| file                                                         | recognised by                             |
| ------------------------------------------------------------ | ----------------------------------------- |
| `opencv_files.py`: YAML, XML, JSON, .npz                     | K1 D1 K2 D2 R T, P1 P2, or Q              |
| `ros_files.py`: camera_info; ost.ini, ost.txt                | camera_matrix; [image]                    |
| `slam_files.py`: Kalibr's camchain.yaml, and OpenVINS'       | cam0, cam1                                |
| `slam_files.py`: EuRoC's sensor.yaml; ORB-SLAM's settings    | T_BS; Camera.fx, Camera1.fx, LEFT.K       |
| `camera_files.py`: ZED's SN….conf; RealSense's JSON          | [LEFT_CAM_...; rectified.0.fx, ppx        |
| `matlab_files.py`: .mat of version 5, JSON                   | CameraParameters1, fc_left                |
| `colmap_files.py`: cameras.txt, rigs.txt, rig_config.json    | its comments, the names of its models     |
| KITTI's calib_cam_to_cam.txt and calib.txt                   | lines P0: ... or P_rect_00: ...           |
| Middlebury's and ETH3D's calib.txt, in millimetres           | lines cam0=[...], baseline=, doffs=       |
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pamcli.calibration import camera_files, colmap_files, matlab_files, ros_files, slam_files
from pamcli.calibration.mat_files import read_mat
from pamcli.calibration.opencv_files import canonical, opencv
from pamcli.calibration.parsing import (
    Tree,
    arrays_of,
    lines_of,
    matrix,
    number,
    numbers,
    size_of,
    text_of,
    tree_of,
)
from pamcli.calibration.rectified import Calibration, Floats
from pamcli.calibration.rig import Rig, StatedRectification
from pamcli.calibration.stored import StoredCalibration, camera_of, projected, rig_of
from pamcli.errors import InputError, UsageError
from pamcli.files.guarded import read_bytes

KNOWN = "`pam guide calibration` lists the programs whose files can be read"
NUMBERED = "leave out `cameras`, or exchange the two with 1:0"


def read_calibration(*paths: str | Path, cameras: tuple[int, int] | None = None) -> StoredCalibration:
    """Read a calibration, recognised by its content. Lengths are in metres, save OpenCV's, as they are.

    >>> calibration = pamcli.read_calibration("calib.txt").rectified

    paths: one file, or two that belong together: of the left and of the right camera (ROS, EuRoC), of
    intrinsics and extrinsics (OpenCV), of cameras and rigs (COLMAP). cameras: the numbers of the left and the
    right one, where a file (Kalibr, OpenVINS, COLMAP, KITTI) describes several; 1:0 exchanges two.
    Raises InputError naming file and key: unreadable, no calibration, text or NaN where numbers belong,
    matrices of wrong sizes, singular, left and right exchanged; UsageError: more files.
    """
    if not 1 <= len(paths) <= 2:
        raise UsageError(f"{len(paths)} calibration files are given, where one or two belong together")
    with naming(", ".join(map(str, paths))):
        contents = [read_bytes(Path(path)) for path in paths]
        return _understood(contents, cameras)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the name of the file into what is said of a calibration that is wrong."""
    try:
        yield
    except InputError as error:
        raise (
            error if name in error.message else InputError(f"{name}: {error.message}", error.hint)
        ) from error


def _understood(contents: Sequence[bytes], cameras: tuple[int, int] | None) -> StoredCalibration:
    arrays = [_arrays(data) for data in contents]
    if any(arrays):
        trees = [found or tree_of(text_of(data)) for found, data in zip(arrays, contents, strict=True)]
        read = opencv if contents[0].startswith(b"PK") else matlab_files.matlab
        return read({key: value for tree in trees for key, value in tree.items()}, _exchanged(cameras))
    texts = [text_of(data) for data in contents]
    if any(map(colmap_files.is_cameras, texts)) or any(map(colmap_files.is_rigs, texts)):
        return _colmap(texts, cameras)
    if len(texts) == 1 and re.search(r"^P(\d|_rect_\d\d):\s*[-+.\d]", texts[0], re.MULTILINE):
        return kitti(lines_of(texts[0], ":"), cameras)
    if all(map(ros_files.is_ost, texts)):
        trees = [tree for text in texts for tree in ros_files.ost_trees(text)]
        return ros_files.ros(trees, _exchanged(cameras), "ROS ost")
    if "[LEFT_CAM_" in texts[0].upper():
        return camera_files.zed(texts[0], _exchanged(cameras))
    lines = lines_of(texts[0], "=") if len(texts) == 1 else {}
    if "cam0" in lines:
        return middlebury(lines, _exchanged(cameras))
    trees = [tree_of(text) for text in texts]
    if len(trees) == 1 and any(re.fullmatch(r"cam\d+", key) for key in trees[0]):
        return slam_files.kalibr(trees[0], cameras or (0, 1))
    if any(map(colmap_files.is_rig_config, trees)):
        return _colmap(texts, cameras)
    exchanged = _exchanged(cameras)
    if all("T_BS" in tree for tree in trees):
        return slam_files.euroc(trees, exchanged)
    if all({"camera_matrix", "projection_matrix"} & tree.keys() for tree in trees):
        return ros_files.ros(trees, exchanged)
    together: Tree = {key: value for tree in trees for key, value in tree.items()}
    if {"Camera.fx", "Camera1.fx", "LEFT.K"} & together.keys():
        return slam_files.orb_slam(together, exchanged)
    if matlab_files.is_matlab(together):
        return matlab_files.matlab(together, exchanged)
    if camera_files.is_realsense(together):
        return camera_files.realsense(together, exchanged)
    if canonical(together):
        return opencv(together, exchanged)
    raise InputError("holds no calibration that is known", KNOWN)


def _arrays(data: bytes) -> Tree | None:
    """Read a binary file's names and values; None: it is a text. Raises InputError: an unreadable kind."""
    if data.startswith(b"PK"):
        return arrays_of(data)
    if data.startswith((b"MATLAB", b"\x89HDF")):
        return read_mat(data)
    if data.startswith(b"\x93NUMPY"):
        raise InputError("holds one array alone", "numpy.savez writes all of a calibration: K1 D1 K2 D2 R T")
    if data.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        raise InputError(
            "is a pickle, which could run any program when it is read",
            "write the arrays with numpy.savez('rig.npz', K1=..., D1=..., K2=..., D2=..., R=..., T=...)",
        )
    # COLMAP's cameras.bin and rigs.bin begin with a count of 8 bytes, which no text does.
    if len(data) > 24 and data[1:8] == bytes(7):
        raise InputError(
            "is a binary file, perhaps a model of COLMAP's",
            "`colmap model_converter --output_type TXT` makes cameras.txt and rigs.txt of it",
        )
    return None


def _exchanged(cameras: tuple[int, int] | None) -> bool:
    """Whether `cameras` exchanges the two of a file. Raises InputError: others are asked for."""
    if cameras not in (None, (0, 1), (1, 0)):
        raise InputError("has two cameras alone", NUMBERED)
    return cameras == (1, 0)


def _colmap(texts: Sequence[str], cameras: tuple[int, int] | None) -> StoredCalibration:
    known = next((text for text in texts if colmap_files.is_cameras(text)), None)
    rigs: str | Tree | None = None
    for text in texts:
        if text is not known:
            rigs = text if colmap_files.is_rigs(text) else tree_of(text)
    if isinstance(rigs, Mapping) and not colmap_files.is_rig_config(rigs):
        raise InputError("is no rig_config.json: a list of rigs with cameras")
    return colmap_files.colmap(known, rigs, cameras or (0, 1))


def encode_calibration(calibration: Calibration) -> bytes:
    """OpenCV's YAML with P1, P2, Q, baseline (metres), image_width and image_height.

    Needs `principal` and `size`. `read_calibration`, and OpenCV's FileStorage, read it back.
    """
    assert calibration.size is not None
    p1, p2 = calibration.projections()
    values = {"baseline": calibration.baseline, "P1": p1, "P2": p2, "Q": calibration.reprojection()}
    return _yaml(calibration.size, values)


def encode_rig(rig: Rig, facts: Mapping[str, int | float | str]) -> bytes:
    """OpenCV's YAML with K1, D1, K2, D2, R, T in millimetres, the size, and facts by their names.

    Needs `size`. `read_calibration`, and OpenCV's FileStorage, read it back.
    """
    assert rig.size is not None
    cameras: dict[str, Any] = {}
    for index, camera in enumerate((rig.left, rig.right), 1):
        cameras |= {f"K{index}": camera.matrix, f"D{index}": camera.distortion.reshape(1, -1)}
    model = "fisheye" if rig.left.fisheye else "pinhole"
    place = {"R": rig.rotation, "T": 1000 * rig.translation.reshape(3, 1)}
    return _yaml(rig.size, {"distortion_model": model, "length_unit": "mm", **cameras, **place, **facts})


def _yaml(size: tuple[int, int], values: Mapping[str, Any]) -> bytes:
    """Numbers, texts and matrices by their names, behind the size of the pictures, as OpenCV writes them."""
    import cv2

    mode = cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | cv2.FILE_STORAGE_FORMAT_YAML
    file = cv2.FileStorage("", mode)
    for key, value in {"image_width": size[0], "image_height": size[1], **values}.items():
        file.write(key, value)
    text: str = file.releaseAndGetString()
    return text.encode()


def kitti(lines: Mapping[str, str], pair: tuple[int, int] | None) -> StoredCalibration:
    """Read KITTI's text: P0 ... P3, or P_rect_00 ... with K, D, R and T before rectification (raw data)."""
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
    rectified = projected(p1, p2, (keys[0], keys[1]), size)
    if not raw or f"K_{left}" not in lines:
        return StoredCalibration("KITTI", None, rectified, notes)
    one, other = (
        camera_of(values(f"K_{i}", 9).reshape(3, 3), f"K_{i}", values(f"D_{i}"), f"D_{i}")
        for i in (left, right)
    )
    r1, r2 = (values(f"R_{i}", 9).reshape(3, 3) for i in (left, right))
    t1, t2 = (values(f"T_{i}", 3) for i in (left, right))
    sizes = [size_of(values(f"S_{i}", 2).tolist(), f"S_{i}") for i in (left, right)]
    rotation, stated = r2 @ r1.T, None
    if size is not None and all(f"R_rect_{i}" in lines for i in (left, right)):
        turns = [values(f"R_rect_{i}", 9).reshape(3, 3) for i in (left, right)]
        stated = StatedRectification((turns[0], turns[1]), (p1, p2), size)
    rig = rig_of((one, other), rotation, t2 - rotation @ t1, sizes[0], stated=stated)
    return StoredCalibration("KITTI", rig, rectified, notes)


def middlebury(lines: Mapping[str, str], exchanged: bool = False) -> StoredCalibration:
    """Read cam0=[f 0 cx; 0 f cy; 0 0 1], cam1, baseline in millimetres, doffs, width, height, ndisp."""

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
    x, y = float(left[0, 2]), float(left[1, 2])
    if exchanged:
        x, baseline, offset = x + offset, -baseline, -offset
    bound = number(lines["ndisp"].split(), "ndisp") if lines.get("ndisp") else 0
    calibration = Calibration(
        fx, baseline, offset, (x, y), size, None if fx == fy else fy, bound if bound > 0 else None
    )
    return StoredCalibration("Middlebury", None, calibration, notes)
