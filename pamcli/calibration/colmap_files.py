"""Reader for COLMAP: cameras.txt with rigs.txt or rig_config.json, the lenses and poses of a rig."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera, invert_transform, pinhole_matrix
from pamcli.calibration.description import CameraDescription, pair_cameras
from pamcli.calibration.geometry import Floats, Size
from pamcli.calibration.parsing import (
    Source,
    make_camera,
    read_integer,
    read_numbers,
    read_quaternion_pose,
    read_size,
    unsupported_lens,
)
from pamcli.errors import InputError

_MODELS = {  # parameters in COLMAP's order, with OpenCV's names; f: one focal length for both axes
    "SIMPLE_PINHOLE": "f cx cy",
    "PINHOLE": "fx fy cx cy",
    "SIMPLE_RADIAL": "f cx cy k1",
    "RADIAL": "f cx cy k1 k2",
    "OPENCV": "fx fy cx cy k1 k2 p1 p2",
    "FULL_OPENCV": "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6",
    "OPENCV_FISHEYE": "fx fy cx cy k1 k2 k3 k4",
    "SIMPLE_RADIAL_FISHEYE": "f cx cy k1",
    "RADIAL_FISHEYE": "f cx cy k1 k2",
}
_CAMERA = re.compile(r"(\d+)[ \t]+([A-Z_]+)[ \t]+(\d+)[ \t]+(\d+)[ \t]+([-+.\deE \t]+)")
_RIG = re.compile(r"\d+[ \t]+(\d+)[ \t]+(?:0|CAMERA)[ \t]+(\d+)\b(.*)")


# A camera of a rig: its number in cameras.txt or the camera itself, and the transform from the rig.
_Sensor = tuple[int | None, Floats, Camera | None]


def _split_rows(text: str) -> list[str]:
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _is_cameras(text: str) -> bool:
    rows = _split_rows(text)
    found = _CAMERA.fullmatch(rows[0]) if rows else None
    return bool(found and ("MODEL, WIDTH, HEIGHT" in text or found[2] in _MODELS))


def _find_config(source: Source) -> Sequence[Any] | None:
    rigs = source.tree.get("list")
    known = isinstance(rigs, Sequence) and isinstance(rigs[0], Mapping) and "cameras" in rigs[0]
    return rigs if known else None


def has_colmap(source: Source) -> bool:
    is_text = any(_is_cameras(text) or "REF_SENSOR_ID" in text for text in source.texts)
    return is_text or _find_config(source) is not None


def read_colmap(source: Source) -> CameraDescription:
    """Read cameras.txt with rigs.txt or rig_config.json, in the unit of length of the reconstruction."""
    known: dict[int, tuple[Camera, Size]] = {}
    for row in (row for text in source.texts if _is_cameras(text) for row in _split_rows(text)):
        if found := _CAMERA.fullmatch(row):
            number, model, width, height, values = found.groups()
            key = f"camera {number[:9]}"
            camera = _read_camera(model, values.split(), key)
            known[read_integer(number, "CAMERA_ID")] = camera, read_size([width, height], key)
    rigs = next((text for text in source.texts if "REF_SENSOR_ID" in text), None)
    config = _find_config(source)
    if rigs is None and config is None:
        raise InputError("holds intrinsics, but no camera poses", "give rigs.txt or rig_config.json, too")
    sensors = _read_rigs(rigs) if rigs is not None else _read_config(config or (), known)
    pair = source.select_pair(len(sensors))
    placed = []
    for number, from_rig, lens in (sensors[index] for index in pair):
        if lens is None and number not in known:
            raise InputError(
                f"holds the pose of camera {number}, but not its intrinsics", "give cameras.txt, too"
            )
        camera, size = (lens, None) if lens is not None else known[number or 0]
        placed.append((camera, invert_transform(from_rig), size))
    notes = [f"cameras {pair[0]} and {pair[1]} of {len(sensors)} are used"] if len(sensors) > 2 else []
    return CameraDescription("COLMAP", [pair_cameras(placed)], metres=None, notes=notes)


def _read_camera(model: str, values: Any, key: str) -> Camera:
    if model not in _MODELS:
        hint = "`colmap image_undistorter` makes images of pinhole cameras"
        raise unsupported_lens(f"{key}: model", model, hint)
    names = _MODELS[model].split()
    given = dict(zip(names, read_numbers(values, f"{key}: its parameters", len(names)), strict=True))
    fx, fy = (given.get(name, given.get("f", 0.0)) for name in ("fx", "fy"))
    # COLMAP's pixel centres are at halves, OpenCV's at whole numbers.
    matrix = pinhole_matrix(fx, fy, given["cx"] - 0.5, given["cy"] - 0.5)
    fisheye = "FISHEYE" in model
    order = ("k1", "k2", "k3", "k4") if fisheye else ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
    most = order[: 8 if "k3" in given and not fisheye else 4] if "k1" in given else ()
    distortion = np.array([given.get(name, 0.0) for name in most])
    return make_camera(matrix, key, distortion, key, fisheye)


def _read_rigs(text: str) -> list[_Sensor]:
    rows = _split_rows(text)
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
