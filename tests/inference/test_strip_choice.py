"""How many rows are computed at a time, and the count of memory that says so, held against measurements."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pamcli.errors import DeviceError
from pamcli.inference import PAIRS_AT_ONCE, strip_choice
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.strip_choice import (
    LIBRARIES,
    Footprint,
    choose_strip,
    matching2_footprint,
    matching_footprint,
    readable,
    upscaling2_footprint,
    upscaling_footprint,
)
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.inference.whole import AliveTensors
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet2 import PASSRnet2
from pamcli.streaming.pasmnet import StreamedPASMnet
from pamcli.streaming.pasmnet2 import StreamedPASMnet2
from pamcli.streaming.passrnet2 import StreamedPASSRnet2
from pamcli.streaming.rolling import folded

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
SOME = Footprint(fixed=1000, per_row=10, rows=(32, 160, 32))


def choose(free: int | None, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    monkeypatch.setattr(strip_choice, "free_memory", lambda device: free)
    return choose_strip(SOME, width=60, height=40, pictures=100, device=CPU, **options)


@pytest.mark.parametrize(
    ("free", "strip"),
    [(None, 160), (10**9, 160), (3715, 160), (3713, 128), (2700, 64), (2000, 32), (1320, 32)],
)
def test_the_most_rows_that_pay_unless_they_take_too_much_of_what_is_free(
    free: int | None, strip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose(free, monkeypatch) == strip


def test_a_picture_is_one_strip_where_that_pays_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    pays = replace(SOME, whole=(192, 1800))
    for free, strip in ((None, 192), (2572, 192), (2571, 64)):
        monkeypatch.setattr(strip_choice, "free_memory", lambda device, free=free: free)
        assert choose_strip(pays, width=60, height=40, pictures=100, device=CPU) == strip
    small = replace(SOME, whole=(192, 1100))
    monkeypatch.setattr(strip_choice, "free_memory", lambda device: 1101)
    assert choose_strip(small, width=60, height=40, pictures=100, device=CPU) == 192, "less than any strip"
    assert pays.with_results(5).peak(192) == 1805
    assert pays.with_results(5).peak(32) == SOME.peak(32) + 5


def test_less_than_the_thinnest_strip_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DeviceError, match="a pair of 60 x 40 pixels needs at least 1MB of memory, 0MB are"
    ) as e:
        choose(1319, monkeypatch)
    assert e.value.exit_code == 5


def test_a_limit_is_for_all_that_the_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, pictures = 50_000, PAIRS_AT_ONCE * 100
    for extra, strip in ((1320, 32), (1639, 32), (1640, 64), (2600, 160), (10**6, 160)):
        limit = taken + pictures + extra
        assert choose(10**9, monkeypatch, max_memory=limit, taken=taken) == strip
    assert choose(1400, monkeypatch, max_memory=10**6) == 32, "what is free counts, too"


def test_the_least_limit_that_would_do_is_named_and_does(monkeypatch: pytest.MonkeyPatch) -> None:
    footprint = Footprint(fixed=300_000_000, per_row=10_000_000, rows=(32, 160, 32))
    given = {"width": 60, "height": 40, "pictures": 1_000_000, "device": CPU, "taken": 123_456_789}
    monkeypatch.setattr(strip_choice, "free_memory", lambda device: 10**12)
    with pytest.raises(DeviceError, match="60 x 40 pixels does not fit into 700MB") as caught:
        choose_strip(footprint, max_memory=700_000_000, **given)  # type: ignore[arg-type]
    assert caught.value.hint == "`max_memory` 747MB is the least that would do"
    assert choose_strip(footprint, max_memory=747_000_000, **given) == 32  # type: ignore[arg-type]
    with pytest.raises(DeviceError):
        choose_strip(footprint, max_memory=746_000_000, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1MB"), (999_000_000, "999MB"), (999_000_001, "1.00GB"), (2_340_000_001, "2.35GB")],
)
def test_sizes_are_rounded_up(count: int, text: str) -> None:
    assert readable(count) == text


@pytest.mark.parametrize(
    ("width", "height", "item", "most"),
    [(1248, 384, 4, 300), (1248, 384, 2, 200), (3840, 2176, 4, 1000), (7680, 4320, 4, 3000)],
)
def test_what_pasmnet_takes_at_large_sizes(width: int, height: int, item: int, most: int) -> None:
    """What it takes in MB above the network: a limit that is missed is a promise that is broken."""
    for counted in (matching_footprint, matching2_footprint):
        footprint = counted(width, height, item)
        assert footprint.peak(footprint.comfortable) < most * 10**6


def test_what_passrnet_takes_at_large_sizes() -> None:
    footprint = upscaling_footprint(1920, 1080, 4, scale=4, views=2)
    assert footprint.peak(footprint.comfortable) < 3 * 10**9


@pytest.mark.parametrize("item", [4, 2])
@pytest.mark.parametrize(("width", "height"), [(320, 192), (640, 96)])
def test_the_count_of_pasmnets_memory_is_close_to_its_tensors(
    matcher: StereoMatcher, width: int, height: int, item: int
) -> None:
    views = torch.zeros(2, 3, height, width)
    network = matcher.streamed
    if item == 2:
        network = StreamedPASMnet(folded(matcher.network).bfloat16())
        views = views.bfloat16()
    for strip in (32, height):
        with torch.inference_mode(), AliveTensors() as alive:
            network.match(lambda a, b: views[:, :, a:b], height, width, strip=strip)
        counted = matching_footprint(width, height, item)
        assert 0.4 * (counted.peak(strip) - LIBRARIES) < alive.peak < counted.peak(strip) - LIBRARIES


@pytest.mark.parametrize("item", [4, 2])
@pytest.mark.parametrize(("width", "height"), [(320, 192), (64, 1024)])
def test_the_count_of_pasmnet2s_memory_is_close_to_its_tensors(width: int, height: int, item: int) -> None:
    """Also where there are more rows than its coarsest scale looks ahead."""
    torch.manual_seed(0)
    network = StreamedPASMnet2(folded(PASMnet2().eval()), torch.float32 if item == 4 else torch.bfloat16)
    views = torch.zeros(2, 3, height, width)
    for strip in (32, height):
        with torch.inference_mode(), AliveTensors() as alive:
            network.match(lambda a, b: views[:, :, a:b], height, width, strip=strip)
        counted = matching2_footprint(width, height, item)
        assert 0.4 * (counted.peak(strip) - LIBRARIES) < alive.peak < counted.peak(strip) - LIBRARIES


@pytest.mark.parametrize("upscaler", ["passrnet-x4"], indirect=True)
@pytest.mark.parametrize(("width", "height"), [(64, 96), (128, 60), (240, 40)])
def test_the_count_of_passrnets_memory_is_close_to_its_tensors(
    upscaler: StereoUpscaler, width: int, height: int
) -> None:
    views = torch.zeros(2, 3, height, width)
    for strip in (2, 32, height):
        with torch.inference_mode(), AliveTensors() as alive:
            upscaler.streamed.enlarge(
                lambda a, b: views[:, :, a:b], height, width, lambda *_: None, both=True, strip=strip
            )
        counted = upscaling_footprint(width, height, 4, scale=4, views=2)
        assert 0.3 * (counted.peak(strip) - LIBRARIES) < alive.peak < counted.peak(strip) - LIBRARIES


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("width", "height"), [(160, 40), (300, 20)])
def test_the_count_of_passrnet_2s_memory_is_close_to_its_tensors(
    width: int, height: int, dtype: torch.dtype
) -> None:
    network = StreamedPASSRnet2(PASSRnet2(4).to(dtype))
    views = torch.zeros(2, 3, height, width)
    for strip in (2, 8, height):
        with torch.inference_mode(), AliveTensors() as alive:
            network.enlarge(
                lambda a, b: views[:, :, a:b], height, width, lambda *_: None, both=True, strip=strip
            )
        counted = upscaling2_footprint(width, height, dtype.itemsize, scale=4, views=2)
        assert 0.2 * (counted.peak(strip) - LIBRARIES) < alive.peak < counted.peak(strip) - LIBRARIES


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pasmnet 256x640", matching_footprint(640, 256, 4).peak(256)),
        ("pasmnet 256x640 --strip 64", matching_footprint(640, 256, 4).peak(64)),
        ("pasmnet2 256x640", matching2_footprint(640, 256, 4).peak(256)),
        ("pasmnet2 256x640 --strip 64", matching2_footprint(640, 256, 4).peak(64)),
        ("passrnet-x4 64x160", upscaling_footprint(160, 64, 4, scale=4, views=2).peak(64)),
        ("passrnet-x4 64x160 --strip 16", upscaling_footprint(160, 64, 4, scale=4, views=2).peak(16)),
    ],
)
def test_a_run_takes_no_more_than_was_counted(command: str, expected: int) -> None:
    """Measured in a process of its own, with everything that allocators and libraries add."""
    script = [sys.executable, str(ROOT / "scripts" / "peak_memory.py"), *command.split()]
    run = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT)
    above = json.loads(run.stdout)["above"]
    assert 0.2 * expected < above < expected


def test_the_networks_run_in_the_strips_that_are_chosen(
    matcher: StereoMatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Little memory, thin strips."""
    used: list[int | None] = []
    run = matcher.streamed.match

    def noted(*arguments: Any, strip: int | None = None, **named: Any) -> Any:
        used.append(strip)
        return run(*arguments, strip=strip, **named)

    monkeypatch.setattr(matcher.streamed, "match", noted)
    pair = (np.zeros((380, 320, 3), np.uint8),) * 2
    matcher(*pair, extras=())
    counted = matching_footprint(320, 384, 4)
    assert counted.peak(64) < counted.peak(384)
    monkeypatch.setattr(strip_choice, "free_memory", lambda device: int(counted.peak(64) / 0.7) + 9)
    matcher(*pair, extras=())
    assert used == [384, 64]
