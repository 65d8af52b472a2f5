"""Videos as tests make them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np

RATE = 10
"""Frames a second."""


def write_video(
    path: Path,
    frames: Sequence[np.ndarray],
    codec: str = "ffv1",
    pixels: str = "bgr0",
    stamps: Sequence[int] | None = None,
) -> None:
    """Frames, (H, W, 3) RGB uint8, as a video; by default lossless. stamps: when shown, in 1/RATE s."""
    av = importlib.import_module("av")
    unit = Fraction(1, RATE)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=RATE)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt, stream.codec_context.time_base = pixels, unit
        for number, view in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(view), format="rgb24")
            frame.pts, frame.time_base = number if stamps is None else stamps[number], unit
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def write_ideal_rig() -> None:
    """Write the cameras of 64 x 48 pixels, 0.1 m apart and without distortion, to rig.yaml."""
    rig = cv2.FileStorage("rig.yaml", cv2.FILE_STORAGE_WRITE)
    for number in (1, 2):
        rig.write(f"K{number}", np.array([[60.0, 0, 32], [0, 60, 24], [0, 0, 1]]))
        rig.write(f"D{number}", np.zeros((1, 5)))
    rig.write("R", np.eye(3))
    rig.write("T", np.array([[-0.1], [0], [0]]))
    rig.release()
