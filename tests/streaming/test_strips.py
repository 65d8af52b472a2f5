"""Which rows make up a strip, and which rows an enlargement looks at."""

from __future__ import annotations

import pytest
import torch

from pamcli.networks.blocks import upsample
from pamcli.streaming.rolling import coarser, strips


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 10, 11, 40])
def test_strips_cover_every_row_once(rows: int) -> None:
    for height in range(1, 24):
        found = list(strips(height, rows))
        assert [row for first, last in found for row in range(first, last)] == list(range(height))
        assert all(last - first == rows for first, last in found[:-1])


@pytest.mark.parametrize("height", [1, 2, 3, 5, 8])
def test_the_rows_under_an_enlargement_are_enough_and_none_too_many(height: int) -> None:
    whole = torch.rand(1, 1, height, 3, generator=torch.Generator().manual_seed(height))
    enlarged = upsample(whole)
    for first in range(2 * height):
        for last in range(first + 1, 2 * height + 1):
            low, high = coarser(first, last, height)
            part = upsample(whole[:, :, low:high])[:, :, first - 2 * low : last - 2 * low]
            assert torch.allclose(part, enlarged[:, :, first:last], atol=1e-7)
            for row in (low, high - 1):  # the outermost are needed, too
                other = whole.clone()
                other[:, :, row] += 1
                assert (upsample(other) - enlarged)[:, :, first:last].abs().max() > 0.1
