"""Maps computed from top to bottom are those computed at once, each row once, and few rows are held."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from random_networks import CountedRows
from torch import Tensor

from pamcli.inference.whole import AliveTensors
from pamcli.networks.blocks import SLOPE, upsample
from pamcli.streaming.rolling import (
    MEMORY_FORMAT,
    Convolution,
    Enlarged,
    Given,
    RollingMap,
    Shuffled,
    Whole,
    added,
    gathered,
    joined,
)

HEIGHTS = [1, 2, 3, 4, 7, 12, 30]
STEPS = [1, 2, 3, 5, 8, 40]


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)  # nothing but rounding differs


def kernel(size: int, outputs: int = 5, inputs: int = 3) -> Tensor:
    return random(outputs, inputs, size, size, seed=size)


BIAS = random(5, seed=9)

Layer = tuple[Callable[[RollingMap], RollingMap], Callable[[Tensor], Tensor]]
LAYERS: dict[str, Layer] = {
    "1x1": (lambda x: Convolution(x, kernel(1), BIAS), lambda x: F.conv2d(x, kernel(1), BIAS)),
    "3x3": (
        lambda x: Convolution(x, kernel(3), BIAS, slope=SLOPE),
        lambda x: F.leaky_relu(F.conv2d(x, kernel(3), BIAS, padding=1), SLOPE),
    ),
    "dilated": (
        lambda x: Convolution(x, kernel(3), dilation=4),
        lambda x: F.conv2d(x, kernel(3), padding=4, dilation=4),
    ),
    "sum": (
        lambda x: added(Convolution(x, kernel(3, 3)), x, SLOPE),
        lambda x: F.leaky_relu(F.conv2d(x, kernel(3, 3), padding=1) + x, SLOPE),
    ),
    "sum of what is read elsewhere": (
        lambda x: added(x, Convolution(x, kernel(3, 3)), kept=True),
        lambda x: F.conv2d(x, kernel(3, 3), padding=1) + x,
    ),
    "joined": (
        lambda x: joined(x, Convolution(x, kernel(3))),
        lambda x: torch.cat((x, F.conv2d(x, kernel(3), padding=1)), 1),
    ),
    "enlarged": (lambda x: Enlarged(x, SLOPE), lambda x: F.leaky_relu(upsample(x), SLOPE)),
    "shuffled": (
        lambda x: Shuffled(Convolution(x, kernel(1, 8)), 2),
        lambda x: F.pixel_shuffle(F.conv2d(x, kernel(1, 8)), 2),
    ),
    "one after the other": (
        lambda x: Convolution(
            Enlarged(Convolution(Convolution(x, kernel(3)), kernel(3, 5, 5))), kernel(1, 2, 5)
        ),
        lambda x: F.conv2d(
            upsample(F.conv2d(F.conv2d(x, kernel(3), padding=1), kernel(3, 5, 5), padding=1)), kernel(1, 2, 5)
        ),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_map_is_the_same_however_many_rows_are_asked_for_at_a_time(name: str) -> None:
    rolling, plain = LAYERS[name]
    for height in HEIGHTS:
        picture = random(2, 3, height, 6, seed=height)
        expected = plain(picture)
        for step in STEPS:
            rows = CountedRows(picture)
            found = gathered(rolling(Given(rows, height)), step)
            assert found.shape == expected.shape
            assert (found - expected).abs().max() < 1e-5
            assert rows.asked == list(range(height))


@pytest.mark.parametrize("step", STEPS)
def test_half_the_size(step: int) -> None:
    for height in (2, 4, 6, 14, 30):
        picture = random(2, 3, height, 6)
        expected = F.conv2d(F.conv2d(picture, kernel(3), stride=2, padding=1), kernel(3, 2, 5), padding=1)
        half = Convolution(Given(CountedRows(picture), height), kernel(3), stride=2)
        assert half.height == height // 2
        found = gathered(Convolution(half, kernel(3, 2, 5)), step)
        assert (found - expected).abs().max() < 1e-5


def test_a_skip_connection_past_smaller_maps() -> None:
    """Two readers at very different rows: down by 4 and up again, beside the map itself."""
    picture = random(1, 3, 64, 8)
    down = [kernel(3, 3) / 5, random(3, 3, 3, 3, seed=5) / 5]

    def plain(x: Tensor) -> Tensor:
        small = F.conv2d(F.conv2d(x, down[0], stride=2, padding=1), down[1], stride=2, padding=1)
        return x + upsample(upsample(F.conv2d(small, down[0], padding=1)))

    for step in (1, 4, 6, 64):
        source = Given(CountedRows(picture), 64)
        small = Convolution(Convolution(source, down[0], stride=2), down[1], stride=2)
        x = added(Enlarged(Enlarged(Convolution(small, down[0]))), source)
        assert (gathered(x, step) - plain(picture)).abs().max() < 1e-5


def test_few_rows_are_held() -> None:
    maps: list[RollingMap] = [Given(CountedRows(random(1, 3, 500, 4)), 500)]
    for seed in range(6):
        maps.append(Convolution(maps[-1], random(3, 3, 3, 3, seed=seed) / 5))
    reader = maps[-1].reader()
    for row in range(0, 500, 2):
        reader(row, row + 2)
        reader.forget(row + 2)
        for map_ in maps:
            assert sum(held.untyped_storage().nbytes() for held in map_._held) <= 4 * 3 * 4 * 8


def test_rows_are_made_in_units() -> None:
    rows = CountedRows(random(1, 3, 20, 4))
    x = Convolution(Given(rows, 20), kernel(1))
    x.unit = 8
    reader = x.reader()
    reader(0, 1)
    assert rows.asked == list(range(8))
    reader(7, 9)
    assert rows.asked == list(range(16))
    reader(15, 20)
    assert rows.asked == list(range(20))


def test_rows_that_are_forgotten_cannot_be_read() -> None:
    reader = Given(CountedRows(random(1, 3, 20, 4)), 20).reader()
    reader(0, 6)
    reader.forget(4)
    assert reader(4, 7).shape[2] == 3
    with pytest.raises(AssertionError, match="forgotten"):
        reader(3, 7)


def test_a_map_is_gathered_into_the_memory_that_is_given() -> None:
    whole = random(1, 3, 9, 4)
    place = torch.zeros_like(whole)
    assert gathered(Whole(whole), 4, into=place) is place
    assert torch.equal(place, whole)
    assert torch.equal(gathered(Whole(whole), 40, into=torch.zeros_like(whole)), whole)


def test_a_map_that_several_read_is_not_computed_in_pieces() -> None:
    """Whoever needs most of it asks first."""
    rows = random(1, 3, 40, 6)
    asked: list[tuple[int, int]] = []

    def given(first: int, last: int) -> Tensor:
        asked.append((first, last))
        return rows[:, :, first:last]

    x = Given(given, 40)
    wide = Convolution(Convolution(x, kernel(3, 3), dilation=4), kernel(3, 3))
    branches = joined(*(Convolution(x, kernel(3, 1), dilation=d) for d in (1, 8, 2)))
    gathered(added(added(x, branches, kept=True), wide), 10)
    assert asked == [(0, 18), (18, 28), (28, 38), (38, 40)]


def test_room_for_a_whole_map_is_taken_once() -> None:
    """In the memory format that it will have, so that nothing is copied into that."""
    source = Given(lambda first, last: torch.ones(1, 2, last - first, 10), height=60)
    with AliveTensors() as alive:
        whole = gathered(source, 2)
    assert torch.equal(whole, torch.ones(1, 2, 60, 10))
    assert whole.is_contiguous(memory_format=MEMORY_FORMAT)
    row = 2 * 10 * 4  # bytes
    assert 60 * row <= alive.peak < 70 * row
