"""How many rows are computed at a time, and the count of memory that says so, held against measurements."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pamcli.errors import DeviceError
from pamcli.inference import PAIRS_AT_ONCE, memory
from pamcli.inference.device import processor_has_int8
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.memory import choose_strip, readable
from pamcli.inference.whole import AliveTensors
from pamcli.registry.architectures import ARCHITECTURES, loaded
from pamcli.registry.catalog import locate
from pamcli.registry.load import build_network
from pamcli.registry.spec import ModelSpec, read_header
from pamcli.streaming.footprint import LIBRARIES, Footprint
from pamcli.streaming.rolling import folded
from pamcli.winograd import make_ready

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
SOME = Footprint(lambda strip: 1000 + 10 * strip, rows=(32, 160, 32))


def choose(free: int | None, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    monkeypatch.setattr(memory, "free_memory", lambda device: free)
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
    def whole(taken: int) -> Footprint:
        return Footprint(lambda strip: taken if strip >= 192 else SOME.peak(strip), rows=(32, 192, 32))

    def chosen(footprint: Footprint, free: int | None) -> int:
        monkeypatch.setattr(memory, "free_memory", lambda device: free)
        return choose_strip(footprint, width=60, height=40, pictures=100, device=CPU)

    assert [chosen(whole(1800), free) for free in (None, 2572, 2571)] == [192, 192, 64]
    assert chosen(whole(1100), 1101) == 192, "less than any strip"
    assert [whole(1800).with_results(5).peak(strip) for strip in (32, 192)] == [SOME.peak(32) + 5, 1805]


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
    footprint = Footprint(lambda strip: 300_000_000 + 10_000_000 * strip, rows=(32, 160, 32))
    given = {"width": 60, "height": 40, "pictures": 1_000_000, "device": CPU, "taken": 123_456_789}
    monkeypatch.setattr(memory, "free_memory", lambda device: 10**12)
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


@cache
def streamed(name: str, item: int = 4, *, eight_bits: bool = False) -> Any:
    """A network row by row, in a precision of so many bytes: "passrnet-x4", also "passrnet2-x4,blocks=32".

    Without a variant, that of the shipped weights of the name.
    """
    weights, _, variant = name.partition(",")
    architecture, _, scale = weights.partition("-x")
    if not variant:
        shipped = weights in ARCHITECTURES[architecture].shipped
        variant = read_header(locate(weights)).spec.variant if shipped else "paper"
    spec = ModelSpec(architecture, scale=int(scale) if scale else None, variant=variant)
    torch.manual_seed(0)
    network = folded(build_network(spec))
    how = {"eight_bits": True} if eight_bits else {}
    made = loaded(spec.row.streamed)(network, torch.float32 if item == 4 else torch.bfloat16, **how)
    make_ready(network)
    return made


def counted(name: str, width: int, height: int, item: int = 4) -> Footprint:
    asked = {"both": True} if "-x" in name else {}
    found: Footprint = streamed(name, item).footprint(width, height, **asked)
    return found


@pytest.mark.parametrize(
    ("width", "height", "item", "most"),
    [(1248, 384, 4, 300), (1248, 384, 2, 200), (3840, 2176, 4, 1000), (7680, 4320, 4, 3000)],
)
def test_what_matching_takes_at_large_sizes(width: int, height: int, item: int, most: int) -> None:
    """What it takes in MB above the network: a limit that is missed is a promise that is broken."""
    for name in ("pasmnet", "pasmnet2"):
        footprint = counted(name, width, height, item).with_results(4 * width * height)
        assert footprint.peak(footprint.rows[1]) < most * 10**6


@pytest.mark.parametrize("name", ["passrnet-x4", "passrnet2-x4,blocks=32"])
def test_what_super_resolution_takes_at_large_sizes(name: str) -> None:
    footprint = counted(name, 1920, 1080)
    assert footprint.peak(footprint.rows[1]) < 3 * 10**9


@pytest.mark.parametrize("item", [4, 2])
@pytest.mark.parametrize(
    ("name", "width", "height", "strips"),
    [
        ("pasmnet", 160, 96, (32, 96)),
        ("pasmnet", 320, 64, (32, 64)),
        ("pasmnet2", 160, 128, (32, 128)),
        ("pasmnet2", 64, 1024, (32, 1024)),  # more rows than its coarsest scale looks ahead
        ("passrnet-x4", 64, 48, (16, 48)),
        ("passrnet-x4", 96, 24, (2, 24)),
        ("passrnet-x8", 64, 24, (4, 24)),
        ("passrnet2-x4", 96, 16, (2, 16)),
        ("passrnet2-x4", 160, 16, (8, 16)),
        ("passrnet2-x8", 48, 24, (4, 24)),
        ("passrnet2-x4,blocks=32", 96, 36, (2, 36)),
    ],
)
def test_the_count_of_memory_is_close_to_the_tensors(
    name: str, width: int, height: int, strips: tuple[int, ...], item: int
) -> None:
    footprint = counted(name, width, height, item)
    for strip in strips:
        tensors = footprint.peak(strip) - LIBRARIES
        assert 0.3 * tensors < alive(streamed(name, item), width, height, strip) < tensors


@pytest.mark.skipif(not processor_has_int8(), reason="this processor has no VNNI")
@pytest.mark.parametrize("item", [4, 2])
def test_tensors_of_eight_bits_are_counted_as_those_of_the_layers_beside_them(item: int) -> None:
    footprint, network = counted("pasmnet2", 160, 128, item), streamed("pasmnet2", item, eight_bits=True)
    for strip in (32, 128):
        tensors = footprint.peak(strip) - LIBRARIES
        assert 0.3 * tensors < alive(network, 160, 128, strip) < tensors


def alive(network: Any, width: int, height: int, strip: int) -> int:
    """Most bytes of tensors while a streamed network runs."""
    views = torch.zeros(2, 3, height, width)
    given = {"rows": lambda a, b: views[:, :, a:b], "height": height, "width": width, "strip": strip}
    with torch.inference_mode(), AliveTensors() as counting:
        if hasattr(network, "enlarge"):
            network.enlarge(**given, write=lambda *_: None, both=True)
        else:
            network.match(**given)
    peak: int = counting.peak
    return peak


@pytest.mark.parametrize(
    ("name", "width", "height", "strip"),
    [
        ("pasmnet", 640, 256, 256),
        ("pasmnet", 640, 256, 64),
        ("pasmnet2", 640, 256, 256),
        ("pasmnet2", 640, 256, 64),
        ("passrnet-x4", 160, 64, 64),
        ("passrnet-x4", 160, 64, 16),
        ("passrnet2-x4", 320, 48, 16),
    ],
)
def test_a_run_takes_no_more_than_was_counted(name: str, width: int, height: int, strip: int) -> None:
    """Measured in a process of its own, with everything that allocators and libraries add."""
    script = [sys.executable, str(ROOT / "scripts" / "peak_memory.py"), name, f"{height}x{width}"]
    run = subprocess.run(
        [*script, "--strip", str(strip)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    expected = counted(name, width, height).peak(strip)
    above = json.loads(run.stdout)["above"]
    assert 0.4 * expected < above < expected


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
    peak = counted("pasmnet", 320, 384).with_results(4 * 320 * 384).peak
    assert peak(64) < peak(384)
    monkeypatch.setattr(memory, "free_memory", lambda device: int(peak(64) / 0.7) + 9)
    matcher(*pair, extras=())
    assert used == [384, 64]
