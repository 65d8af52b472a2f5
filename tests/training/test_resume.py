"""A run of the program, killed or stopped at any moment, ends as one that never was: byte for byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STEPS = 6
TINY = ["--data", "procedural", "--crop", "64x32", "--batch", "2", "--steps", str(STEPS)]
TINY += ["--checkpoint-every", "2", "--workers", "0", "--device", "cpu", "--seed", "3"]


@contextmanager
def training(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`pam train disparity` in a process of its own; its log on stdout."""
    command = [sys.executable, "-P", "-m", "pamcli", "train", "disparity", "--json", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, text=True, env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def finish(folder: Path, *arguments: str) -> tuple[int, str, str]:
    with training(folder, *arguments) as process:
        out, err = process.communicate()
        return process.returncode, out, err


def stopped(folder: Path, number: signal.Signals, *arguments: str) -> tuple[int, str]:
    """A run that gets a signal when it has logged a step; its exit code and stderr."""
    with training(folder, *arguments) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert "loss" in json.loads(first), first
        process.send_signal(number)
        _, err = process.communicate()
        return process.returncode, err


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    code, out, err = finish(folder, *TINY, "-o", "run")
    assert code == 0, err
    end = {"step": STEPS, "stopped": None, "weights": os.path.join("run", "last.safetensors")}
    assert json.loads(out.splitlines()[-1]) == end
    return folder / "run"


def test_a_run_killed_in_the_middle_goes_on_bit_for_bit(tmp_path: Path, whole: Path) -> None:
    code, _ = stopped(tmp_path, signal.SIGKILL, *TINY, "-o", "run")
    assert code == -signal.SIGKILL
    assert not (tmp_path / "run" / f"checkpoints/step-{STEPS:08d}.pt").exists()
    code, _, err = finish(tmp_path, "--resume", "run")
    assert code == 0, err
    assert (tmp_path / "run/last.safetensors").read_bytes() == (whole / "last.safetensors").read_bytes()


def test_a_run_stopped_by_hand_says_how_to_go_on_and_does(tmp_path: Path, whole: Path) -> None:
    code, err = stopped(tmp_path, signal.SIGINT, *TINY, "-o", "run")
    assert code == 130
    assert "pam train disparity --resume run" in err
    code, out, err = finish(tmp_path, "--resume", "run", "--max-minutes", "0.00001")
    assert code == 0
    assert json.loads(out.splitlines()[-1])["stopped"] == "time"
    assert "pam train disparity --resume run" in err
    code, _, err = finish(tmp_path, "--resume", "run")
    assert code == 0, err
    assert (tmp_path / "run/last.safetensors").read_bytes() == (whole / "last.safetensors").read_bytes()
    steps = [json.loads(line)["step"] for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))


def test_a_terminated_run_ends_with_143_and_a_checkpoint(tmp_path: Path) -> None:
    code, err = stopped(tmp_path, signal.SIGTERM, *TINY, "-o", "run")
    assert code == 143
    assert "pam train disparity --resume run" in err
    assert list((tmp_path / "run/checkpoints").iterdir())


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_taken(tmp_path: Path, whole: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("recipe.json", "log.jsonl"):
        (run / name).write_bytes((whole / name).read_bytes())
    (run / "checkpoints").mkdir()
    for step in (4, 6):
        name = f"checkpoints/step-{step:08d}.pt"
        (run / name).write_bytes((whole / name).read_bytes()[: None if step == 4 else -1000])
    code, _, err = finish(tmp_path, "--resume", "run")
    assert code == 0, err
    assert "step-00000006.pt is damaged" in err
    assert "goes on after step 4" in err
    assert (run / "last.safetensors").read_bytes() == (whole / "last.safetensors").read_bytes()


def test_a_recorded_recipe_repeats_the_run(tmp_path: Path, whole: Path) -> None:
    code, _, err = finish(tmp_path, "--recipe", str(whole / "recipe.json"), "-o", "again", "--workers", "1")
    assert code == 0, err
    assert (tmp_path / "again/last.safetensors").read_bytes() == (whole / "last.safetensors").read_bytes()
