"""The check of every network in every precision: what is left out, off, or fails."""

from __future__ import annotations

import numpy as np
import pytest

from pamcli.errors import DeviceError
from pamcli.inference import gpu_check
from pamcli.registry.catalog import REGISTERED


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], float]:
    """A GPU, and how far the results of each device and precision are from those of fp32 on the CPU."""
    off: dict[tuple[str, str], float] = {}

    def run(name: str, task: str, device: str, precision: str) -> tuple[np.ndarray, float, int | None]:
        if np.isinf(off.get((device, precision), 0)):
            raise DeviceError("out of memory", "a hint")
        return np.full((2, 2), np.float32(5 + off.get((device, precision), 0))), 0.25, 10**9

    monkeypatch.setattr(gpu_check, "_run", run)
    monkeypatch.setattr(gpu_check, "list_gpus", lambda: ["cuda"])
    monkeypatch.setattr(gpu_check, "cpu_has_bf16", lambda: False)
    return off


def test_what_is_off_and_what_fails(a_gpu: dict[tuple[str, str], float]) -> None:
    a_gpu["cuda", "fp32"] = 0.06  # too much of pixels and of grey levels
    a_gpu["cuda", "bf16"] = np.nan
    a_gpu["cuda", "fp16"] = np.inf
    rows = list(gpu_check.check_networks())
    assert len(rows) == len(REGISTERED) * 2 * 3
    said = {(row.device, row.precision): (row.verdict, row.is_ok) for row in rows}
    assert said["cpu", "bf16"] == ("skipped: this processor emulates it", True)
    assert said["cpu", "fp16"] == ("skipped: it requires a GPU", True)
    assert said["cuda", "fp32"] == said["cuda", "bf16"] == ("WRONG", False)
    assert said["cuda", "fp16"] == ("FAILED: out of memory (a hint)", False)
    assert said["cpu", "fp32"] == ("ok", True)
