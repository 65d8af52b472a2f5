"""PNGs that are written chunk by chunk: other readers find the same numbers in them."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from pamcli.imaging import raster


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (1, 9, 3), (5, 1, 4), (13, 17, 3)])
def test_images_of_a_pixel_a_row_or_a_column(shape: tuple[int, ...], dtype: type) -> None:
    samples = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    # A part of a larger array: its numbers do not lie side by side.
    spread = np.repeat(samples, 2, axis=1)[:, ::2]
    data = raster.encode_png(spread)
    found = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert found is not None
    if len(shape) == 3:
        found = found[..., [2, 1, 0, 3][: shape[2]]]
    np.testing.assert_array_equal(found, samples)
    assert raster.encode_png(samples) == data


def test_pixels_are_spread_over_chunks_that_the_format_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    whole = raster.encode_png(samples)
    monkeypatch.setattr(raster, "_LARGEST_CHUNK", 700)
    data = raster.encode_png(samples)
    assert (whole.count(b"IDAT"), data.count(b"IDAT")) == (1, 3)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), samples)
    with io.BytesIO(data) as stream:
        np.testing.assert_array_equal(raster.read_png(stream, "a", None).samples, samples)
