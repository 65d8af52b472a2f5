"""Recognise units, markers of missing values, and implausible values in disparity files of other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.imaging import tiff
from pamcli.imaging.disparity_files import convert_to_pixels, get_default_scale, read_numbers
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS

Disparities = NDArray[np.float32]

UNITS = {
    16: "OpenCV's StereoSGBM",
    32: "CREStereo",
    64: "NeRF-Supervised Stereo",
    100: "InStereo2K",
    128: "128 units per px",
    200: "ApolloScape",
    256: "KITTI",
    1000: "1/1000 px",
}
"""Units per pixel of disparity, and programs or data sets that use them."""
CLOSE = 0.1  # relative error at which a measured factor counts as a known unit
MARKER_SHARE, MARKER_TIMES = 0.005, 5  # lowest value: least share, and frequency relative to the next one
OTHER_UNIT, ENOUGH = 1.8, 64  # factor to the ground truth that shows another unit; pixels needed
LEAST, MOST = 5.0, 1.0  # 98th percentile of plausible disparities: at least px, at most image widths


@dataclass(frozen=True)
class DisparityFile:
    """A disparity map (H, W), float32, px, NaN = unknown."""

    disparity: Disparities
    units: float  # units per pixel in the file
    warnings: list[str]


def read_disparity_file(
    path: Path,
    *,
    scale: float | None = None,
    invalid: float | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> DisparityFile:
    """Read a disparity file of any program, with markers of missing values as unknown.

    Markers are 0, and `invalid` (in the units of the file) or, without it, those of `find_missing_markers`.
    """
    numbers = read_numbers(path, max_pixels)
    if path.suffix.lower() in (".tif", ".tiff") and tiff.is_depth_map(path):
        raise InputError(
            f"{path} is a depth map in metres",
            "pass the disparity map it was made from, or add `invert` to `pam depth`",
        )
    disparity, warnings = convert_to_pixels(numbers, path, scale), []
    if invalid is not None:
        disparity[np.isclose(numbers, invalid, rtol=1e-6, atol=0)] = np.nan
    for marker in find_missing_markers(disparity) if invalid is None else ():
        marked = disparity == np.float32(marker)
        share = 100 * marked.mean()
        warnings.append(f"{share:.2g} % of the pixels are {marker:g} px and are treated as unknown")
        disparity[marked] = np.nan
    units = get_default_scale(numbers.dtype, path) if scale is None else scale
    if scale is None and (doubt := find_unit_problem(disparity, units)):
        warnings.append(doubt)
    return DisparityFile(disparity, units, warnings)


def find_missing_markers(disparity: Disparities) -> list[float]:
    """Return the frequent values (px) that mark missing ones: the lowest, or one above the image width."""
    values, counts = np.unique(disparity[np.isfinite(disparity)], return_counts=True)
    if len(values) < 2:
        return []
    often = counts >= max(MARKER_SHARE * counts.sum(), 2)
    lowest, highest = float(values[0]), float(values[-1])
    # Above 0, the lowest value may be a plane of one disparity, unless all others are fractions.
    rest = values[1:] % 1 != 0
    alone = len(rest) > 16 and counts[0] > MARKER_TIMES * counts[1:].max() and values[1] - values[0] >= 1
    whole = lowest % 1 == 0 and rest.mean() > 0.5
    is_low = counts[0] > MARKER_TIMES * counts[1] if lowest <= 0 else alone and whole
    is_high = highest > MOST * disparity.shape[1] and highest > OTHER_UNIT * abs(values[-2])
    found = ((lowest, often[0] and is_low), (highest, often[-1] and is_high))
    return [marker for marker, is_marker in found if is_marker]


def find_unit_problem(disparity: Disparities, stored: float) -> str | None:
    """Return why `stored` units per pixel are probably wrong and which scale fits, or None if plausible."""
    known = disparity[np.isfinite(disparity)]
    if not known.size:
        return None
    high, width = float(np.quantile(known, 0.98)), disparity.shape[1]
    if high < 0:
        hint = "all disparities are negative; use `scale` -1 to change their sign"
        return hint if known.max() < 0 else None
    if (LEAST if stored != 1 else 1.0) <= high <= MOST * width:
        return None
    units = high * stored
    fitting = [each for each in UNITS if LEAST <= units / each <= min(0.8 * width, 300) and each != stored]
    hint = " or ".join(f"`scale` {each} ({UNITS[each]})" for each in fitting[:2])
    if stored == 1 and high <= 1:
        hint = f"use `scale` {1 / width:.3g} if they are fractions of the width"
    hint = hint or "state the units per px with `scale` N"
    low = float(np.quantile(known, 0.02))
    return f"disparities of {low:.3g} to {high:.3g} px are implausible in an image {width} px wide; {hint}"


def round_to_known_unit(factor: float) -> float:
    """Return the units per pixel for a measured factor."""
    near = min((0.25, 0.5, 1, 2, 4, 8, *UNITS), key=lambda unit: abs(np.log(abs(factor) / unit)))
    close = abs(abs(factor) / near - 1) <= CLOSE
    return float(np.copysign(near if close else float(f"{abs(factor):.3g}"), factor))


def measure_scale_factor(disparity: Disparities, truth: Disparities) -> float | None:
    """Return the constant factor (negative for negative maps) to the ground truth (H, W), px, or None."""
    with np.errstate(invalid="ignore", divide="ignore"):
        both = (truth > 0) & np.isfinite(truth) & np.isfinite(disparity)
        ratios = (disparity[both] / truth[both]).astype(np.float64)
    if ratios.size < ENOUGH:
        return None
    if not ratios.any():
        return 0.0
    middle = float(np.median(ratios))
    constant = np.mean(np.abs(ratios - middle) < 0.2 * abs(middle)) > 0.5
    if np.mean(ratios < 0) > 0.95:
        return middle if constant else -1.0
    return middle if constant and not 1 / OTHER_UNIT < middle < OTHER_UNIT else None
