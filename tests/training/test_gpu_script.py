"""Tests of the script for a GPU machine, run on the CPU: one call, resumption, another machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from warm_python import WarmPython

ROOT = Path(__file__).parents[2]
SMALL = ["--crop", "64x32", "--batch", "1", "--workers", "0", "--set", "log_every=1"]
SMALL += ["--precision", "fp32", "--device", "cpu"]
SMALL_SIZES = ["--set", 'scenes.sizes=["96x32"]', "--set", 'sizes=[{"crop": "96x32", "shares": [0.5]}]']


@pytest.fixture
def machine(tmp_path: Path, warm_python: WarmPython) -> Path:
    """A checkout, its Python, and a folder of textures beside it."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("pamcli", "weights"):
        (checkout / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "scripts" / "training", checkout / "scripts" / "training")
    shutil.copy(warm_python.executable, checkout / "python")
    rng = np.random.default_rng(0)
    for name, channels in (("a/photo.png", 3), ("cut.png", 4)):
        (tmp_path / "textures" / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (200, 300, channels), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "textures" / name)
    return checkout


def call(machine: Path, *arguments: str) -> None:
    environment = {**os.environ, "PYTHON": str(machine / "python"), "OUT": str(machine / "back")}
    command = [machine / "scripts/training/gpu.sh", *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr


def trained_with(machine: Path, *arguments: str) -> str:
    """What a call would give to `pam train`: the words, in one line."""
    python, words = machine / "python", machine / "words"
    real = python.read_text()
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] || exec {sys.executable} "$@"\necho "$*" >{words}\n')
    call(machine, *arguments)
    python.write_text(real)
    return words.read_text()


def pack_textures(machine: Path) -> None:
    command = [sys.executable, ROOT / "scripts/training/pack_textures.py", machine.parent / "textures"]
    subprocess.run([*command, machine / "gpu/textures.zip", "10"], capture_output=True, check=True)


def steps(log: Path) -> list[int]:
    return [json.loads(line)["step"] for line in log.read_text().splitlines()]


def test_calls_go_on_from_each_other(machine: Path) -> None:
    pack_textures(machine)
    call(machine, "10", *SMALL, *SMALL_SIZES, "--steps", "2")
    back = machine / "back"
    assert steps(back / "log.jsonl") == [1, 2]
    stored = safetensors.torch.load_file(back / "last.safetensors")
    assert stored["s1.upd.out.weight"].dtype == torch.float16
    assert (back / "last.safetensors").stat().st_size < 16 * 2**20
    # The machine is still held: the same run goes on.
    assert "pamcli train disparity --resume runs/gpu-disparity " in trained_with(machine, "1")
    # Another machine: from the weights that came back.
    for expected in ([1, 2], [1, 2, 1, 2]):
        call(machine, "keep", str(back))
        assert steps(machine / "gpu" / "log-disparity.jsonl") == expected
    shutil.rmtree(machine / "runs")
    assert " --from gpu/start-disparity.safetensors " in trained_with(machine, "10")
    start = safetensors.torch.load_file(machine / "gpu/start-disparity.safetensors")
    assert torch.equal(start["s1.upd.out.weight"], stored["s1.upd.out.weight"])


@pytest.mark.parametrize("kind", ["labelled", "rendered"])
def test_pairs_join_the_scenes_where_they_were_packed(machine: Path, kind: str) -> None:
    assert kind not in trained_with(machine, "10")
    (machine / "runs" / kind).mkdir(parents=True)
    assert f" --data pairs:runs/{kind}?weight=0.28 " in trained_with(machine, "10")


def test_super_resolution_learns_from_pairs_and_photographs(machine: Path) -> None:
    for view in ("left", "right"):
        shutil.copytree(machine.parent / "textures" / "a", machine.parent / "pairs" / "rooms" / view)
    pack_textures(machine)
    with zipfile.ZipFile(machine / "gpu/pairs.zip", "w") as archive:
        for path in (machine.parent / "pairs").rglob("*.png"):
            archive.write(path, path.relative_to(machine.parent / "pairs"))
    images = ["runs/pairs/rooms=0.5:1", "runs/textures/a=0.3:1,0.9", "runs/pairs/rooms=0.2:stored"]
    small = ["--batch", "4", "--crop", "32x12", "--steps", "2", "--device", "cpu"]
    call(machine, "10", "superres-x2", *images, *small)
    back = machine / "back"
    said = (back / "log.txt").read_text()
    assert "runs/pairs/rooms: 1 images" in said
    assert "runs/textures/a: 2 images" in said
    assert "2 steps, 8 pairs" in said
    first, second = (
        safetensors.torch.load_file(path)["blocks.0.widen.weight"].float()
        for path in (ROOT / "weights/passrnet2-x2.safetensors", back / "last.safetensors")
    )
    assert 1e-6 < (first - second).abs().max() < 1e-2
    call(machine, "keep", str(back), "superres-x2")
    start = machine / "gpu/start-superres-x2.safetensors"
    assert start.read_bytes() == (back / "last.safetensors").read_bytes()
    assert "2 steps" in (machine / "gpu/log-superres-x2.txt").read_text()
