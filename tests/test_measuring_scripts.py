"""The scripts that measure speed, memory and precision run, and say what they found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest
from PIL import Image
from warm_python import WarmPython

from pamcli.imaging.disparity_files import encode_disparity, read_disparity

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "scripts" / "sample"

sys.path.append(str(ROOT / "scripts"))


class Run(Protocol):
    """Runs a script of scripts/."""

    def __call__(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def run(warm_python: WarmPython) -> Run:
    def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = warm_python.command(str(ROOT / "scripts" / script), *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_the_benchmark_stands_beside_the_classical_methods(run: Run, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    tiny = ["--networks", "pasmnet2", "--sizes", "48x32", "--devices", "cpu", "--threads", "1"]
    made = run("benchmark.py", *tiny, "--precisions", "fp32", "--repeat", "1", "--json", str(figures))
    assert made.returncode == 0, made.stderr
    written = json.loads(figures.read_text())
    assert {"pam", "python", "torch", "opencv-python-headless"} <= written["versions"].keys()
    rows = written["figures"]
    assert [row["network"] for row in rows] == ["SGBM", "pasmnet2"]
    assert all(0 < row["min ms"] <= row["median ms"] for row in rows)
    assert rows[0]["ratio"] == 1
    assert "| pasmnet2 | 48x32 | cpu | fp32 |  | 1 | 0 |" in made.stdout


def test_a_figure_is_slower_only_beyond_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import benchmark

    names = {"network": "pasmnet2", "size": "64x48", "device": "cpu", "precision": "fp32"}

    def run_with(low: float, ratio: float, high: float, machine: str = "A") -> dict[str, Any]:
        return {
            "machine": machine,
            "figures": [
                {**names, "threads": 1, "neighbours": 0, "ratio": ratio, "lowest": low, "highest": high}
            ],
        }

    before = run_with(4.0, 4.2, 4.5)
    for now, word, is_slower in (
        (run_with(4.6, 4.7, 4.9), "slower", True),
        (run_with(4.4, 4.7, 4.9), "the same within the noise", False),
        (run_with(3.0, 3.2, 3.9), "faster", False),
    ):
        lines, found = benchmark.compared(before, now)
        assert (found, len(lines)) == (is_slower, 1)
        assert lines[0].endswith(f"4.2 -> {now['figures'][0]['ratio']}, {word}")
    assert "Measured before on A" in benchmark.compared(before, run_with(4, 4.2, 5, "B"))[0][0]


def test_opencv_is_compared_on_data(run: Run, tmp_path: Path) -> None:
    for name in ("left", "right", "disparity"):
        (tmp_path / name).mkdir()
    for side in ("left", "right"):
        Image.open(SAMPLE / f"{side}.png").crop((100, 150, 400, 280)).save(tmp_path / side / "a.png")
    truth = read_disparity(SAMPLE / "disparity.pfm")[150:280, 100:400]
    (tmp_path / "disparity" / "a.pfm").write_bytes(encode_disparity(truth, ".pfm").data)
    data = f"pairs:{tmp_path}"
    made = run("compare_opencv.py", "--data", data, "--weights", "pasmnet")
    assert made.returncode == 0, made.stderr
    *figures, share = made.stdout.splitlines()
    for line, name in zip(figures, ("StereoSGBM", "pasmnet"), strict=True):
        assert line.startswith(f"{data}, {name}: D1 ")
        assert 0 < float(line.split("bad-2 ")[1].split()[0]) < 40
    assert 0 < float(share.split(" takes ")[1].split()[0]) < 1


def test_memory_does_not_grow_with_a_list() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "batch_memory.py"), "--pairs", "30", "300"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)  # whose memory is its own
    assert made.returncode == 0, made.stderr
    counts = [
        (int(line.split()[0]), float(line.split(": ")[1].split()[0])) for line in made.stdout.splitlines()
    ]
    assert [count for count, _ in counts] == [30, 30, 300, 300]
    assert all(0 <= megabytes < 20 for _, megabytes in counts)


@pytest.mark.parametrize(
    "name",
    [
        *("check_stereograms", "compare_precisions", "measure_camera_faults", "measure_camera_images"),
        *("measure_match_size", "measure_memory", "measure_steadiness", "video_bounds"),
    ],
)
def test_scripts_that_take_long_say_what_they_do(run: Run, name: str) -> None:
    made = run(f"{name}.py", "--help")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("usage: ")
