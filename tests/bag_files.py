"""ROS bags as tests write them: two cameras, their camera_info, of ROS 1 and ROS 2."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

STEP = 100_000_000
"""Nanoseconds from one image to the next."""
BEGIN = 1_700_000_000_000_000_000


def write_bag(
    path: Path,
    messages: Mapping[str, Sequence[Any]],
    *,
    stamps: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Write messages of topics, one every `STEP`: ROS 1 if the path ends in `.bag`, else ROS 2.

    messages: `picture`s or `camera_info`s of each topic. stamps: times of a topic's headers, ns after
    `BEGIN`.
    """
    is_first = path.suffix == ".bag"
    typesys = importlib.import_module("rosbags.typesys")
    stores = typesys.Stores
    store = typesys.get_typestore(stores.ROS1_NOETIC if is_first else stores.ROS2_HUMBLE)
    if is_first:
        writer = importlib.import_module("rosbags.rosbag1").Writer(path)
    else:
        module = importlib.import_module("rosbags.rosbag2")
        plugin = module.StoragePlugin.MCAP if path.suffix == ".mcap" else module.StoragePlugin.SQLITE3
        folder = path.with_suffix("" if path.suffix == ".db3" else ".folder")
        writer = module.Writer(folder, version=9, storage_plugin=plugin)
    made = []
    for topic, given in messages.items():
        times = (stamps or {}).get(topic, [number * STEP for number in range(len(given))])
        for (kind, fields), time in zip(given, times, strict=True):
            made.append((BEGIN + time, topic, kind, fields))
    writer.open()
    with closing(writer):
        connections = {
            topic: writer.add_connection(topic, kind, typestore=store)
            for topic, kind in {each[1]: each[2] for each in made}.items()
        }
        for time, topic, kind, fields in sorted(made, key=lambda each: each[0]):
            types = store.types
            header = {
                "stamp": types["builtin_interfaces/msg/Time"](time // 10**9, time % 10**9),
                "frame_id": "cam",
            }
            header |= {"seq": 0} if is_first else {}
            fields = {"header": types["std_msgs/msg/Header"](**header), **fields}
            if kind == "sensor_msgs/msg/CameraInfo":
                window = dict.fromkeys(("x_offset", "y_offset", "height", "width"), 0) | {"do_rectify": False}
                window |= fields.get("roi", {})
                fields |= {"roi": types["sensor_msgs/msg/RegionOfInterest"](**window)}
                fields = {key if is_first else key.lower(): value for key, value in fields.items()}
            data = (store.serialize_ros1 if is_first else store.serialize_cdr)(types[kind](**fields), kind)
            writer.write(connections[topic], time, data)
    if not is_first and path.suffix == ".mcap":
        next(folder.glob("*.mcap")).rename(path)
        shutil.rmtree(folder)


def picture(pixels: np.ndarray, encoding: str = "rgb8", padding: int = 0) -> tuple[str, dict[str, Any]]:
    """Make a sensor_msgs/Image of samples (H, W, ...) as they are stored. padding: bytes behind each row."""
    rows = np.ascontiguousarray(pixels).reshape(len(pixels), -1).view(np.uint8)
    rows = np.pad(rows, ((0, 0), (0, padding)))
    fields = {"height": len(pixels), "width": pixels.shape[1], "encoding": encoding, "is_bigendian": 0}
    return "sensor_msgs/msg/Image", {**fields, "step": rows.shape[1], "data": rows.ravel()}


def compressed(data: bytes, kind: str) -> tuple[str, dict[str, Any]]:
    """Make a sensor_msgs/CompressedImage of the bytes of an image file."""
    return "sensor_msgs/msg/CompressedImage", {"format": kind, "data": np.frombuffer(data, np.uint8)}


def camera_info(
    size: tuple[int, int],
    matrix: np.ndarray,
    projection: np.ndarray,
    distortion: Sequence[float] = (0.0,) * 5,
    rotation: np.ndarray | None = None,
) -> tuple[str, dict[str, Any]]:
    """Make a sensor_msgs/CameraInfo. size: width, height."""
    values = {"K": matrix, "D": distortion, "R": np.eye(3) if rotation is None else rotation, "P": projection}
    arrays = {name: np.asarray(value, np.float64).ravel() for name, value in values.items()}
    fields = {"width": size[0], "height": size[1], "distortion_model": "plumb_bob"}
    return "sensor_msgs/msg/CameraInfo", {**fields, **arrays, "binning_x": 0, "binning_y": 0}


def ideal_infos(size: tuple[int, int], focal: float, baseline: float) -> list[tuple[str, dict[str, Any]]]:
    """Make the camera_info of both cameras of a rectified pair. baseline: metres."""
    width, height = size
    matrix = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1]])
    left, right = (np.column_stack([matrix, [-focal * move, 0, 0]]) for move in (0, baseline))
    return [camera_info(size, matrix, each) for each in (left, right)]
