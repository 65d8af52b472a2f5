"""COLMAP's cameras.txt with rigs.txt or rig_config.json: which cameras, and where they stand in the rig."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera
from pamcli.calibration.described import (
    Described,
    camera_of,
    inverse,
    pinhole_matrix,
    placed_pair,
    turned,
)
from pamcli.calibration.parsing import Source, numbers, size_of, whole_number
from pamcli.calibration.rectified import Floats
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
_CAMERA = re.compile(r"(\d+)[ \t]+([A-Z_]+)[ \t]+(\d+)[ \t]+(\d+)[ \t]+([-+.\deE \t]+)")
_RIG = re.compile(r"\d+[ \t]+(\d+)[ \t]+(?:0|CAMERA)[ \t]+(\d+)\b(.*)")


@dataclass(frozen=True)
class _Sensor:
    number: int | None
    """The number of its camera in cameras.txt."""
    from_rig: Floats
    """(4, 4): from the rig's coordinates to the camera's."""
    camera: Camera | None = None
    """Where it is not in cameras.txt."""


def _rows(text: str) -> list[str]:
    """Return the lines that are neither empty nor comments."""
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _is_cameras(text: str) -> bool:
    rows = _rows(text)
    found = _CAMERA.fullmatch(rows[0]) if rows else None
    return bool(found and ("MODEL, WIDTH, HEIGHT" in text or found[2] in _MODELS))


def _is_rigs(text: str) -> bool:
    return "REF_SENSOR_ID" in text


def _config(source: Source) -> Sequence[Any] | None:
    """Return the rigs of a rig_config.json; None: there is none."""
    rigs = source.tree.get("list")
    known = isinstance(rigs, Sequence) and isinstance(rigs[0], Mapping) and "cameras" in rigs[0]
    return rigs if known else None


def has_colmap(source: Source) -> bool:
    return any(_is_cameras(text) or _is_rigs(text) for text in source.texts) or _config(source) is not None


def read_colmap(source: Source) -> Described:
    """Read cameras.txt with rigs.txt or rig_config.json.

    Lengths are in the unit of the reconstruction, which is metres only where the rig was given so.
    """
    known = {
        number: camera
        for text in source.texts
        if _is_cameras(text)
        for number, camera in _cameras(text).items()
    }
    rigs, config = next(filter(_is_rigs, source.texts), None), _config(source)
    if rigs is None and config is None:
        raise InputError(
            "tells what the cameras are, not where they stand", "give rigs.txt or rig_config.json, too"
        )
    sensors = _of_text(rigs) if rigs is not None else _of_config(config or (), known)
    if len(sensors) < 2:
        raise InputError("the rig has one camera", "`colmap rig_configurator` makes a rig of the images")
    pair = source.pair or (0, 1)
    if max(pair) >= len(sensors):
        raise InputError(f"the rig has {len(sensors)} cameras", "`cameras` counts them from 0")
    placed = []
    for sensor in (sensors[index] for index in pair):
        if sensor.camera is None and sensor.number not in known:
            raise InputError(
                f"tells where camera {sensor.number} stands, not what it is", "give cameras.txt, too"
            )
        camera, size = (sensor.camera, None) if sensor.camera is not None else known[sensor.number or 0]
        placed.append((camera, inverse(sensor.from_rig), size))
    notes = [f"cameras {pair[0]} and {pair[1]} of {len(sensors)}"] if len(sensors) > 2 else []
    return Described("COLMAP", [placed_pair(placed)], metres=None, notes=notes)


def _cameras(text: str) -> dict[int, tuple[Camera, tuple[int, int]]]:
    found: dict[int, tuple[Camera, tuple[int, int]]] = {}
    for row in filter(None, map(_CAMERA.fullmatch, _rows(text))):
        number, model, width, height, values = row.groups()
        key = f"camera {number[:9]}"
        camera = _camera(model, values.split(), key)
        found[whole_number(number, "CAMERA_ID")] = camera, size_of([width, height], key)
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
    rows = _rows(text)
    rigs = [(index, found) for index, row in enumerate(rows) if (found := _RIG.fullmatch(row))]
    if not rigs:
        raise InputError("has no line of a rig with its cameras")
    counts = [whole_number(found[1], "NUM_SENSORS, the number of sensors,") for _, found in rigs]
    chosen = next((at for at, count in enumerate(counts) if count > 1), 0)
    (index, first), count = rigs[chosen], counts[chosen]
    rest = " ".join([first[3], *rows[index + 1 :]]).split()
    sensors = [_Sensor(whole_number(first[2], "REF_SENSOR_ID"), np.eye(4))]
    while len(sensors) < count and len(rest) >= 3:
        kind, number, has_pose = rest[:3]
        values, rest = (rest[3:10], rest[10:]) if has_pose == "1" else ([], rest[3:])
        if kind not in ("0", "CAMERA"):
            count -= 1
            continue
        if not values:
            raise InputError(f"sensor {number[:9]} has no pose", "take the rig of a reconstruction")
        pose = turned(values[:4], values[4:], f"sensor {number[:9]}")
        sensors.append(_Sensor(whole_number(number, "SENSOR_ID"), pose))
    return sensors


def _of_config(rigs: Sequence[Any], known: Mapping[int, Any]) -> list[_Sensor]:
    entries = rigs[0]["cameras"]
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InputError("cameras is no list of cameras")
    reference = str(rigs[0].get("ref_camera_id"))
    ids = sorted(known)
    sensors = []
    for place, entry in enumerate(entries):
        key = f"cameras[{place}]"
        turn = entry.get("cam_from_rig_rotation", entry.get("rel_qvec"))
        there = entry.get("cam_from_rig_translation", entry.get("rel_tvec"))
        pose: Floats = np.eye(4)
        if turn is not None or there is not None:
            pose = turned(turn, there, key)
        elif not (entry.get("ref_sensor") or str(entry.get("camera_id", place)) == reference):
            raise InputError(f"{key} has no cam_from_rig_rotation, so it is not known where it stands")
        model = entry.get("camera_model_name")
        made = _camera(str(model), entry.get("camera_params"), key) if model else None
        number = ids[place] if place < len(ids) else None
        if "camera_id" in entry:
            number = whole_number(entry["camera_id"], f"{key}.camera_id")
        sensors.append(_Sensor(number, pose, made))
    return sensors
