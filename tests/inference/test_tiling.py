"""Tiles: over all of them each pixel counts once, whatever they share."""

from __future__ import annotations

import numpy as np
import pytest

from pamcli.inference.tiling import tiles


@pytest.mark.parametrize("shared", [(0, 0), (0, 32), (5, 1), (16, 32)])
@pytest.mark.parametrize("middle", [0.5, 0.75])
@pytest.mark.parametrize("side", [(32, 64), (64, 128), (71, 150)])
def test_the_weights_of_tiles_add_up_to_one(
    side: tuple[int, int], shared: tuple[int, int], middle: float
) -> None:
    total = np.zeros(side, np.float32)
    for tile in tiles(*side, (32, 64), shared, middle):
        total[tile.rows, tile.columns] += tile.weights
    np.testing.assert_allclose(total, 1, atol=1e-6)
