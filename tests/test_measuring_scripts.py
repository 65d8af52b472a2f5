"""The scripts that measure speed, memory and precision run, and say what they found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from pamcli.imaging.disparity_files import encode_disparity
from pamcli.imaging.images import Picture, encode_picture, read_picture

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "scripts" / "sample"


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / script), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_benchmark_compares_with_the_plain_order(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    tiny = ["--sizes", "32x64", "--superres", "16x20", "--growth", "none", "--repeat", "1", "--no-memory"]
    made = run("benchmark.py", *tiny, "--reduced", "bf16", "--json", str(figures))
    assert made.returncode == 0, made.stderr
    written = json.loads(figures.read_text())
    assert written["facts"]["threads"] == 1
    rows = written["rows"]
    assert [(row["network"], row["size"], row["variant"]) for row in rows] == [
        *(("pasmnet", "32x64", variant) for variant in ("plain", "fp32", "bf16")),
        *(("pasmnet", "32x64", f"pasmnet2 {precision}") for precision in ("fp32", "bf16")),
        *(("passrnet-x4", "16x20", variant) for variant in ("plain", "fp32", "bf16")),
        *(
            ("passrnet-x4", "16x20", f"{network} {precision}")
            for network in ("passrnet-x4", "passrnet2-x4")
            for precision in ("fp32", "bf16")
        ),
    ]
    for row in rows:
        assert row["times_faster"] > 0
        if " " in row["variant"]:  # another network, or both views: nothing to be equal to
            assert row["difference"] is None
            continue
        assert row["difference"] == 0 if row["variant"] == "plain" else row["difference"] > 0
        assert row["difference"] < (1e-3 if row["variant"] == "fp32" else 10)
    assert len(made.stdout.splitlines()) == 1 + len(rows)


def test_precisions_are_compared_on_data(tmp_path: Path) -> None:
    truth = np.full((40, 64), 9, np.float32)
    for name in ("left", "right", "disparity"):
        (tmp_path / name).mkdir()
    for side in ("left", "right"):
        view = read_picture(SAMPLE / f"{side}.png").pixels[100:140, 200:264]
        (tmp_path / side / "a.png").write_bytes(encode_picture(Picture(view), ".png", name=side))
    (tmp_path / "disparity" / "a.pfm").write_bytes(encode_disparity(truth, ".pfm").data)
    same = run("compare_precisions.py", "--data", f"pairs:{tmp_path}", "--precision", "fp32", "--json")
    assert same.returncode == 0, same.stderr
    (row,) = json.loads(same.stdout)["sets"]
    assert row["mean_difference"] == 0
    assert row["d1"][0] == row["d1"][1]
    assert row["close"]
    other = run("compare_precisions.py", "--data", f"pairs:{tmp_path}", "--json")
    (row,) = json.loads(other.stdout)["sets"]
    assert row["mean_difference"] > 0
    assert row["pictures"] == 1
    assert other.returncode == (0 if row["close"] else 1)


def test_memory_does_not_grow_with_a_list() -> None:
    made = run("batch_memory.py", "--pairs", "50", "500")
    assert made.returncode == 0, made.stderr
    counts = [
        (int(line.split()[0]), float(line.split(": ")[1].split()[0])) for line in made.stdout.splitlines()
    ]
    assert [count for count, _ in counts] == [50, 50, 500, 500]
    assert all(0 < megabytes < 20 for _, megabytes in counts)
