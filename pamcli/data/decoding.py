"""Numbers out of the files of data sets: disparities in their various encodings, masks, calibrations."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.sample import Calibration
from pamcli.errors import InputError
from pamcli.files.finding import read_text, shown
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_picture


def read_positive_disparity(path: Path) -> NDArray[np.float32]:
    """A disparity file whose sign differs between releases: all negative is made all positive.

    Returns (H, W), pixels, NaN = unknown. A map of both signs stays as it is, for it is damaged.
    """
    disparity: NDArray[np.float32] = read_disparity(path)
    known = disparity[np.isfinite(disparity)]
    return -disparity if known.size and known.max() <= 0 else disparity


def read_levels(path: Path) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """(H, W), the numbers of a grey picture of 8 or 16 bits. Raises InputError: a colour picture."""
    picture = read_picture(path)
    if not picture.grey and (np.ptp(picture.pixels, axis=2) > 0).any():
        raise InputError(f"{shown(path)} is a colour picture where grey levels were expected")
    levels: NDArray[np.uint8] | NDArray[np.uint16] = np.ascontiguousarray(picture.pixels[..., 0])
    return levels


def read_scaled_disparity(path: Path, levels_per_pixel: float) -> NDArray[np.float32]:
    """A grey picture of disparities: (H, W), pixels; level 0 = unknown = NaN."""
    levels = read_levels(path).astype(np.float32)
    return np.where(levels > 0, levels / np.float32(levels_per_pixel), np.float32(np.nan))


def read_mask(path: Path, white: int = 1) -> NDArray[np.bool_]:
    """(H, W): where a grey picture is at least `white`."""
    mask: NDArray[np.bool_] = read_levels(path) >= white
    return mask


def disparity_of_depth(depth: NDArray[np.generic], calibration: Calibration) -> NDArray[np.float32]:
    """Depth in metres (NaN = unknown, as is 0) to disparity in pixels."""
    metres = depth.astype(np.float32)
    with np.errstate(divide="ignore"):
        disparity = np.float32(calibration.focal_length * calibration.baseline) / metres
    disparity -= np.float32(calibration.offset)
    return np.where(metres > 0, disparity, np.float32(np.nan))


_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def _fields(path: Path, separator: str) -> dict[str, list[float]]:
    """Lines "name<separator>numbers" by their names."""
    found = {}
    for line in read_text(path).splitlines():
        name, mark, numbers = line.partition(separator)
        if mark:
            found[name.strip()] = [float(number) for number in _NUMBER.findall(numbers)]
    return found


def read_middlebury_calibration(path: Path) -> Calibration:
    """calib.txt of Middlebury 2014 and later: cam0=[f 0 cx; 0 f cy; 0 0 1], doffs, baseline in mm, ndisp.

    Raises InputError: a field is missing or not positive.
    """
    fields = _fields(path, "=")
    focal_length, baseline = ((fields.get(name) or [math.nan])[0] for name in ("cam0", "baseline"))
    if not (focal_length > 0 and baseline > 0):
        raise InputError(f"{shown(path)} lacks cam0 or baseline")
    offset, bound = fields.get("doffs") or [0.0], fields.get("ndisp") or [0.0]
    return Calibration(focal_length, baseline / 1000, offset[0], bound[0] if bound[0] > 0 else None)


def read_kitti_calibration(path: Path, left: str, right: str) -> Calibration:
    """KITTI's "P2: 12 numbers" or "P_rect_02: 12 numbers": projections of the rectified cameras.

    left, right: the names of the two cameras' lines. Raises InputError: one is missing or malformed.
    """
    fields = _fields(path, ":")
    projections = fields.get(left, []), fields.get(right, [])
    if any(len(projection) != 12 or projection[0] <= 0 for projection in projections):
        raise InputError(f"{shown(path)} lacks {left} or {right}, each of 12 numbers")
    focal_length = projections[0][0]
    # P = K [I | t], so the fourth number of a row is f * t_x: minus f times the camera's place on the line.
    baseline = (projections[0][3] - projections[1][3]) / focal_length
    return Calibration(focal_length, baseline)
