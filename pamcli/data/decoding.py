"""Decode the files of data sets: disparity maps in various encodings, masks and calibrations."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.files import read_calibration
from pamcli.calibration.geometry import Calibration
from pamcli.errors import InputError, UsageError
from pamcli.files.paths import check_regular, quote
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS, check_size


def read_positive_disparity(path: Path) -> NDArray[np.float32]:
    """Return a disparity map (H, W) in px, NaN = unknown, negated if all its values are negative.

    The sign differs between releases of some data sets. A map of both signs is damaged and stays as it is.
    """
    disparity = read_disparity(path)
    known = disparity[np.isfinite(disparity)]
    return -disparity if known.size and known.max() <= 0 else disparity


def read_levels(path: Path) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return the levels (H, W) of a grey image of 8 or 16 bits. Raises InputError for a colour image."""
    picture = read_image(path)
    if not picture.grey and (np.ptp(picture.pixels, axis=2) > 0).any():
        raise InputError(f"{quote(path)} is a colour picture where grey levels were expected")
    return np.ascontiguousarray(picture.pixels[..., 0])


def read_scaled_disparity(path: Path, levels_per_pixel: float) -> NDArray[np.float32]:
    """Return the disparity map (H, W), px, of a grey image; level 0 becomes NaN (unknown)."""
    levels = read_levels(path).astype(np.float32)
    return np.where(levels > 0, levels / np.float32(levels_per_pixel), np.float32(np.nan))


def read_mask(path: Path, white: int = 1) -> NDArray[np.bool_]:
    """Return a mask (H, W) of the pixels of a grey image that are at least `white`."""
    return np.asarray(read_levels(path) >= white)


def read_hdf5_disparity(path: Path) -> NDArray[np.float32]:
    """Return the array "disparity" of an HDF5 file (.dsp5): (H, W), px, NaN = unknown.

    Raises:
        InputError: If the file is damaged or has no such array.
        UsageError: If the package h5py is not installed.
    """
    try:
        import h5py
    except ImportError:
        said = f"{quote(path)} is HDF5, which the package h5py reads"
        raise UsageError(said, "pip install 'pamcli[hdf5]'") from None
    check_regular(path)
    try:
        with h5py.File(path, "r") as file:
            stored = file["disparity"]
            if len(stored.shape) != 2:
                raise InputError(f"{quote(path)} holds {len(stored.shape)} dimensions, a disparity has 2")
            check_size(stored.shape[1], stored.shape[0], quote(path), DEFAULT_MAX_PIXELS)
            values = np.asarray(stored, np.float32)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise InputError(f"{quote(path)} is damaged, or holds no disparity: {error}") from None
    return np.where(np.isfinite(values), values, np.float32(np.nan))


def disparity_of_depth(depth: NDArray[np.generic], calibration: Calibration) -> NDArray[np.float32]:
    """Convert depth in metres (0 or NaN = unknown) to disparity in pixels."""
    metres = depth.astype(np.float32)
    with np.errstate(divide="ignore"):
        disparity = np.float32(calibration.focal_length * calibration.baseline) / metres
    disparity -= np.float32(calibration.offset)
    return np.where(metres > 0, disparity, np.float32(np.nan))


def read_rectified_calibration(path: Path, cameras: tuple[int, int] | None = None) -> Calibration:
    """Return the rectified calibration of a file. Raises InputError if a number is missing or impossible."""
    rectified = read_calibration(path, cameras=cameras).rectified
    if rectified is None:
        raise InputError(f"{quote(path)} says nothing of rectified pictures")
    return rectified
