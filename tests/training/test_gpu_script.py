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

from pamcli.registry.load import load_network, save_network

ROOT = Path(__file__).parents[2]
SMALL = [
    "--crop",
    "64x32",
    "--batch",
    "1",
    "--precision",
    "fp32",
    "--device",
    "cpu",
    "--workers",
    "0",
    "--set",
    "log_every=1",
]
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


def pack(machine: Path, megabytes: float, what: str = "textures") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts/training/pack_textures.py", machine.parent / what]
    return subprocess.run(
        [*command, machine / f"gpu/{what}.zip", str(megabytes)], capture_output=True, text=True
    )


def steps(log: Path) -> list[int]:
    return [json.loads(line)["step"] for line in log.read_text().splitlines()]


def test_calls_go_on_from_each_other(machine: Path) -> None:
    assert pack(machine, 10).returncode == 0
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


def test_labelled_pairs_join_the_scenes_where_they_were_packed(machine: Path) -> None:
    assert "labelled" not in trained_with(machine, "10")
    (machine / "runs/labelled").mkdir(parents=True)
    assert " --data pairs:runs/labelled?weight=0.28 " in trained_with(machine, "10")


def test_super_resolution_learns_from_pairs_and_photographs(machine: Path) -> None:
    for view in ("left", "right"):
        shutil.copytree(machine.parent / "textures" / "a", machine.parent / "pairs" / "rooms" / view)
    assert pack(machine, 10).returncode == 0
    with zipfile.ZipFile(machine / "gpu/pairs.zip", "w") as archive:
        for path in (machine.parent / "pairs").rglob("*.png"):
            archive.write(path, path.relative_to(machine.parent / "pairs"))
    images = ["runs/pairs/rooms=0.7:1", "runs/textures/a=0.3:1,0.9"]
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


def test_mixed_weights_lie_between_both(tmp_path: Path, warm_python: WarmPython) -> None:
    first, second, mixed = (tmp_path / f"{name}.safetensors" for name in ("first", "second", "mixed"))
    torch.manual_seed(0)
    old, spec = load_network(ROOT / "weights/passrnet2-x2.safetensors")
    new = {name: weights + 0.1 * torch.randn_like(weights) for name, weights in old.state_dict().items()}
    save_network(old.state_dict(), spec, first)
    save_network(new, spec, second)
    program = warm_python.command(str(ROOT / "scripts/training/mix_weights.py"))
    script = [*program, first, second, "-o", mixed]
    name, bias = "blocks.3.widen.weight", "blocks.3.widen.bias"
    before = old.state_dict()
    subprocess.run([*script, "--share", "0.3", "--matrices", "0.5", "--largest", "0.25=1"], check=True)
    made = safetensors.torch.load_file(mixed)
    torch.testing.assert_close(made[bias], before[bias].lerp(new[bias], 0.3))
    moved, whole = (torch.linalg.svdvals((each[name] - before[name]).flatten(1)) for each in (made, new))
    expected = (whole * torch.tensor([1.0] * 16 + [0.5] * 48)).sort(descending=True).values
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4)


def test_textures_are_packed_into_a_given_size(machine: Path) -> None:
    original = sum(path.stat().st_size for path in (machine.parent / "textures").rglob("*.png"))
    packed = pack(machine, original / 2e6)
    assert packed.returncode == 0, packed.stderr
    with zipfile.ZipFile(machine / "gpu/textures.zip") as archive:
        assert sorted(archive.namelist()) == ["a/photo.webp", "cut.webp"]
        assert (machine / "gpu/textures.zip").stat().st_size < original / 2
        with archive.open("cut.webp") as file, Image.open(file) as picture:
            assert picture.has_transparency_data
    refused = pack(machine, 0.001)
    assert refused.returncode != 0
    assert "does not fit" in refused.stderr


def test_reduced_pairs_and_shifted_photographs(tmp_path: Path, warm_python: WarmPython) -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (80, 240, 3), np.uint8) for _ in range(3)]
    for number, name in enumerate(("mine/left/a.png", "mine/right/a.png", "photos/b.png")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[number]).save(tmp_path / name)
    for folder, factor in (("mine", "0.5"), ("photos", "1")):
        script = warm_python.command(str(ROOT / "scripts/training/reduce_pairs.py"))
        command = [
            *script,
            tmp_path / folder,
            factor,
            "-o",
            tmp_path / f"made_{folder}",
            "--smallest",
            "100x40",
        ]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.endswith(
            ": 1 pairs\n"
        )
    for name, image in zip(("left", "right"), images, strict=False):
        made = np.asarray(Image.open(tmp_path / f"made_mine/{name}/0000.png"))
        channels = [Image.fromarray(image[..., each].astype(np.float32)) for each in range(3)]
        reduced = [np.asarray(each.resize((120, 40), Image.Resampling.BICUBIC)) for each in channels]
        assert np.abs(made - np.stack(reduced, 2).clip(0, 255)).max() < 0.51
    left, right = (
        np.asarray(Image.open(tmp_path / f"made_photos/{name}/0000.png")) for name in ("left", "right")
    )
    shift = 240 - left.shape[1]
    assert 1 <= shift <= 64
    np.testing.assert_array_equal(left, images[2][:, shift:])
    np.testing.assert_array_equal(right, images[2][:, :-shift])
