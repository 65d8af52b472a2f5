"""Coloured points in metres, as a PLY file."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.rectified import Calibration
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import check_new_file
from pamcli.files.units import parse_length

AXES = "metres in the left camera's coordinates: x to the right, y down, z ahead"

COLORS = "red", "green", "blue"
_ROWS_AT_ONCE = 64


def write_point_cloud(
    path: str | Path,
    disparity: NDArray[np.generic],
    calibration: Calibration,
    *,
    picture: NDArray[Any] | None = None,
    max_depth: str | float | None = None,
    stride: int = 1,
    overwrite: bool = False,
) -> int:
    """Write a binary PLY with a vertex, in metres, for every pixel of known depth; return how many there are.

    >>> count = pamcli.write_point_cloud("points.ply", result.disparity, calibration, picture=left)

    disparity: (H, W) pixels, NaN = unknown. picture: (H, W, 3) RGB of the left view, uint8 or uint16 (whose
    upper 8 bits are kept), for the colours; without it points are white. max_depth: length ("20m", metres)
    beyond which there are no points. stride: every how many rows and columns a pixel is taken.
    overwrite: replace a file that exists.
    Raises UsageError: another suffix, a file that exists; InputError: the calibration is for pictures of
    another aspect, or has no baseline; OutputError: it cannot be written.
    """
    path = Path(path)
    check_new_file(path, ".ply", overwrite=overwrite, option="")
    far = None if max_depth is None else parse_length(max_depth, "`max_depth`")
    data, count = encode_point_cloud(disparity, calibration, picture=picture, max_depth=far, stride=stride)
    write_atomically(path, data)
    return count


def encode_point_cloud(
    disparity: NDArray[np.generic],
    calibration: Calibration,
    *,
    picture: NDArray[Any] | None = None,
    max_depth: float | None = None,
    stride: int = 1,
) -> tuple[bytes, int]:
    """The bytes of what `write_point_cloud` writes, by the same arguments, and the number of points.

    Raises InputError: the calibration is for another size, or has no baseline.
    """
    from plyfile import PlyData, PlyElement

    height, width = disparity.shape
    calibration = replace(calibration.for_size(width, height), size=None)  # for a part of the rows at once
    fields = [*((axis, "<f4") for axis in "xyz"), *((color, "u1") for color in COLORS)]
    taken = slice(None, None, stride)
    parts = []
    for first in range(0, height, _ROWS_AT_ONCE * stride):
        rows = slice(first, first + _ROWS_AT_ONCE * stride, stride)
        # A row of the part is `stride` rows of the picture: points are made for all columns, and few rows.
        depth = calibration.depth(disparity[rows, taken])
        known = np.isfinite(depth)
        if max_depth is not None:
            known &= depth <= max_depth
        row, column = np.nonzero(known)
        z = depth[known]
        part = np.empty(len(z), fields)
        x0, y0 = calibration.principal or (0.0, 0.0)
        part["x"] = z * ((column * stride - x0) / calibration.focal_length)
        part["y"] = z * ((row * stride + first - y0) / calibration.vertical_focal_length)
        part["z"] = z
        colors: NDArray[Any] = np.full((len(z), 3), 255, np.uint8)
        if picture is not None:
            colors = picture[rows, taken][known]
            colors = colors >> 8 if colors.dtype == np.uint16 else colors
        for index, name in enumerate(COLORS):
            part[name] = colors[:, index]
        parts.append(part)
    vertices = np.concatenate(parts)
    stream = io.BytesIO()
    PlyData([PlyElement.describe(vertices, "vertex")], byte_order="<", comments=[AXES]).write(stream)
    return stream.getvalue(), len(vertices)
