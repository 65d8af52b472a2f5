"""Write disparity maps as stereo_msgs/DisparityImage into a bag of ROS 1 (`.bag`) or ROS 2 (`.mcap`)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import import_extra
from pamcli.files.atomic import replace_atomically

TOPIC, KIND = "/disparity", "stereo_msgs/msg/DisparityImage"
FRAME = "left_camera"


def write_disparities(
    path: Path, maps: Iterable[tuple[int, NDArray[np.float32]]], focal_length: float, baseline: float
) -> None:
    """Write (time in ns, map) pairs as a bag; unknown pixels are below the minimum. Raises OutputError."""
    is_first, typesys = path.suffix.lower() == ".bag", import_extra("rosbags.typesys")
    store = typesys.get_typestore(typesys.Stores.ROS1_NOETIC if is_first else typesys.Stores.ROS2_HUMBLE)
    with (
        replace_atomically(path) as temporary,
        TemporaryDirectory(dir=temporary.parent, prefix=".pam-") as folder,
    ):
        if is_first:
            writer = import_extra("rosbags.rosbag1").Writer(temporary)
        else:  # a folder, whose file alone is a bag as well
            module = import_extra("rosbags.rosbag2")
            writer = module.Writer(Path(folder, "bag"), version=9, storage_plugin=module.StoragePlugin.MCAP)
        writer.open()
        with closing(writer):
            connection = writer.add_connection(TOPIC, KIND, typestore=store)
            for time, disparity in maps:
                message = _make_message(store.types, is_first, time, disparity, focal_length, baseline)
                data = (store.serialize_ros1 if is_first else store.serialize_cdr)(message, KIND)
                writer.write(connection, time, data)
        if not is_first:
            next(Path(folder, "bag").glob("*.mcap")).rename(temporary)


def _make_message(
    types: Any,
    is_first: bool,
    time: int,
    disparity: NDArray[np.float32],
    focal_length: float,
    baseline: float,
) -> Any:
    known = np.isfinite(disparity)
    least, largest = (disparity[known].min(), disparity[known].max()) if known.any() else (0.0, 0.0)
    samples = np.where(known, disparity, np.float32(least) - 1).astype("<f4")
    height, width = disparity.shape
    stamp = types["builtin_interfaces/msg/Time"](time // 10**9, time % 10**9)
    order = {"seq": 0} if is_first else {}
    header = types["std_msgs/msg/Header"](stamp=stamp, frame_id=FRAME, **order)
    pixels = samples.view(np.uint8).ravel()
    image = types["sensor_msgs/msg/Image"](header, height, width, "32FC1", 0, 4 * width, pixels)
    window = types["sensor_msgs/msg/RegionOfInterest"](0, 0, height, width, False)
    return types[KIND](
        header, image, focal_length, baseline, window, float(least), float(largest), delta_d=1 / 16
    )
