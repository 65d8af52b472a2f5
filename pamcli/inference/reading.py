"""Files to arrays, for programs that have no use for everything that `imaging` can tell. No torch here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging import disparity_files, images
from pamcli.imaging.images import Picture


def read_picture(path: str | Path) -> Picture:
    """Read a PNG, JPEG, TIFF, WebP, BMP or PPM file, upright.

    `pixels` of the result is what the networks take: (H, W, 3) RGB, uint8 or uint16. Raises InputError.
    """
    return images.read_picture(Path(path))


def read_disparity(path: str | Path) -> NDArray[np.float32]:
    """Read a .pfm, .png (16 bits, 256 a pixel), .npy or .tif disparity: (H, W), pixels, NaN unknown.

    Raises InputError, and UsageError for another suffix.
    """
    return disparity_files.read_disparity(Path(path))
