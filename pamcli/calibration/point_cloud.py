"""Coloured point clouds in metres, as PLY, LAS and LAZ files."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.geometry import Calibration, read_map
from pamcli.errors import InputError, UsageError, import_extra
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import check_new_file
from pamcli.files.suffixes import POINT_CLOUD_SUFFIXES
from pamcli.files.units import parse_length

AXES = "metres in camera coordinates: x to the right, y down, z ahead"
COLORS = "red", "green", "blue"
_ROWS_AT_ONCE = 64
_LAS_UNIT = 1e-4  # m, of the whole numbers that a LAS file stores
_LAS_FARTHEST = 2e5  # m, as these numbers have 32 bits


def write_point_cloud(
    path: str | Path,
    disparity: NDArray[np.generic],
    calibration: Calibration,
    *,
    image: NDArray[Any] | None = None,
    max_depth: str | float | None = None,
    stride: int = 1,
    overwrite: bool = False,
) -> int:
    """Write a point in metres for every pixel of known depth; return the number of points.

    >>> count = pamcli.write_point_cloud("points.ply", result.disparity, calibration, image=left)

    Args:
        path: File to write: .ply (binary), .las, or .laz, which is compressed.
        disparity: Disparity map (H, W), px, NaN = unknown.
        calibration: Calibration of images of this aspect ratio.
        image: Left image (H, W, 3) RGB for the colours, uint8 or uint16 (upper 8 bits); None = white.
        max_depth: Largest depth of a point: "20m", or metres.
        stride: Use every n-th row and column.
        overwrite: Replace an existing file.

    Raises:
        UsageError: If an argument is invalid, the file exists, or laspy is missing for .las and .laz.
        InputError: If the disparity map is not (H, W), the calibration has another aspect ratio or no
            baseline, or the image another size.
        OutputError: If the file cannot be written.
    """
    if not isinstance(path, str | Path):
        raise UsageError(f"`path` must be the name of a file, got {type(path).__name__}")
    if not isinstance(calibration, Calibration):
        raise UsageError(f"`calibration` must be a Calibration, got {type(calibration).__name__}")
    path = Path(path)
    check_new_file(path, *POINT_CLOUD_SUFFIXES, overwrite=overwrite, option="")
    far = None if max_depth is None else parse_length(max_depth, "`max_depth`")
    if far is not None and far <= 0:
        raise UsageError(f"`max_depth` must be above 0 m, got {max_depth}")
    if not isinstance(stride, int) or stride < 1:
        raise UsageError(f"`stride` must be a whole number from 1, got {stride}")
    options = {"image": image, "max_depth": far, "stride": stride}
    data, count = encode_point_cloud(disparity, calibration, suffix=path.suffix, **options)
    write_atomically(path, data)
    return count


def encode_point_cloud(
    disparity: NDArray[np.generic], calibration: Calibration, *, suffix: str = ".ply", **options: Any
) -> tuple[bytes, int]:
    """Return the bytes of a file and the number of points; for arguments see `write_point_cloud`."""
    points = compute_points(disparity, calibration, **options)
    if suffix.lower() == ".ply":
        return encode_ply(points), len(points)
    points = points[np.max([np.abs(points[axis]) for axis in "xyz"], axis=0) < _LAS_FARTHEST]
    return _encode_las(points, is_compressed=suffix.lower() == ".laz"), len(points)


def compute_points(
    disparity: NDArray[np.generic],
    calibration: Calibration,
    *,
    image: NDArray[Any] | None = None,
    max_depth: float | None = None,
    stride: int = 1,
) -> NDArray[Any]:
    """Return points (N,) with fields x, y, z (m), red, green, blue; for arguments see `write_point_cloud`."""
    disparity = read_map(disparity, ndim=2)
    height, width = disparity.shape
    image = None if image is None else np.asarray(image)
    if image is not None and (image.shape != (height, width, 3) or image.dtype not in (np.uint8, np.uint16)):
        reason = f"the image must be ({height}, {width}, 3) of uint8 or uint16, as the disparity map is"
        hint = f"resize it to {width}x{height}" if image.shape[:2] != (height, width) else None
        raise InputError(f"{reason} {width}x{height}, got {image.shape} of {image.dtype}", hint)
    calibration = replace(calibration.for_size(width, height), size=None)  # applies to parts of it, too
    fields = [*((axis, "<f4") for axis in "xyz"), *((color, "u1") for color in COLORS)]
    columns = slice(None, None, stride)
    parts = []
    for first in range(0, height, _ROWS_AT_ONCE * stride):
        rows = slice(first, first + _ROWS_AT_ONCE * stride, stride)
        depth = calibration.depth(disparity[rows, columns])
        row, column = known = np.nonzero(depth <= (np.inf if max_depth is None else max_depth))
        z = depth[known]
        part = np.empty(len(z), fields)
        part["x"], part["y"] = calibration.locate(column * stride, row * stride + first, z)
        part["z"] = z
        levels = np.full((len(z), 3), 255) if image is None else image[rows, columns][known]
        for name, level in zip(COLORS, levels.T, strict=True):
            part[name] = level >> 8 if level.dtype == np.uint16 else level
        parts.append(part)
    return np.concatenate(parts)


def encode_ply(points: NDArray[Any]) -> bytes:
    from plyfile import PlyData, PlyElement

    stream = io.BytesIO()
    PlyData([PlyElement.describe(points, "vertex")], byte_order="<", comments=[AXES]).write(stream)
    return stream.getvalue()


def _encode_las(vertices: NDArray[Any], *, is_compressed: bool) -> bytes:
    laspy = import_extra("laspy")
    header = laspy.LasHeader(point_format=2, version="1.2")
    header.scales, header.generating_software = np.full(3, _LAS_UNIT), "pam"
    las = laspy.LasData(header)
    las.x, las.y, las.z = (vertices[axis].astype(np.float64) for axis in "xyz")
    las.red, las.green, las.blue = (vertices[color].astype(np.uint16) * 257 for color in COLORS)
    stream = io.BytesIO()
    las.write(stream, do_compress=is_compressed)
    return stream.getvalue()
