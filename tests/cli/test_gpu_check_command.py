"""pam doctor --gpu-check: a table, and the exit code of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from pam_program import pam

from pamcli.inference import gpu_check
from pamcli.inference.gpu_check import Row
from pamcli.registry.catalog import REGISTERED


@pytest.mark.usefixtures("networks")
def test_the_cpu_half_where_there_is_no_gpu(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks run on pieces of the sample pair that are as small as they may be."""
    monkeypatch.setattr(gpu_check, "MATCHED", (slice(100, 132), slice(100, 164)))
    monkeypatch.setattr(gpu_check, "UPSCALED", (slice(200, 208), slice(200, 208)))
    run = pam("doctor", "--gpu-check")
    assert run.code == 0, run.stderr
    assert run.complaints == ["PyTorch finds no GPU, so only the CPU is checked"]
    rows = [line.strip("| ").split(" | ") for line in run.lines if line.startswith("| pas")]
    assert len(rows) == len(REGISTERED) * 3
    assert rows[0][4:6] == ["0 px", "0 px"]
    assert {row[-1] for row in rows if row[2] == "fp32"} == {"ok"}


def test_what_is_wrong_decides_the_exit_code(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        Row("pasmnet2", "cpu", "fp32", "ok", 100.0, 0.0, 0.0, "px"),
        Row("pasmnet2", "cuda", "fp32", "WRONG", 9.6, 0.5, 3.0, "px", 2 * 10**9),
    ]
    monkeypatch.setattr(gpu_check, "check_networks", lambda: iter(made))
    monkeypatch.setattr(gpu_check, "list_gpus", lambda: ["cuda"])
    run = pam("doctor", "--gpu-check")
    assert run.code == 5
    assert run.lines[-1] == "| pasmnet2 | cuda | fp32 | 10 | 0.5 px | 3 px | 2.00 GB | WRONG |"
    assert run.stderr == ""
    (found,) = pam("doctor", "--gpu-check", "--json").records
    assert found["ok"] is False
    assert found["rows"][1]["mean"] == 0.5
