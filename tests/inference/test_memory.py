"""What cannot fit is refused before it is tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pamcli.errors import DeviceError
from pamcli.inference import memory
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler

CPU = torch.device("cpu")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 1,000,000 kB available, and no container."""
    (tmp_path / "meminfo").write_text("MemTotal:  4000000 kB\nMemAvailable:  1000000 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    return tmp_path


def test_what_linux_calls_available_is_free(system: Path) -> None:
    assert memory.free_memory(CPU) == 1_024_000_000


def test_a_container_has_no_more_than_its_limit_leaves(system: Path) -> None:
    (system / "memory.max").write_text("500000000\n")
    (system / "memory.current").write_text("400000000\n")
    (system / "memory.stat").write_text("anon 100000000\ninactive_file 250000000\n")
    assert memory.free_memory(CPU) == 350_000_000
    (system / "memory.max").write_text("max\n")
    assert memory.free_memory(CPU) == 1_024_000_000


def test_other_systems_do_not_say(system: Path) -> None:
    (system / "meminfo").unlink()
    assert memory.free_memory(CPU) is None
    with memory.enough_memory(10**18, 20, 30, CPU):
        pass


@pytest.mark.parametrize("network", [StereoMatcher, StereoUpscaler])
def test_a_pair_too_large_is_refused_with_both_figures(
    system: Path, network: type[StereoMatcher] | type[StereoUpscaler], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = network.load(device="cpu")

    def must_not_run(*_: object, **__: object) -> None:
        raise AssertionError("the network was run")

    monkeypatch.setattr(loaded.network, "forward", must_not_run)
    view = np.zeros((1080, 1920, 3), np.uint8)
    with pytest.raises(DeviceError, match=r"1920 x 1080 pixels needs about \d+\.\d GB .*, 1\.0 GB are free"):
        loaded(view, view)


def test_on_a_gpu_what_torch_keeps_is_free_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (3_000, 8_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 5_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 1_000)
    assert memory.free_memory(torch.device("cuda", 0)) == 7_000
