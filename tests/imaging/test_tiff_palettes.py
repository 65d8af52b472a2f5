"""Colours of a TIFF's palette have 16 bits, but for some writers 8."""

from __future__ import annotations

import numpy as np
import pytest
from image_bytes import tiff_bytes

from pamcli.imaging.images import read_image


@pytest.mark.parametrize("times", [1, 257], ids=["8 bits", "16 bits"])
def test_palettes_of_both_depths(times: int) -> None:
    rng = np.random.default_rng(0)
    indices, colours = rng.integers(0, 256, (3, 4), np.uint8), rng.integers(0, 256, (3, 256), np.uint16)
    data = tiff_bytes(indices, photometric="palette", colormap=colours * times)
    np.testing.assert_array_equal(read_image(data).pixels, colours.T[indices])
