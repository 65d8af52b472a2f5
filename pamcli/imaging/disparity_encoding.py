"""Write disparity, depth and confidence maps, in the formats of `disparity_files`."""

import io
import logging
from pathlib import Path
from typing import NoReturn

import numpy as np

from pamcli.errors import UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import Encoded, check_new_file
from pamcli.files.suffixes import CONFIDENCE_SUFFIXES, DEPTH_SUFFIXES, DISPARITY_SUFFIXES
from pamcli.imaging import raster, tiff
from pamcli.validation import check_arguments

PNG_UNITS_PER_PIXEL, PNG_UNITS_PER_METRE = 256, 1000
_PNG_MAX = 65535
_BEYOND_PIXELS = "255.996 px, the limit of 16 bits, and are stored as the limit: use .pfm, .npy or .tif files"
_BEYOND_METRES = "65.535 m, the limit of 16 bits, and are stored as unknown: use .tif or .npy files"


def encode_disparity(disparity: np.ndarray, suffix: str) -> Encoded:
    """Return the bytes of a file with a disparity map (H, W), float32, px; NaN or inf = unknown."""
    suffix = suffix.lower()
    if suffix == ".png":
        if np.any(disparity[np.isfinite(disparity)] < 0):
            raise UsageError("a disparity PNG cannot hold negative disparities", "use .pfm, .npy or .tif")
        return _encode_levels(*to_levels(disparity, PNG_UNITS_PER_PIXEL, keep_far=True), _BEYOND_PIXELS)
    unknown = np.inf if suffix == ".pfm" else np.nan
    values = np.where(np.isfinite(disparity), disparity, np.float32(unknown))
    return _encode_floats(values, suffix, DISPARITY_SUFFIXES, "disparity in pixels")


def quantize_disparity(disparity: np.ndarray, suffix: str) -> np.ndarray:
    """Return what `read_disparity` reads from a file of `encode_disparity`: (H, W) float32, NaN = unknown."""
    if suffix.lower() == ".png":
        return decode_levels(to_levels(disparity, PNG_UNITS_PER_PIXEL, keep_far=True)[0])
    return np.where(np.isfinite(disparity), disparity, np.float32(np.nan)).astype(np.float32)


def encode_depth(depth: np.ndarray, suffix: str) -> Encoded:
    """Return the bytes of a depth file (H, W): float32 metres, NaN = unknown; in PNG mm, 0 = unknown."""
    suffix = suffix.lower()
    if suffix == ".png":
        return _encode_levels(*to_levels(depth, PNG_UNITS_PER_METRE, keep_far=False), _BEYOND_METRES)
    return _encode_floats(depth, suffix, DEPTH_SUFFIXES, "metres")


def encode_confidence(confidence: np.ndarray, suffix: str) -> Encoded:
    """Return the bytes of a file with a confidence map (H, W), float32, 0 to 1; in PNG, 65535 = 1."""
    suffix = suffix.lower()
    if suffix == ".png":
        return _encode_levels(np.rint(np.clip(confidence, 0, 1) * np.float32(65535)).astype(np.uint16))
    return _encode_floats(confidence, suffix, CONFIDENCE_SUFFIXES, "confidence, 0 to 1")


def decode_levels(levels: np.ndarray) -> np.ndarray:
    """Convert 16-bit grey levels (H, W) to disparities, float32, px; 0 becomes NaN (unknown)."""
    units = levels.astype(np.float32)
    return np.where(units > 0, units / PNG_UNITS_PER_PIXEL, np.float32(np.nan))


@check_arguments
def write_disparity(path: str | Path, disparity: np.ndarray, *, overwrite: bool = False) -> None:
    """Write a disparity file atomically, in the format of its suffix; missing folders are created.

    >>> pamcli.write_disparity("disparity.png", result.disparity)

    A PNG holds 16 bits, 256 per pixel, as in KITTI: larger disparities become 255.996 px, with a warning in
    the log "pamcli".

    Args:
        path: File to write.
        disparity: Disparity map (H, W), floating point, px; NaN or inf = unknown.
        overwrite: If True, replace an existing file.

    Raises:
        UsageError: If the suffix is unknown, the file exists, or a disparity is negative in PNG.
        InputError: If the map is not (H, W) or not floating point.
        OutputError: If the file cannot be written.
    """
    path = Path(path)
    raster.check_map(disparity)
    check_new_file(path, overwrite=overwrite)
    file = encode_disparity(disparity, path.suffix)
    for warning in file.warnings:
        logging.getLogger("pamcli").warning("%s: %s", path, warning)
    write_atomically(path, file.data)


def to_levels(values: np.ndarray, units: int, *, keep_far: bool) -> tuple[np.ndarray, int]:
    """Return 16-bit levels (`units` for 1, 0 = unknown) and the number of values too large for them."""
    known = np.isfinite(values)
    with np.errstate(over="ignore"):  # beyond float32 is beyond 16 bits too
        rounded = np.rint(np.where(known, values, 0) * np.float32(units))
    far = rounded > _PNG_MAX
    stored = np.where(known if keep_far else known & ~far, np.clip(rounded, 1, _PNG_MAX), 0)
    return stored.astype(np.uint16), int(np.count_nonzero(far))


def _encode_levels(levels: np.ndarray, count: int = 0, beyond: str = "") -> Encoded:
    """Encode a PNG with a warning on the number of values that are `beyond` its limit."""
    return Encoded(raster.encode_png(levels), [f"{count} pixels exceed {beyond}"] if count else [], count)


def _encode_floats(values: np.ndarray, suffix: str, allowed: tuple[str, ...], unit: str) -> Encoded:
    values = values.astype("<f4")
    if suffix == ".pfm":
        return Encoded(f"Pf\n{values.shape[1]} {len(values)}\n-1.0\n".encode() + values[::-1].tobytes())
    if suffix == ".npy":
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(values), allow_pickle=False)
        return Encoded(buffer.getvalue())
    if suffix in (".tif", ".tiff"):
        return Encoded(tiff.encode_tiff(values, description=f"{unit}; NaN is unknown"))
    reject_suffix(suffix, allowed)


def reject_suffix(suffix: str, allowed: tuple[str, ...], prefix: str = "", hint: str = "") -> NoReturn:
    reason = f"{prefix}{suffix or 'a name without suffix'} is not a supported format"
    raise UsageError(reason, f"{hint}use one of {', '.join(allowed)}")
