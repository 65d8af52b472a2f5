"""Numbers out of the files of data sets: disparities in their various encodings, masks, calibrations."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.files import read_calibration
from pamcli.calibration.rectified import Calibration
from pamcli.errors import InputError, UsageError
from pamcli.files.finding import check_regular, shown
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_picture
from pamcli.imaging.raster import DEFAULT_MAX_PIXELS, check_size


def read_positive_disparity(path: Path) -> NDArray[np.float32]:
    """A disparity file whose sign differs between releases: all negative is made all positive.

    Returns (H, W), pixels, NaN = unknown. A map of both signs stays as it is, for it is damaged.
    """
    disparity = read_disparity(path)
    known = disparity[np.isfinite(disparity)]
    return -disparity if known.size and known.max() <= 0 else disparity


def read_levels(path: Path) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """(H, W), the numbers of a grey picture of 8 or 16 bits. Raises InputError: a colour picture."""
    picture = read_picture(path)
    if not picture.grey and (np.ptp(picture.pixels, axis=2) > 0).any():
        raise InputError(f"{shown(path)} is a colour picture where grey levels were expected")
    return np.ascontiguousarray(picture.pixels[..., 0])


def read_scaled_disparity(path: Path, levels_per_pixel: float) -> NDArray[np.float32]:
    """A grey picture of disparities: (H, W), pixels; level 0 = unknown = NaN."""
    levels = read_levels(path).astype(np.float32)
    return np.where(levels > 0, levels / np.float32(levels_per_pixel), np.float32(np.nan))


def read_mask(path: Path, white: int = 1) -> NDArray[np.bool_]:
    """(H, W): where a grey picture is at least `white`."""
    return np.asarray(read_levels(path) >= white)


def read_hdf5_disparity(path: Path) -> NDArray[np.float32]:
    """A disparity in HDF5 (.dsp5), the array "disparity": (H, W), pixels, NaN = unknown.

    Raises InputError: damaged, without that array, UsageError: the package h5py is not there.
    """
    try:
        import h5py
    except ImportError:
        said = f"{shown(path)} is HDF5, which the package h5py reads"
        raise UsageError(said, "pip install 'pamcli[hdf5]'") from None
    check_regular(path)
    try:
        with h5py.File(path, "r") as file:
            stored = file["disparity"]
            if len(stored.shape) != 2:
                raise InputError(f"{shown(path)} holds {len(stored.shape)} dimensions, a disparity has 2")
            check_size(stored.shape[1], stored.shape[0], shown(path), DEFAULT_MAX_PIXELS)
            values = np.asarray(stored, np.float32)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise InputError(f"{shown(path)} is damaged, or holds no disparity: {error}") from None
    return np.where(np.isfinite(values), values, np.float32(np.nan))


def disparity_of_depth(depth: NDArray[np.generic], calibration: Calibration) -> NDArray[np.float32]:
    """Depth in metres (NaN = unknown, as is 0) to disparity in pixels."""
    metres = depth.astype(np.float32)
    with np.errstate(divide="ignore"):
        disparity = np.float32(calibration.focal_length * calibration.baseline) / metres
    disparity -= np.float32(calibration.offset)
    return np.where(metres > 0, disparity, np.float32(np.nan))


def read_rectified_calibration(path: Path, cameras: tuple[int, int] | None = None) -> Calibration:
    """What a calibration file says of the rectified pictures; see `read_calibration`.

    Raises InputError naming file and key: a number is missing or not one that a camera can have.
    """
    rectified = read_calibration(path, cameras=cameras).rectified
    if rectified is None:
        raise InputError(f"{shown(path)} says nothing of rectified pictures")
    return rectified
