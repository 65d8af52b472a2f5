"""Tests that work which cannot fit into memory fails before it starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from pamcli import limits
from pamcli.errors import DeviceError
from pamcli.inference import device
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler

CPU = torch.device("cpu")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 1,000,000 kB available, and no container."""
    (tmp_path / "meminfo").write_text("MemTotal:  4000000 kB\nMemAvailable:  1000000 kB\n")
    (tmp_path / "own_cgroup").write_text("0::/\n")
    monkeypatch.setattr(limits, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(limits, "OWN_CGROUP", tmp_path / "own_cgroup")
    monkeypatch.setattr(limits, "CGROUP", tmp_path)
    return tmp_path


V2 = ("memory.max", "memory.current", "anon 100000000\ninactive_file {}")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "inactive_file 7\ntotal_inactive_file {}")
OLD = "9:name=systemd:/\n4:memory:/slice/job\n2:cpu,cpuacct:/other\n0::/\n"


@pytest.mark.parametrize(
    ("own", "kind", "groups", "free"),
    [
        ("0::/\n", V2, {}, 1_024_000_000),
        ("0::/\n", V2, {".": (500, 400, 250)}, 350_000_000),
        ("0::/\n", V2, {".": ("max", 400, 0)}, 1_024_000_000),
        ("0::/\n", V2, {".": (300, 400, 0)}, 0),
        # The tightest group around the program counts.
        ("0::/slice/job\n", V2, {"slice/job": ("max", 100, 0), "slice": (600, 200, 0)}, 400_000_000),
        ("0::/slice/job\n", V2, {"slice/job": (250, 100, 0), "slice": (600, 200, 0)}, 150_000_000),
        (OLD, V1, {"memory": (10**12, 5000, 0), "memory/slice/job": (800, 700, 50)}, 150_000_000),
        (OLD, V1, {"memory/slice/job": (800, 700, 50), "memory/slice": (400, 300, 0)}, 100_000_000),
        # Inside of a container only its root may be visible.
        ("4:memory:/docker/0123abcd\n", V1, {"memory": (500, 100, 0)}, 400_000_000),
    ],
)
def test_free_memory_is_that_of_the_container(
    system: Path,
    own: str,
    kind: tuple[str, str, str],
    groups: dict[str, tuple[int | str, int, int]],
    free: int,
) -> None:
    """Limit, use and file cache of each group in MB."""
    (system / "own_cgroup").write_text(own)
    for name, (most, used, files) in groups.items():
        (group := system / name).mkdir(parents=True, exist_ok=True)
        (group / kind[0]).write_text(f"{most if most == 'max' else f'{most}000000'}\n")
        (group / kind[1]).write_text(f"{used}000000\n")
        (group / "memory.stat").write_text(kind[2].format(f"{files}000000") + "\n")
    assert device.get_free_memory(CPU) == free


def test_a_container_has_no_more_cores_than_its_limit(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "count_cores", lambda: 8)
    assert limits.usable_cores() == 8
    for text, cores in (("250000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", 8)):
        (system / "cpu.max").write_text(text)
        assert limits.usable_cores() == cores
    (system / "own_cgroup").write_text("2:cpu,cpuacct:/docker/0123abcd\n")
    (system / "cpu").mkdir()
    (system / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    for quota, cores in ((-1, 8), (300_000, 3)):
        (system / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        assert limits.usable_cores() == cores


def test_other_systems_do_not_say(system: Path) -> None:
    (system / "meminfo").unlink()
    assert device.get_free_memory(CPU) is None


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(partial(StereoMatcher.load, match_size=1), id="StereoMatcher"),
        pytest.param(StereoUpscaler.load, id="StereoUpscaler"),
    ],
)
def test_a_pair_too_large_is_refused_with_both_figures(
    system: Path, load: Callable[..., StereoMatcher | StereoUpscaler], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(device="cpu")

    def must_not_run(*_: object, **__: object) -> None:
        raise AssertionError("the network was run")

    monkeypatch.setattr(
        loaded.model, "match" if isinstance(loaded, StereoMatcher) else "upscale", must_not_run
    )
    view = np.broadcast_to(np.uint8(0), (6000, 8000, 3))
    with pytest.raises(DeviceError, match=r"8000x6000 needs .*GB of memory, only 1\.0\dGB"):
        loaded(view, view)


@pytest.mark.parametrize("network", [StereoMatcher, StereoUpscaler])
def test_a_limit_below_what_is_needed_is_refused_with_what_would_do(
    network: type[StereoMatcher] | type[StereoUpscaler],
) -> None:
    loaded = network.load(device="cpu", max_memory=10_000_000)
    view = np.zeros((64, 64, 3), np.uint8)
    with pytest.raises(DeviceError, match=r"does not fit into `max_memory` 10MB .*at least .*B"):
        loaded(view, view)


def test_on_a_gpu_what_torch_keeps_is_free_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (3_000, 8_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 5_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 1_000)
    assert device.get_free_memory(torch.device("cuda", 0)) == 7_000
