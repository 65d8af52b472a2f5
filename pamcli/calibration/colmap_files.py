"""COLMAP's cameras.txt with rigs.txt or rig_config.json: which cameras, and where they stand in the rig."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pamcli.calibration.parsing import numbers, size_of
from pamcli.calibration.rectified import Floats
from pamcli.calibration.rig import Camera
from pamcli.calibration.stored import (
    StoredCalibration,
    camera_of,
    inverse,
    one_size,
    pinhole_matrix,
    rig_of_poses,
    turned,
)
from pamcli.errors import InputError

# Parameters in COLMAP's order: f for one focal length, the rest by OpenCV's names.
_MODELS = {
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
_CAMERA = re.compile(r"^\s*(\d+)\s+([A-Z_]+)\s+(\d+)\s+(\d+)((?:\s+[-+.\deE]+)+)\s*$", re.MULTILINE)
_RIG = re.compile(r"^\s*\d+\s+(\d+)\s+(?:0|CAMERA)\s+(\d+)\b(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class _Sensor:
    number: int | None
    """The number of its camera in cameras.txt."""
    from_rig: Floats
    """(4, 4): from the rig's coordinates to the camera's."""
    camera: Camera | None = None
    """Where it is not in cameras.txt."""


def is_cameras(text: str) -> bool:
    """Whether a text is a cameras.txt."""
    found = _CAMERA.search(text)
    return bool(found and ("MODEL, WIDTH, HEIGHT" in text or found[2] in _MODELS))


def is_rigs(text: str) -> bool:
    """Whether a text is a rigs.txt."""
    return "REF_SENSOR_ID" in text


def is_rig_config(tree: Mapping[str, Any]) -> bool:
    """Whether a JSON file is a rig_config.json."""
    rigs = tree.get("list")
    return isinstance(rigs, Sequence) and isinstance(rigs[0], Mapping) and "cameras" in rigs[0]


def colmap(
    cameras: str | None, rigs: str | Mapping[str, Any] | None, pair: tuple[int, int]
) -> StoredCalibration:
    """cameras: cameras.txt. rigs: rigs.txt, or rig_config.json as a tree. pair: which of the rig's cameras.

    Lengths are whatever unit the reconstruction has, which is metres only where the rig was given so.
    """
    if rigs is None:
        raise InputError(
            "tells what the cameras are, not where they stand", "give rigs.txt or rig_config.json, too"
        )
    known = _cameras(cameras or "")
    sensors = _of_text(rigs) if isinstance(rigs, str) else _of_config(rigs, known)
    if len(sensors) < 2:
        raise InputError("the rig has one camera", "`colmap rig_configurator` makes a rig of the images")
    if max(pair) >= len(sensors):
        raise InputError(f"the rig has {len(sensors)} cameras", "`cameras` counts them from 0")
    chosen = [sensors[index] for index in pair]
    found: list[Camera] = []
    sizes: list[tuple[int, int]] = []
    for sensor in chosen:
        if sensor.camera is not None:
            found.append(sensor.camera)
        elif sensor.number in known:
            camera, size = known[sensor.number]
            found.append(camera)
            sizes.append(size)
        else:
            raise InputError(
                f"tells where camera {sensor.number} stands, not what it is", "give cameras.txt, too"
            )
    poses = [inverse(sensor.from_rig) for sensor in chosen]
    rig = rig_of_poses(found, poses, one_size(sizes) if len(sizes) == 2 else None)
    notes = [f"cameras {pair[0]} and {pair[1]} of {len(sensors)}"] if len(sensors) > 2 else []
    unit = "lengths are taken for metres, which COLMAP's need not be: `baseline` states the true one"
    return StoredCalibration("COLMAP", rig, rig.rectified(), notes, unit)


def _cameras(text: str) -> dict[int | None, tuple[Camera, tuple[int, int]]]:
    found: dict[int | None, tuple[Camera, tuple[int, int]]] = {}
    for number, model, width, height, values in _CAMERA.findall(text):
        key = f"camera {number}"
        found[int(number)] = (_camera(model, values.split(), key), size_of([width, height], key))
    return found


def _camera(model: str, values: Any, key: str) -> Camera:
    if model not in _MODELS:
        raise InputError(
            f"{key}: model {model[:30]} is none that OpenCV has",
            "`colmap image_undistorter` makes pictures of pinhole cameras",
        )
    names = _MODELS[model].split()
    given = dict(zip(names, numbers(values, f"{key}: its parameters", len(names)), strict=True))
    fx, fy = (float(given.get(name, given.get("f", 0))) for name in ("fx", "fy"))
    # COLMAP's pixels have their centres at a half, OpenCV's at whole numbers.
    matrix = pinhole_matrix(fx, fy, float(given["cx"]) - 0.5, float(given["cy"]) - 0.5)
    fisheye = "FISHEYE" in model
    order = ("k1", "k2", "k3", "k4") if fisheye else ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
    most = order[: 8 if "k3" in given and not fisheye else 4] if "k1" in given else ()
    distortion = np.array([given.get(name, 0.0) for name in most])
    return camera_of(matrix, key, distortion, key, fisheye)


def _of_text(text: str) -> list[_Sensor]:
    rows = "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    rigs = list(_RIG.finditer(rows))
    if not rigs:
        raise InputError("has no line of a rig with its cameras")
    first = next((rig for rig in rigs if int(rig[1]) > 1), rigs[0])
    count, rest = int(first[1]), rows[first.start(3) :].split()
    sensors = [_Sensor(int(first[2]), np.eye(4))]
    while len(sensors) < count and len(rest) >= 3:
        kind, number, has_pose = rest[:3]
        values, rest = (rest[3:10], rest[10:]) if has_pose == "1" else ([], rest[3:])
        if kind not in ("0", "CAMERA"):
            count -= 1
            continue
        if not values:
            raise InputError(f"sensor {number[:9]} has no pose", "take the rig of a reconstruction")
        pose = turned(values[:4], values[4:], f"sensor {number[:9]}")
        sensors.append(_Sensor(int(numbers([number], "sensor")[0]), pose))
    return sensors


def _of_config(tree: Mapping[str, Any], known: Mapping[int | None, Any]) -> list[_Sensor]:
    entries = tree["list"][0]["cameras"]
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InputError("cameras is no list of cameras")
    reference = tree["list"][0].get("ref_camera_id")
    ids = sorted(number for number in known if number is not None)
    sensors = []
    for place, entry in enumerate(entries):
        key = f"cameras[{place}]"
        turn = entry.get("cam_from_rig_rotation", entry.get("rel_qvec"))
        there = entry.get("cam_from_rig_translation", entry.get("rel_tvec"))
        pose: Floats = np.eye(4)
        if turn is not None or there is not None:
            pose = turned(turn, there, key)
        elif not (entry.get("ref_sensor") or entry.get("camera_id", place) == reference):
            raise InputError(f"{key} has no cam_from_rig_rotation, so it is not known where it stands")
        model = entry.get("camera_model_name")
        made = _camera(str(model), entry.get("camera_params"), key) if model else None
        number = entry.get("camera_id", ids[place] if place < len(ids) else None)
        sensors.append(_Sensor(number, pose, made))
    return sensors
