"""The scripts that measure speed, memory and precision run, and say what they found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest
from warm_python import WarmPython

from pamcli.imaging.disparity_files import encode_disparity, read_disparity
from pamcli.imaging.images import RgbImage, encode_image, read_image

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
    tiny = ["--networks", "pasmnet2,passrnet2-x2", "--sizes", "48x32", "--devices", "cpu", "--threads", "1"]
    made = run("benchmark.py", *tiny, "--precisions", "fp32", "--repeat", "1", "--json", str(figures))
    assert made.returncode == 0, made.stderr
    written = json.loads(figures.read_text())
    assert {"pam", "python", "torch", "opencv-python-headless"} <= written["versions"].keys()
    rows = written["figures"]
    assert [row["network"] for row in rows] == ["SGBM", "pasmnet2", "bicubic", "passrnet2-x2"]
    assert all(0 < row["min ms"] <= row["median ms"] for row in rows)
    assert [row["ratio"] for row in rows if row["precision"] == "classical"] == [1, 1]
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


def cut_of_the_sample(folder: Path, rows: slice, columns: slice) -> str:
    """Data with a cut of the sample pair."""
    truth = read_disparity(SAMPLE / "disparity.pfm")
    for name in ("left", "right", "disparity"):
        (folder / name).mkdir()
    for side in ("left", "right"):
        view = read_image(SAMPLE / f"{side}.png").pixels[rows, columns]
        (folder / side / "a.png").write_bytes(encode_image(RgbImage(view), ".png", name=side))
    (folder / "disparity" / "a.pfm").write_bytes(encode_disparity(truth[rows, columns], ".pfm").data)
    return f"pairs:{folder}"


def test_opencv_is_compared_on_data(run: Run, tmp_path: Path) -> None:
    data = cut_of_the_sample(tmp_path, slice(150, 350), slice(100, 500))
    made = run("compare_opencv.py", "--data", data, "--weights", "pasmnet")
    assert made.returncode == 0, made.stderr
    *figures, share = made.stdout.splitlines()
    for line, name in zip(figures, ("StereoSGBM", "pasmnet"), strict=True):
        assert line.startswith(f"{data}, {name}: D1 ")
        assert 0 < float(line.split("bad-2 ")[1].split()[0]) < 40
    assert 0 < float(share.split(" takes ")[1].split()[0]) < 1


def test_precisions_are_compared_on_data(run: Run, tmp_path: Path) -> None:
    data = cut_of_the_sample(tmp_path, slice(100, 140), slice(200, 264))
    same = run("compare_precisions.py", "--data", data, "--precision", "fp32", "--json")
    assert same.returncode == 0, same.stderr
    (row,) = json.loads(same.stdout)["sets"]
    assert row["mean_difference"] == 0
    assert row["d1"][0] == row["d1"][1]
    assert row["close"]
    other = run("compare_precisions.py", "--data", data, "--json")
    (row,) = json.loads(other.stdout)["sets"]
    assert row["mean_difference"] > 0
    assert row["pictures"] == 1
    assert other.returncode == (0 if row["close"] else 1)


def test_memory_does_not_grow_with_a_list() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "batch_memory.py"), "--pairs", "30", "300"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)  # whose memory is its own
    assert made.returncode == 0, made.stderr
    counts = [
        (int(line.split()[0]), float(line.split(": ")[1].split()[0])) for line in made.stdout.splitlines()
    ]
    assert [count for count, _ in counts] == [30, 30, 300, 300]
    assert all(0 <= megabytes < 20 for _, megabytes in counts)


def test_sizes_to_match_large_images_at_are_compared(run: Run, tmp_path: Path) -> None:
    sizes = ["--width", "192", "--drawn", "96", "--widths", "192,96,400"]
    made = run("measure_match_size.py", *sizes, "--scenes", "1", "--precision", "fp32")
    assert made.returncode == 0, made.stderr
    head, *lines = made.stdout.splitlines()
    assert re.fullmatch(r"scene 0: 192 x 128, disparities to \d+ px", head)
    assert [line.split("  ")[1 if line[0] == " " else 0].strip() for line in lines] == [
        "192 x 128",
        "96 x 64",
        "192 px wide, mean of 1",
        "96 px wide, mean of 1",
    ]
    figures = [[float(each) for each in re.findall(r"([\d.]+) (?:%|px  |s)", line)] for line in lines]
    assert figures[:2] == figures[2:], "the mean of one scene is its own"
    for far, farther, mean, median, _ in figures:
        assert 0 < farther <= far < 100
        assert 0 < median <= 2 * mean < 60, "half of the errors are as large as the median, or larger"
    assert figures[0][3] < figures[0][2], "of its own size few pixels are far off"
    assert figures[0] != figures[1]
    data = cut_of_the_sample(tmp_path, slice(100, 140), slice(200, 280))
    made = run("measure_match_size.py", "--data", data, "--widths", "80,64", "--precision", "fp32")
    assert made.returncode == 0, made.stderr
    assert re.match(r"a: 80 x 40, disparities to \d+ px\n  80 x 40 .*\n  64 x 32 ", made.stdout)


def test_faults_of_cameras_are_counted(run: Run, tmp_path: Path) -> None:
    cut = read_image(SAMPLE / "left.png").pixels[100:340, 200:520]
    (tmp_path / "cut.png").write_bytes(encode_image(RgbImage(cut), ".png", name="cut"))
    made = run("measure_camera_faults.py", str(tmp_path))
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(
        "JPEG traces in unchanged images: 0 of 1\nnoise in unchanged images: 0 of 1\n"
    )
    assert made.stdout.count("quality 60: 1 of 1\n") == 3
    assert made.stdout.endswith(
        "noise of 3: 0 of 1\nnoise of 4: 1 of 1\nnoise of 5: 1 of 1\nnoise of 10: 1 of 1\n"
    )


@pytest.mark.parametrize(
    "name",
    [
        *("check_stereograms", "measure_camera_images", "measure_memory", "measure_steadiness"),
        "video_bounds",
    ],
)
def test_scripts_that_take_long_say_what_they_do(run: Run, name: str) -> None:
    made = run(f"{name}.py", "--help")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("usage: ")
