"""Write images, disparity maps, depth maps and point clouds as a recording for the Rerun viewer (.rrd)."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.geometry import Calibration
from pamcli.calibration.point_cloud import COLORS, compute_points
from pamcli.errors import OutputError, import_extra
from pamcli.files.atomic import replace_atomically
from pamcli.files.paths import quote
from pamcli.imaging.images import RgbImage, encode_image, read_image, to_uint8

_MOST_POINTS = 100_000  # of a frame, 1.6 MB
_QUALITY = 90  # of the images, JPEG
_CAMERA = "focal_length", "focal_length_y", "baseline", "offset"


def import_rerun() -> Any:
    """Import Rerun. Raises UsageError if it is not installed."""
    os.environ.setdefault("RUST_LOG", "off")  # it prints errors, which pam reports itself
    return import_extra("rerun")


def encode_frame(
    left: NDArray[Any] | None,
    right: NDArray[Any] | None,
    disparity: NDArray[np.floating[Any]],
    calibration: Calibration | None,
) -> bytes:
    """Return the bytes of an .npz file that `write_recording` reads. left, right: (H, W, 3), or None."""
    parts: dict[str, Any] = {"disparity": disparity.astype(np.float32)}
    for name, view in (("left", left), ("right", right)):
        if view is not None:
            image = encode_image(RgbImage(to_uint8(view)), ".jpg", name=name, quality=_QUALITY)
            parts[name] = np.frombuffer(image, np.uint8)
    if calibration is not None and calibration.baseline:
        fitted = calibration.for_size(*disparity.shape[::-1])
        fitted = replace(fitted, focal_length_y=fitted.vertical_focal_length)
        parts |= {name: getattr(fitted, name) for name in _CAMERA}
        parts["principal"] = fitted.principal or (0.0, 0.0)
    stream = io.BytesIO()
    np.savez(stream, **parts)
    return stream.getvalue()


def write_recording(
    path: Path, frames: Iterable[tuple[int, float | None, Path]], max_depth: float | None, stride: int
) -> None:
    """Write frames as a recording. frames: number, time (s) if known, and file. Raises OutputError."""
    rerun = import_rerun()
    with replace_atomically(path) as temporary:
        stream = rerun.RecordingStream("pam")
        stream.set_log_time_enabled(False)
        stream.set_log_tick_enabled(False)
        stream.save(temporary)
        stream.log("world", rerun.ViewCoordinates.RDF, static=True)
        for number, seconds, place in frames:
            stream.set_time("frame", sequence=number)
            if seconds is not None:
                stream.set_time("time", duration=seconds)
            with np.load(place) as stored:
                _log_frame(rerun, stream, dict(stored), max_depth, stride)
        stream.disconnect()
        try:  # Rerun raises nothing if it cannot write
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                import_extra("rerun.chunk").RrdReader(temporary).recordings()
        except (RuntimeError, Warning):
            raise OutputError(f"cannot write {quote(path)}: the disk may be full") from None


def _log_frame(rerun: Any, stream: Any, stored: dict[str, Any], max_depth: float | None, stride: int) -> None:
    for side in ("left", "right"):
        if side in stored:
            image = rerun.EncodedImage(contents=stored[side].tobytes(), media_type="image/jpeg")
            stream.log(f"world/{side}/image", image)
    disparity = stored["disparity"]
    stream.log("disparity", rerun.Image(disparity))
    if "baseline" not in stored:
        return
    height, width = disparity.shape
    x, y = stored["principal"].tolist()
    known: dict[str, Any] = {name: float(stored[name]) for name in _CAMERA}
    calibration = Calibration(**known, principal=(x, y), size=(width, height))
    for side, shift in (("left", 0.0), ("right", calibration.offset)):
        lengths, middle = (known["focal_length"], known["focal_length_y"]), (x + shift + 0.5, y + 0.5)
        camera = rerun.Pinhole(focal_length=lengths, principal_point=middle, resolution=(width, height))
        stream.log(f"world/{side}", camera)
    stream.log("world/right", rerun.Transform3D(translation=(calibration.baseline, 0, 0)))
    depth = calibration.depth(disparity)
    depth = np.where(depth <= (max_depth or math.inf), depth, np.float32("nan"))
    stream.log("depth", rerun.DepthImage(depth, meter=1.0))
    image = read_image(stored["left"].tobytes(), name="the left image").pixels if "left" in stored else None
    step = max(stride, math.ceil(math.sqrt(height * width / _MOST_POINTS)))
    points = compute_points(disparity, calibration, image=image, max_depth=max_depth, stride=step)
    places, colors = (np.stack([points[key] for key in keys], axis=1) for keys in ("xyz", COLORS))
    stream.log("world/points", rerun.Points3D(places, colors=colors))
