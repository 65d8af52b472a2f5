"""Load the shipped sample pair with ground truth, on which descriptions of networks are tried."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import pamcli
from pamcli.errors import InputError
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image


class SamplePair(NamedTuple):
    """Two images (500, 741, 3) uint8, and the left disparity, px, inf where unknown."""

    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    truth: NDArray[np.float32]


@cache
def sample_pair() -> SamplePair:
    """Load the pair from the installed package or the checkout; raise InputError if it is missing."""
    package = Path(pamcli.__file__).parent
    folder = package / "sample"
    if not folder.is_dir():
        folder = package.parent / "scripts" / "sample"
    try:
        left, right = (
            read_image(folder / f"{side}.png").pixels.astype(np.uint8) for side in ("left", "right")
        )
        return SamplePair(left, right, read_disparity(folder / "disparity.pfm"))
    except InputError as error:
        raise InputError(f"the sample pair of pam is missing or damaged: {error}", "reinstall pam") from error
