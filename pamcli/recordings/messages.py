"""Images and camera_info of ROS messages, and disparity maps as messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.imaging.images import RgbImage, read_image
from pamcli.imaging.raster import check_size

IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
CAMERA_INFO = "sensor_msgs/msg/CameraInfo"

_RGB, _BGR, _GREY = (0, 1, 2), (2, 1, 0), (0, 0, 0)
_PLAIN: Mapping[str, tuple[int, int, tuple[int, int, int]]] = {
    **{"rgb8": (1, 3, _RGB), "rgba8": (1, 4, _RGB), "rgb16": (2, 3, _RGB), "rgba16": (2, 4, _RGB)},
    **{"bgr8": (1, 3, _BGR), "bgra8": (1, 4, _BGR), "bgr16": (2, 3, _BGR), "bgra16": (2, 4, _BGR)},
    **{"mono8": (1, 1, _GREY), "8UC1": (1, 1, _GREY), "8UC3": (1, 3, _BGR), "8UC4": (1, 4, _BGR)},
    **{"mono16": (2, 1, _GREY), "16UC1": (2, 1, _GREY), "16UC3": (2, 3, _BGR)},
}
"""Bytes per channel, channels, and which of them are red, green and blue."""
_CONVERTED: Mapping[str, tuple[int, int, float, str]] = {
    # OpenCV names a Bayer pattern by the second row's second and third pixel, ROS by the first two.
    **{f"bayer_rggb{bits}": (bits // 8, 1, 1, "BayerBG2RGB") for bits in (8, 16)},
    **{f"bayer_bggr{bits}": (bits // 8, 1, 1, "BayerRG2RGB") for bits in (8, 16)},
    **{f"bayer_gbrg{bits}": (bits // 8, 1, 1, "BayerGR2RGB") for bits in (8, 16)},
    **{f"bayer_grbg{bits}": (bits // 8, 1, 1, "BayerGB2RGB") for bits in (8, 16)},
    **dict.fromkeys(("yuv422", "uyvy"), (1, 2, 1, "YUV2RGB_UYVY")),
    **dict.fromkeys(("yuv422_yuy2", "yuyv"), (1, 2, 1, "YUV2RGB_YUYV")),
    **{"nv12": (1, 1, 1.5, "YUV2RGB_NV12"), "nv21": (1, 1, 1.5, "YUV2RGB_NV21")},
}
"""Bytes per sample, samples per pixel of a row, rows per row of the image, and OpenCV's conversion."""


def decode_image(message: Any, name: str, max_pixels: int | None) -> RgbImage:
    """Decode a sensor_msgs Image or CompressedImage.

    Args:
        message: The message, as rosbags deserializes it.
        name: Name of the image in error messages.
        max_pixels: Largest width times height; None = no limit.

    Raises:
        InputError: If the encoding is not supported, or the message is damaged or too large.
    """
    if hasattr(message, "format"):
        return read_image(bytes(message.data), max_pixels=max_pixels, name=name)
    width, height, encoding = int(message.width), int(message.height), str(message.encoding)
    check_size(width, height, name, max_pixels)
    if encoding in _PLAIN:
        size, channels, order = _PLAIN[encoding]
        samples = _decode_rows(message, name, height, size)[:, : width * channels]
        if samples.shape[1] < width * channels:
            raise _make_damage_error(message, name)
        pixels = np.ascontiguousarray(samples.reshape(height, width, channels)[..., list(order)])
        return RgbImage(pixels, grey=channels == 1)
    if encoding not in _CONVERTED:
        known = ", ".join([*_PLAIN, *_CONVERTED])
        raise InputError(f"{name} has the encoding {encoding!r}", f"supported encodings: {known}")
    import cv2

    size, channels, rows, conversion = _CONVERTED[encoding]
    samples = _decode_rows(message, name, round(rows * height), size)[:, : width * channels]
    if samples.shape[1] < width * channels:
        raise _make_damage_error(message, name)
    shape = (len(samples), width, channels) if channels > 1 else samples.shape
    found = cv2.cvtColor(np.ascontiguousarray(samples).reshape(shape), getattr(cv2, f"COLOR_{conversion}"))
    return RgbImage(np.ascontiguousarray(found))


def _decode_rows(message: Any, name: str, rows: int, size: int) -> NDArray[Any]:
    """Return the samples of each row, (rows, N), uint8 or uint16."""
    data, step = np.asarray(message.data, np.uint8), int(message.step)
    if step < 1 or step % size or len(data) < rows * step:
        raise _make_damage_error(message, name)
    samples: NDArray[Any] = data[: rows * step].reshape(rows, step)
    if size == 2:
        samples = samples.view(">u2" if message.is_bigendian else "<u2").astype(np.uint16)
    return samples


def _make_damage_error(message: Any, name: str) -> InputError:
    said = f"{message.width}x{message.height} {message.encoding} with {message.step} bytes per row"
    return InputError(f"{name} is damaged: it has {len(message.data)} bytes, but its header says {said}")


def camera_tree(message: Any) -> dict[str, Any] | None:
    """Return a CameraInfo under the names of ROS calibration files; None if it is not calibrated."""
    values = {name: np.asarray(getattr(message, name, getattr(message, name.lower(), ()))) for name in "KDRP"}
    if not values["K"].any():
        return None
    names = {"K": "camera_matrix", "D": "distortion_coefficients"}
    names |= {"R": "rectification_matrix", "P": "projection_matrix"}
    return {
        **{names[key]: value.tolist() for key, value in values.items()},
        **{"image_width": int(message.width), "image_height": int(message.height)},
        "distortion_model": str(message.distortion_model),
    }
